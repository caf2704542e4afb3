"""Who hears of runs is chosen by options, else by the environment; the end of a command waits for them, but not long."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.events import PipelineEnded, PipelineSkipped
from ematix_flow.observe import observers as observers_module
from ematix_flow.observe.alerts.incidents import AlertRules, MemoryIncidentStore, quality_update
from ematix_flow.observe.alerts.registry import register_alerter
from ematix_flow.observe.bus import Bus
from ematix_flow.observe.observers import incident_store_in, observers

if TYPE_CHECKING:
    from ematix_flow.observe.alerts.alert import AlertEvent
    from tests.observe.endpoints import Endpoint

FAILED = PipelineEnded(
    "orders", "", "s", datetime(2026, 1, 1, tzinfo=UTC), 1.0, error_message="away", error_type="RunError"
)
DONE = replace(FAILED, error_message="", error_type="")


def heard(events: list[Any], **options: Any) -> None:
    bus = Bus()
    with observers(**options) as active:
        active.subscribe_to(bus)
        for event in events:
            bus.emit(event)


def test_everything_that_was_asked_for_hears(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "127.0.0.1")
    hook = f"http://127.0.0.1:{endpoint.port}/hook"
    heard([FAILED, FAILED, DONE], alerters=["stdout://", hook], metrics="stdout://")
    assert [got.json["text"].partition("\n")[0] for got in endpoint.got] == ["orders failed", "orders has recovered"]
    errors = capsys.readouterr().err
    assert errors.count("[ALERT]") == 2
    assert errors.count('[METRIC] pipeline_runs_total{pipeline="orders",outcome="failure"}') == 2


def test_the_environment_is_asked_where_options_say_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ALERTERS", "stdout://, ,stdout://")
    monkeypatch.setenv("EMATIX_FLOW_METRICS_URL", "stdout://")
    monkeypatch.setenv("EMATIX_FLOW_TRACES", "otel://stdout")
    monkeypatch.setenv("EMATIX_FLOW_LINEAGE", "openlineage+stdout://")
    with observers() as active:
        assert len(active.subscribers) == 4
    heard([FAILED])
    errors = capsys.readouterr().err
    assert (errors.count("[ALERT]"), errors.count("[METRIC]")) == (2, 3)
    monkeypatch.setenv("EMATIX_FLOW_METRICS", "null://")
    heard([FAILED], alerters=["stdout://"])
    errors = capsys.readouterr().err
    assert (errors.count("[ALERT]"), errors.count("[METRIC]")) == (1, 0)


def test_a_comma_inside_an_address_divides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mail = "email://host?to=a@example.com,b@example.com"
    monkeypatch.setenv("EMATIX_FLOW_ALERTERS", f"{mail}, ${{HOOK}},json+x://a,stdout://")
    assert observers_module._listed("EMATIX_FLOW_ALERTERS") == [mail, "${HOOK}", "json+x://a", "stdout://"]


def test_bad_addresses_are_warnings_and_the_others_hear(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="there (is|are) no") as warned:
        heard(
            [FAILED], alerters=["nosuch://x", "stdout://"], metrics="nosuch://", traces="nosuch://", lineage="nosuch://"
        )
    assert len(warned) == 4
    assert capsys.readouterr().err.count("[ALERT]") == 1


def test_alerters_of_the_process_hear_too() -> None:
    alerts: list[AlertEvent] = []

    class Mine:
        def notify(self, event: AlertEvent) -> None:
            alerts.append(event)

    register_alerter(Mine())
    heard([FAILED, PipelineSkipped("orders", "", "")])
    assert [event.kind for event in alerts] == ["failed"]


def test_incidents_outlive_a_command_in_their_book(capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryIncidentStore()
    for event in (FAILED, FAILED, DONE, DONE):
        heard([event], alerters=["stdout://"], incidents=store)
    assert [line.split()[2] for line in capsys.readouterr().err.splitlines()] == ["failed", "recovered"]
    assert incident_store_in(store) is store
    assert incident_store_in(object()) is None


def test_rules_are_those_of_the_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    rules = {"orders": AlertRules(every_attempt=True), "stock": AlertRules()}
    events = [FAILED, FAILED, replace(FAILED, pipeline="stock"), replace(FAILED, pipeline="stock")]
    heard(events, alerters=["stdout://"], rules=rules.__getitem__)
    assert [line.split()[3] for line in capsys.readouterr().err.splitlines()] == ["orders", "orders", "stock"]


def test_quality_and_freshness_have_a_door_too(capsys: pytest.CaptureFixture[str]) -> None:
    with observers(alerters=["stdout://"]) as active:
        assert active.incidents is not None
        active.incidents.hear(quality_update("orders", "3 rows"))
    assert "quality_failed orders did not meet its expectations: 3 rows" in capsys.readouterr().err
    with observers() as none_active:
        assert none_active.incidents is None


def test_the_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(observers_module, "FLUSH_SECONDS", 0.2)
    monkeypatch.setattr(observers_module, "GRACE_SECONDS", 0.2)
    go_on = threading.Event()

    class Stuck:
        def notify(self, _: AlertEvent) -> None:
            go_on.wait(30)

        def close(self, _: float) -> None:
            go_on.wait(30)

    register_alerter(Stuck())
    with observers() as active:
        active.closing.append(Stuck().close)
        bus = Bus()
        active.subscribe_to(bus)
        bus.emit(FAILED)
    go_on.set()
    errors = capsys.readouterr().err
    assert "alerts by Stuck: 1 could not be sent in time (reported once)" in errors
    assert "an observer did not end" in errors


@pytest.mark.slow
def test_nothing_is_loaded_that_nobody_asked_for() -> None:
    code = (
        "import sys; from ematix_flow.observe.observers import observers\n"
        "with observers(): pass\n"
        "heavy = {'apprise', 'opentelemetry', 'prometheus_client', 'grpc', 'smtplib', 'sqlglot', 'http.client'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "[]\n"
