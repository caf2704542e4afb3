"""The numbers of runs as Prometheus and OTLP collectors see them."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from ematix_flow.connect.config.secrets import remember
from ematix_flow.events import PipelineEnded, PipelineSkipped
from ematix_flow.metrics import MemorySink, NullSink, RunMetrics, from_url
from ematix_flow.observe.metrics.prometheus import PrometheusSink
from ematix_flow.observe.metrics.run import MOST
from tests.observe.collectors import GrpcCollector

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.metrics import MetricsSink
    from tests.observe.endpoints import Endpoint

DONE = PipelineEnded("orders", "", "slot", datetime(2026, 1, 1, tzinfo=UTC), 2.5)
FAILED = replace(DONE, attempt=2, max_attempts=5, error_message="away", error_type="RunError", seconds=0.2)


def heard(sink: MetricsSink) -> None:
    listener = RunMetrics(sink)
    for event in (DONE, FAILED, PipelineSkipped("orders", "", "upstream not fresh: a")):
        listener(event)


def test_a_dictionary_of_numbers() -> None:
    sink = from_url("memory://")
    assert isinstance(sink, MemorySink)
    heard(sink)
    assert sink.counters == {("orders", "success"): 1, ("orders", "failure"): 1, ("orders", "skipped"): 1}
    assert sink.durations == {"orders": [2.5, 0.2]}
    assert sink.attempts == {"orders": 2}
    RunMetrics(sink)(DONE)
    assert sink.attempts == {"orders": 0}


def test_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    heard(from_url("stdout://"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[:3] == [
        '[METRIC] pipeline_runs_total{pipeline="orders",outcome="success"} +1',
        '[METRIC] pipeline_duration_seconds{pipeline="orders"} 2.500',
        '[METRIC] pipeline_retry_attempt{pipeline="orders"} 0',
    ]


@pytest.mark.slow
def test_prometheus_reads_them_while_the_sink_is_open(capsys: pytest.CaptureFixture[str]) -> None:
    sink = from_url("prometheus://:0")
    assert isinstance(sink, PrometheusSink)
    heard(sink)
    url = f"http://127.0.0.1:{sink.port}/metrics"
    assert capsys.readouterr().err == f"metrics: {url}\n"
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}
    assert samples["pipeline_runs_total", "orders", "success"] == 1
    assert samples["pipeline_runs_total", "failure", "orders"] == 1
    assert samples["pipeline_runs_total", "orders", "skipped"] == 1
    assert samples["pipeline_duration_seconds_sum", "orders"] == pytest.approx(2.7)
    assert samples["pipeline_duration_seconds_bucket", "0.5", "orders"] == 1
    assert samples["pipeline_retry_attempt", "orders"] == 2
    with pytest.warns(UserWarning, match=f"cannot be served on port {sink.port}"):
        assert isinstance(from_url(f"prometheus://:{sink.port}"), NullSink)
    sink.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=10)


@pytest.mark.parametrize("url", ["promethius://:1", "no-scheme", "prometheus://:port", "otlp://", "otlp://h?tsl=1"])
def test_a_bad_address_is_a_warning_and_nothing_is_counted(url: str) -> None:
    with pytest.warns(UserWarning, match="no metrics of this run"):
        heard(from_url(url))


def numbers(request: Any) -> dict[tuple[str, ...], float]:
    """Return the numbers of a request by name and attributes."""
    samples = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        data = getattr(metric, metric.WhichOneof("data"))
        for point in data.data_points:
            labels = sorted(one.value.string_value for one in point.attributes)
            value = point.sum if metric.name.endswith("seconds") else point.as_int
            samples[metric.name, *labels] = value
    return samples


EXPECTED = {
    ("pipeline_runs_total", "orders", "success"): 1,
    ("pipeline_runs_total", "failure", "orders"): 1,
    ("pipeline_runs_total", "orders", "skipped"): 1,
    ("pipeline_duration_seconds", "orders"): 2.7,
    ("pipeline_retry_attempt", "orders"): 2,
}


@pytest.mark.parametrize("scheme", ["otlp", "otlp+http"])
def test_a_collector_gets_the_sums_by_http(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "127.0.0.1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary%20key")
    sink = from_url(f"{scheme}://127.0.0.1:{endpoint.port}/base")
    heard(sink)
    sink.close()
    (got,) = endpoint.got
    assert (got.path, got.headers["content-type"]) == ("/base/v1/metrics", "application/x-protobuf")
    assert got.headers["x-key"] == "canary key"
    request = ExportMetricsServiceRequest.FromString(got.body)
    assert numbers(request) == pytest.approx(EXPECTED)
    (service,) = (one for one in request.resource_metrics[0].resource.attributes if one.key == "service.name")
    assert service.value.string_value == "ematix-flow"


def test_a_collector_gets_the_sums_by_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = GrpcCollector()
    try:
        monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "localhost")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=one")
        sink = from_url(f"otlp+grpc://localhost:{collector.port}")
        heard(sink)
        sink.close()
        assert numbers(collector.got[0]) == pytest.approx(EXPECTED)
        assert collector.metadata[0]["x-key"] == "one"
    finally:
        collector.close()


def test_a_collector_behind_tls(trusted: Path, secure_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "localhost,127.0.0.1")
    collector = GrpcCollector(trusted)
    try:
        for url in (f"otlp://localhost:{secure_endpoint.port}?tls=1", f"otlp+grpc://localhost:{collector.port}?tls=1"):
            sink = from_url(url)
            heard(sink)
            sink.close()
        assert numbers(collector.got[0]) == pytest.approx(EXPECTED)
        assert numbers(ExportMetricsServiceRequest.FromString(secure_endpoint.got[0].body)) == pytest.approx(EXPECTED)
    finally:
        collector.close()


@pytest.mark.parametrize("scheme", ["otlp", "otlp+grpc"])
def test_a_private_collector_that_is_not_listed_is_told_once(capsys: pytest.CaptureFixture[str], scheme: str) -> None:
    sink = from_url(f"{scheme}://127.0.0.1:1")
    heard(sink)
    sink.close()
    errors = capsys.readouterr().err
    assert errors.count("is private or belongs to this machine") == 1
    assert "EMATIX_FLOW_ALLOW_HOSTS=127.0.0.1:1" in errors


def test_labels_are_bounded_and_hold_no_secret() -> None:
    sink = MemorySink()
    listener = RunMetrics(sink)
    remember("canary-in-a-name")
    listener(replace(DONE, pipeline="load canary-in-a-name"))
    for number in range(MOST + 50):
        listener(PipelineSkipped(f"p{number}", "", ""))
    assert len({name for name, _ in sink.counters}) == MOST + 1
    assert sink.counters["_others", "skipped"] == 51
    assert "canary" not in str(list(sink.counters))
