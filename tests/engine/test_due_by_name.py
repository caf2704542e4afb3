"""What programs call themselves: pipelines that they found to be due, and a scheduler of their own."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ematix_flow
from ematix_flow import executors, pipeline, scheduler, workflow
from ematix_flow.metrics import MemorySink
from ematix_flow.pipeline import FailedEvent, FiredEvent, SkippedEvent, run_due_with_dag, run_due_with_dag_detailed
from ematix_flow.scheduler import run_scheduler
from tests.engine.schedules import NOON

if TYPE_CHECKING:
    from ematix_flow.alerters import AlertEvent
    from tests.engine.schedules import Rig


class AlertKinds:
    def __init__(self) -> None:
        self.kinds: list[tuple[str, str]] = []

    def notify(self, event: AlertEvent) -> None:
        self.kinds.append((event.pipeline, event.kind))


def test_due_pipelines_run_in_their_order_and_everybody_hears_of_them(rig: Rig) -> None:
    rig.add("raw")
    rig.add("mart", depends_on=["raw"])
    rig.add("bad")
    rig.add("worse", depends_on=["bad"])
    rig.broken.add("bad")
    alerts, sink = AlertKinds(), MemorySink()
    names = ["worse", "mart", "bad", "raw"]
    result = run_due_with_dag_detailed(names, now=NOON, run_log=rig.log, alerters=[alerts], metrics=sink)
    assert result.fired == [FiredEvent("raw", {"rows": 1}), FiredEvent("mart", {"rows": 1})]
    assert result.failed == [FailedEvent("bad", "bad is broken", "OSError", 1, True)]
    assert result.skipped == [SkippedEvent("worse", "upstream not fresh: bad")]
    assert ("bad", "failed") in alerts.kinds
    assert sink.counters["raw", "success"] == sink.counters["bad", "failure"] == sink.counters["worse", "skipped"] == 1


def test_a_pipeline_that_ends_itself_has_failed_and_the_others_run(rig: Rig) -> None:
    def leave() -> None:
        sys.exit(3)

    pipeline.register(name="leaver", schedule="0 * * * *")(leave)
    rig.add("raw")
    result = run_due_with_dag_detailed(["leaver", "raw"], now=NOON, run_log=rig.log)
    assert [(one.name, one.error_type, one.gave_up) for one in result.failed] == [("leaver", "RunError", True)]
    assert "sys.exit(3)" in result.failed[0].error_message
    assert [one.name for one in result.fired] == ["raw"]


def test_a_slot_that_has_run_is_skipped_and_the_next_one_runs(rig: Rig) -> None:
    rig.add("raw")
    assert run_due_with_dag(["raw"], now=NOON, run_log=rig.log) == ["raw"]
    assert run_due_with_dag(["raw"], now=NOON.replace(tzinfo=None), run_log=rig.log) == []
    assert run_due_with_dag(["raw"], now=NOON + timedelta(hours=1), run_log=rig.log) == ["raw"]


def test_an_unknown_name_is_refused(rig: Rig) -> None:
    rig.add("raw")
    with pytest.raises(KeyError, match="no pipeline named 'rwa'"):
        run_due_with_dag(["rwa"], run_log=rig.log)
    assert rig.ran == []


@pytest.mark.slow
def test_a_program_can_run_a_scheduler(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("own_flows.py").write_text("", encoding="utf-8")
    rig.add("raw")
    sink = MemorySink()

    def sleep(seconds: float) -> None:
        assert seconds == 10
        rig.pass_time(600)
        threading.Event().wait(0.02)  # a run has six looks to end before its next slot

    run_scheduler(
        module="own_flows", run_log=rig.log, run_log_url="", executor=None, metrics=sink, max_iterations=13,
        now_fn=lambda: rig.now, sleep_fn=sleep,
    )  # fmt: skip
    sys.modules.pop("own_flows")
    assert rig.ran == ["raw"] * 3
    assert sink.counters["raw", "success"] == 3


def test_the_public_names_are_there() -> None:
    for module in (pipeline, scheduler, executors, workflow):
        assert sorted(module.__all__) == sorted(set(module.__all__))
        assert all(hasattr(module, name) for name in module.__all__)
    assert ematix_flow.AllOf is workflow.AllOf
    assert pipeline.is_due("0 * * * *", NOON, 60)
    assert pipeline.matched_fire_time("0 * * * *", NOON, 60) == NOON
    assert pipeline.forecast_next_run("0 * * * *", now=NOON) == NOON + timedelta(hours=1)
