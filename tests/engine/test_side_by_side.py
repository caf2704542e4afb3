"""Two loads of one pipeline at the same time: a slot that another load keeps from its commit is loaded after it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow import BigInt, ematix
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.engine.rejects import replay_rejects
from ematix_flow.engine.schedule.run_due import run_due
from ematix_flow.errors import RunError
from ematix_flow.events import RunStarted
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.engine.schedules import Rig

pytestmark = pytest.mark.slow


@pytest.fixture
def declared(tmp_path: Path) -> Callable[[], list[int]]:
    """Declare a pipeline `load` that appends the number 1, and a bad row; return what reads its table."""
    path = tmp_path / "there.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE raw (n TEXT)")
        connection.execute("INSERT INTO raw VALUES ('1'), ('many')")
    ematix.connection(type("there", (), {"kind": "sqlite", "path": str(path)}))
    numbers = ematix.table(schema="main", name="numbers")(type("Numbers", (), {"__annotations__": {"n": BigInt}}))

    @ematix.pipeline(
        target=numbers, target_connection="there", mode="append", schedule="0 * * * *", on_bad_row="reject"
    )
    def load(conn: object) -> str:
        return "SELECT n FROM raw"

    def rows() -> list[int]:
        with sqlite3.connect(path) as connection:
            return [row[0] for row in connection.execute("SELECT n FROM numbers")]

    return rows


def overtaken(rig: Rig, times: int) -> Options:
    """Return options of runs that are overtaken by a run by hand, once each."""
    options, left = rig.runner().options, [times]

    def overtake(event: object) -> None:
        if isinstance(event, RunStarted) and left[0]:
            left[0] -= 1
            run_pipeline(PROJECT.pipeline("load"), Options(slot=f"by hand {left[0]}", run_log=rig.log))

    options.bus.subscribe(overtake)
    return options


def test_a_slot_that_a_run_by_hand_keeps_from_its_commit_is_begun_again_and_costs_no_attempt(
    rig: Rig, declared: Callable[[], list[int]]
) -> None:
    runner = replace(rig.runner(), options=overtaken(rig, 1))
    aside = run_due(runner)
    reason = "another run kept slot 2026-03-01T12:00:00Z from its commit; it is begun again"
    assert (aside.failed, [event.reason for event in aside.skipped]) == ([], [reason])
    assert declared() == [1]
    state = rig.state("load")
    assert (state.slot_status, state.attempt - state.interruptions, state.last_outcome) == (retrying.FAILED, 0, "")
    rig.pass_time(30)
    assert [event.name for event in rig.due().fired] == ["load"]
    assert declared() == [1, 1]
    assert rig.state("load").slot_status == retrying.SUCCEEDED


def test_a_slot_that_is_kept_from_its_commit_again_and_again_fails(rig: Rig, declared: Callable[[], list[int]]) -> None:
    rig.log.swap(None, PipelineState("load", last_slot="2026-03-01T12:00:00Z", slot_status=retrying.FAILED,
        attempt=10, interruptions=10, next_attempt_at="2026-03-01T12:00:00+00:00"))  # fmt: skip
    result = run_due(replace(rig.runner(), options=overtaken(rig, 1)))
    assert [(event.error_type, event.gave_up) for event in result.failed] == [("FencedError", True)]
    assert declared() == [1]


def test_rejects_are_not_replayed_while_their_pipeline_runs(rig: Rig, declared: Callable[[], list[int]]) -> None:
    load, options = PROJECT.pipeline("load"), Options(run_log=rig.log)
    run_pipeline(load, options)
    held = rig.log.claim("load", "somewhere", 60)
    with pytest.raises(RunError, match="'load' is running on somewhere; a replay now would keep that run from"):
        replay_rejects(load, options=options)
    assert held.token is not None
    rig.log.release(held.token)
    assert replay_rejects(load, options=options)["rejected"] == 1
    assert declared() == [1]
