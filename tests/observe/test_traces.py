"""A run as the spans that a collector gets."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ematix_flow.connect.config.secrets import remember
from ematix_flow.events import (
    PipelineBegan,
    PipelineEnded,
    PostFinished,
    RowsStaged,
    RunCommitted,
    RunFailed,
    RunStarted,
)
from ematix_flow.records import Counts
from ematix_flow.tracing import from_url
from tests.observe.collectors import GrpcCollector

if TYPE_CHECKING:
    from ematix_flow.tracing import Tracing
    from tests.observe.endpoints import Endpoint

AT = datetime(2026, 1, 1, tzinfo=UTC)
BEGAN = PipelineBegan("orders", "", "2026-01-01T00:00:00Z", 2)
GOOD = [
    BEGAN,
    RunStarted("orders", "sales.orders", "run-1", "cross_db", "local"),
    RowsStaged("orders", "sales.orders", 10, 1),
    RunCommitted("orders", "sales.orders", "run-1", Counts(staged=10), replayed=False),
    PostFinished("orders", "", "ANALYZE", ok=True),
    PipelineEnded("orders", "", BEGAN.slot, AT, 1.0, attempt=2),
]
BAD = [
    BEGAN,
    RunStarted("orders", "sales.orders", "run-1", "same_db", "database"),
    RunFailed("orders", "sales.orders", "run-1", "no canary-of-trace"),
    PipelineEnded("orders", "", BEGAN.slot, AT, 1.0, error_message="no canary-of-trace", error_type="RunError"),
]


def emit_all(tracing: Tracing | None, events: list[Any]) -> None:
    assert tracing is not None
    for event in events:
        tracing(event)
    tracing.close(10)


def spans(request: Any) -> dict[str, Any]:
    (scope,) = request.resource_spans[0].scope_spans
    return {span.name: span for span in scope.spans}


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def check(request: Any) -> None:
    recorded_spans = spans(request)
    root = recorded_spans.pop("flow.pipeline.run")
    assert list(recorded_spans) == [
        "flow.pipeline.plan",
        "flow.pipeline.stage",
        "flow.pipeline.commit",
        "flow.pipeline.post",
    ]
    assert {span.parent_span_id for span in recorded_spans.values()} == {root.span_id}
    assert {span.trace_id for span in recorded_spans.values()} == {root.trace_id}
    assert attributes(root) == {
        "flow.pipeline.name": "orders", "flow.pipeline.attempt": 2, "flow.pipeline.slot": "2026-01-01T00:00:00Z",
        "flow.pipeline.outcome": "success",
    }  # fmt: skip
    assert attributes(recorded_spans["flow.pipeline.stage"]) == {
        "flow.target": "sales.orders",
        "flow.rows": 10,
        "flow.rejected": 1,
    }
    ends = [span.end_time_unix_nano for span in recorded_spans.values()]
    assert [span.start_time_unix_nano for span in recorded_spans.values()] == [root.start_time_unix_nano, *ends[:-1]]


def test_a_collector_gets_a_run_in_one_request_by_http(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "127.0.0.1")
    emit_all(from_url(f"otel+otlp+http://127.0.0.1:{endpoint.port}"), GOOD)
    (got,) = endpoint.got
    assert got.path == "/v1/traces"
    check(ExportTraceServiceRequest.FromString(got.body))


def test_a_collector_gets_a_run_by_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "127.0.0.1")
    collector = GrpcCollector()
    try:
        emit_all(from_url(f"otel+otlp+grpc://127.0.0.1:{collector.port}"), GOOD)
        check(collector.got[0])
    finally:
        collector.close()


def test_a_failed_run_as_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    remember("canary-of-trace")
    emit_all(from_url("otel://stdout"), BAD)
    captured = capsys.readouterr()
    traces = [json.loads(line.removeprefix("[TRACE] ")) for line in captured.err.splitlines()]
    assert [span["name"] for span in traces] == ["flow.pipeline.plan", "flow.pipeline.commit", "flow.pipeline.run"]
    assert [span["status"]["status_code"] for span in traces] == ["UNSET", "ERROR", "ERROR"]
    assert traces[-1]["attributes"]["error.type"] == "RunError"
    assert "canary" not in captured.err
    assert captured.out == ""


def test_runs_of_two_pipelines_at_once_are_two_traces(capsys: pytest.CaptureFixture[str]) -> None:
    other = [PipelineBegan("stock", "", "s"), PipelineEnded("stock", "", "s", AT, 1.0)]
    emit_all(from_url("otel://stdout"), [GOOD[0], other[0], *GOOD[1:], other[1]])
    traces = [json.loads(line.removeprefix("[TRACE] ")) for line in capsys.readouterr().err.splitlines()]
    assert len({span["context"]["trace_id"] for span in traces}) == 2
    assert [span["name"] for span in traces].count("flow.pipeline.run") == 2


@pytest.mark.parametrize("url", ["otel://stdut", "zipkin://host", "otel+otlp+http://"])
def test_a_bad_address_is_a_warning_and_no_traces(url: str) -> None:
    with pytest.warns(UserWarning, match="no traces of this run"):
        assert from_url(url) is None


def test_a_collector_that_answers_with_an_error_is_told_once(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "127.0.0.1")
    endpoint.answer = 500
    emit_all(from_url(f"otel+otlp+http://127.0.0.1:{endpoint.port}"), [*GOOD, *GOOD])
    assert capsys.readouterr().err == "traces: 127.0.0.1 answers 500 (reported once)\n"
    assert len(endpoint.got) == 2
