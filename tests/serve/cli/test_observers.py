"""`flow run` tells those who were named, and its result is the same whether they listen or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.observe.endpoints import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.serve.cli.conftest import CommandResult

    Flow = Callable[..., CommandResult]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Return a web service that the operator allows."""
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "127.0.0.1")
    server = Endpoint()
    yield server
    server.close()


def test_a_failure_is_told_and_fails_all_the_same(flow: Flow, project: Path, hook: Endpoint) -> None:
    result = flow(
        "run",
        "broken",
        "-m",
        "flows",
        "--alerter",
        f"http://127.0.0.1:{hook.port}/canary-of-hook-1",
        "--alerter",
        "stdout://",
    )
    assert result.code == 1
    (got,) = hook.got
    assert got.json["text"].startswith("broken failed\nKeyError: 'nothing'\n")
    assert "[ALERT]" in result.err
    assert "canary" not in result.err + result.out


@pytest.mark.slow
@pytest.mark.parametrize("answer", [500, 302, "slow"])
def test_an_endpoint_out_of_order_changes_nothing(
    flow: Flow, project: Path, hook: Endpoint, answer: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ematix_flow.observe import observers as observers_module

    monkeypatch.setattr(observers_module, "FLUSH_SECONDS", 0.3)
    monkeypatch.setattr(observers_module, "GRACE_SECONDS", 0.3)
    hook.answer = answer
    url = f"127.0.0.1:{hook.port}"
    options = (
        "--metrics",
        f"otlp://{url}",
        "--traces",
        f"otel+otlp+http://{url}",
        "--lineage",
        f"openlineage+http://{url}",
    )
    result = flow("run", "copy", "-m", "flows", "--alerter", f"http://{url}/hook", *options)
    assert (result.code, json.loads(result.out)["rows_inserted"]) == (0, 2)
    assert {got.path for got in hook.got} <= {"/v1/metrics", "/v1/traces", "/api/v1/lineage"}
    assert result.err.count("lineage:") == 1
    failed = flow("run", "broken", "-m", "flows", "--alerter", f"http://{url}/hook")
    assert failed.code == 1
    assert [got.path for got in hook.got].count("/hook") == 1


def test_metrics_traces_and_lineage_of_a_run(flow: Flow, project: Path) -> None:
    file = Path.cwd() / "lineage.ndjson"
    result = flow(
        "run", "copy", "-m", "flows", "--metrics", "stdout://", "--traces", "otel://stdout", "--lineage", f"openlineage+file://{file}",
    )  # fmt: skip
    assert '[METRIC] pipeline_runs_total{pipeline="copy",outcome="success"} +1' in result.err
    spans = [
        json.loads(line.removeprefix("[TRACE] ")) for line in result.err.splitlines() if line.startswith("[TRACE]")
    ]
    assert [span["name"] for span in spans] == ["flow.pipeline.plan", "flow.pipeline.commit", "flow.pipeline.run"]
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert events[1]["run"]["runId"] == json.loads(result.out)["run_id"]
    assert events[1]["outputs"][0]["name"] == "main.copies"


@pytest.mark.slow
def test_a_bad_address_is_a_warning(flow_process: Flow, project: Path) -> None:
    result = flow_process(
        "run", "copy", "-m", "flows", "--alerter", "carrier-pigeon://loft", "--metrics", "promethius://:1"
    )
    assert result.code == 0
    assert "warning: there are no alerts by one of the addresses" in result.err
    assert "warning: there are no metrics of this run" in result.err
    assert "did you mean 'prometheus'" in result.err
