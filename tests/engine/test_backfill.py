"""Backfills: the same tokens as the live schedule, taken up after an error or a kill, and beside a scheduler that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.runlog.records import Backfill
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.schedule.backfill import find_backfill, open_backfill, run_backfill, slot_count, slots_of
from ematix_flow.errors import DeclareError
from ematix_flow.pipeline import Slot, current_slot
from tests.engine.schedules import NOON

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.schedule.backfill import SlotDone
    from tests.engine.conftest import Warehouse
    from tests.engine.schedules import Rig

pytestmark = pytest.mark.slow

SRC = str(Path(__file__).parents[2] / "src")
NINE = NOON - timedelta(hours=3)


def backfilled(rig: Rig, name: str, first: datetime = NINE, last: datetime = NOON, **more: Any) -> list[SlotDone]:
    order, _ = open_backfill(rig.log, PROJECT.pipelines[name], first, last, **more)
    return list(run_backfill(PROJECT.pipelines[name], order, rig.runner("backfill")))


def hours(done: list[SlotDone]) -> list[str]:
    return [one.slot[11:16] for one in done]


def test_slots_from_the_first_instant_up_to_the_last_one_which_is_left_out(rig: Rig) -> None:
    rig.add("a")
    assert hours(backfilled(rig, "a")) == ["09:00", "10:00", "11:00"]
    assert rig.ran == ["a"] * 3
    assert [one.state for one in rig.log.all(Backfill)] == ["done"]


def test_a_function_is_told_its_slot(rig: Rig) -> None:
    slots: list[Slot | None] = []
    rig.add("a", work=lambda: slots.append(current_slot()))
    backfilled(rig, "a")
    rig.due()
    assert slots == [Slot(NINE + timedelta(hours=n - 1), NINE + timedelta(hours=n)) for n in range(4)]
    assert current_slot() is None


def test_slots_that_ran_live_have_run_already(rig: Rig, duck: Warehouse, declare: Callable[..., Pipeline]) -> None:
    declare(duck, schedule="0 * * * *")
    rig.now = NINE + timedelta(hours=1, seconds=5)
    rig.due()
    assert duck.rows("SELECT count(*) FROM mart.orders") == [(2,)]
    done = backfilled(rig, "load")
    assert [(hour, bool(one.result.get("recovered"))) for hour, one in zip(hours(done), done, strict=True)] == [
        ("09:00", False),
        ("10:00", True),
        ("11:00", False),
    ]
    assert all(bool(one.result.get("recovered")) for one in backfilled(rig, "load"))
    assert not any(bool(one.result.get("recovered")) for one in backfilled(rig, "load", again=True))
    assert all(bool(one.result.get("recovered")) for one in backfilled(rig, "load"))


def test_a_backfill_leaves_the_live_schedule_alone(rig: Rig) -> None:
    rig.add("a")
    rig.due()
    before = rig.state("a")
    backfilled(rig, "a")
    assert rig.state("a") == before
    assert rig.due().fired == []


def test_an_error_ends_it_and_the_same_call_goes_on(rig: Rig) -> None:
    rig.add("a")
    order, resumed = open_backfill(rig.log, PROJECT.pipelines["a"], NINE, NOON)
    assert not resumed
    steps = run_backfill(PROJECT.pipelines["a"], order, rig.runner())
    next(steps)
    rig.broken.add("a")
    assert [one.error for one in steps] == ["OSError: a is broken"]
    assert find_backfill(rig.log, order.id).state == "failed"
    rig.broken.clear()
    order, resumed = open_backfill(rig.log, PROJECT.pipelines["a"], NINE, NOON)
    assert resumed
    done = list(run_backfill(PROJECT.pipelines["a"], order, rig.runner()))
    assert hours(done) == ["10:00", "11:00"]
    assert find_backfill(rig.log, order.id[:9]).state == "done"


def test_it_waits_while_the_live_schedule_has_the_pipeline(rig: Rig) -> None:
    rig.add("a")
    claim = rig.log.claim("a", "scheduler", 60)
    began, real = rig.now, rig.pass_time

    def pass_time(seconds: float) -> None:
        real(seconds)
        if rig.now > began + timedelta(seconds=5):
            rig.log.release(claim.token or "")

    rig.pass_time = pass_time  # type: ignore[method-assign]
    assert len(backfilled(rig, "a")) == 3
    assert rig.now == began + timedelta(seconds=6)


def test_what_has_no_slots_is_refused(rig: Rig) -> None:
    rig.add("a", None)
    rig.add("b")
    with pytest.raises(ValueError, match="has no schedule, so there are no slots"):
        open_backfill(rig.log, PROJECT.pipelines["a"], NINE, NOON)
    with pytest.raises(ValueError, match="before it begins"):
        open_backfill(rig.log, PROJECT.pipelines["b"], NOON, NINE)
    for edge in (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)):
        with pytest.raises(DeclareError, match="years 1000 to 9000"):
            open_backfill(rig.log, PROJECT.pipelines["b"], edge, edge)
    with pytest.raises(KeyError, match="no single backfill has the id 'bf-0'"):
        find_backfill(rig.log, "bf-0")


def test_slots_follow_the_zone_of_the_pipeline(rig: Rig) -> None:
    rig.add("a", "30 2 * * *", timezone="Europe/Berlin")
    first, last = datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC)
    order, _ = open_backfill(rig.log, PROJECT.pipelines["a"], first, last)
    assert slot_count(PROJECT.pipelines["a"], order) == 3
    assert list(slots_of(PROJECT.pipelines["a"], order)) == [
        "2026-03-28T01:30:00Z",
        "2026-03-29T01:00:00Z",
        "2026-03-30T00:30:00Z",
    ]


KILLED = """
from pathlib import Path
from ematix_flow.pipeline import current_slot, register

@register(name="note", schedule="0 * * * *")
def note():
    with Path("ran.txt").open("a") as file:
        file.write(f"{current_slot().end:%H:%M} ")
"""


def test_a_kill_between_two_slots_repeats_none_of_them() -> None:
    Path("killed.py").write_text(KILLED, encoding="utf-8")
    command = ["backfill", "note", "-m", "killed", "--from", "2026-03-01T09:00Z", "--to", "2026-03-01T12:00Z"]
    codes = []
    for failpoints in ("backfill.noted=kill@2", "", ""):
        done = subprocess.run(
            [sys.executable, "-m", "ematix_flow", *command, "--run-log-path", "log.db"],
            env={**os.environ, "PYTHONPATH": SRC, "FLOW_FAILPOINTS": failpoints},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        codes.append(done.returncode)
    assert codes == [-9, 0, 0]
    assert Path("ran.txt").read_text().split() == ["09:00", "10:00", "11:00"]
