"""Plans of lake tables: the difference that is shown is the one that is applied, and anything else is refused."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import failpoints
from ematix_flow.clock import Clock
from ematix_flow.connect.base.session import Statement
from ematix_flow.engine import Options, apply_plan, diff_pipeline
from ematix_flow.engine.batch.result import counts_of
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import StalePlanError
from ematix_flow.failpoints import FailpointError
from ematix_flow.plan.sql.render import native_name
from ematix_flow.run_log import SqliteRunLog
from tests.depth import deep
from tests.lakes.lanes import MODES, START, Lane, lake_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.engine.review.diff import DiffResult
    from tests.lakes.lanes import Row

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

DAY = timedelta(days=1)
FIRST: list[Row] = [(1, "a", 0.5, "1", START), (2, "b", None, None, START), (3, "c", 1.5, "3", START)]
SECOND: list[Row] = [(2, "two", None, None, START + DAY), (3, "c", 1.5, "3", START), (9, None, 1.0, "9", START)]


def options(lane: Lane) -> Options:
    """Give the options of a load that comes an hour after the last one."""
    lane.count += 1
    now = START + 2 * DAY + timedelta(hours=lane.count)
    return Options(run_log=SqliteRunLog(lane.folder / "run_log.db"), clock=Clock(now=lambda: now))


def planned(lane: Lane, rows: list[Row]) -> DiffResult:
    """Make these rows the source and plan their load."""
    lane.give(rows)
    return diff_pipeline(lane.pipeline("id, word, share, amount, at"), options(lane))


def applied(lane: Lane, result: DiffResult) -> dict[str, Any]:
    """Apply a plan and check that it did what was foreseen."""
    done = apply_plan(result.plan_id, options(lane))
    foreseen = counts_of(result.targets[0].counts, lane.options["mode"])
    assert foreseen == {name: done[name] for name in foreseen}
    return done  # type: ignore[no-any-return]


def totals(result: DiffResult) -> tuple[int, int, int, int]:
    """Give added, changed, removed and unchanged keys."""
    (diff,) = result.targets
    return diff.added, diff.changed, diff.removed, diff.unchanged


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Disarm all failpoints afterwards."""
    yield
    failpoints.arm("")


@pytest.mark.parametrize(
    ("kind", "mode", "foreseen"),
    [
        deep("iceberg", "merge_hard", (1, 1, 1, 1)),
        deep("iceberg", "scd2_event", (1, 1, 0, 1)),
        deep("delta_local", "scd2_load", (1, 1, 1, 1)),
        deep("iceberg", "truncate", (1, 1, 1, 1)),
    ],
)
def test_what_is_foreseen_is_what_is_done(
    kind: str, mode: str, foreseen: tuple[int, int, int, int], tmp_path: Path
) -> None:
    lane = Lane(lake_fields(kind, tmp_path), tmp_path, MODES[mode])
    first = planned(lane, FIRST)
    assert totals(first) == (3, 0, 0, 0)
    assert applied(lane, first)["rows_inserted"] == 3
    before = lane.rows()
    second = planned(lane, SECOND)
    assert totals(second) == foreseen
    assert lane.rows() == before
    changed = next(sample for sample in second.targets[0].samples if sample.kind == "changed")
    assert (changed.key, changed.old["word"], changed.new["word"]) == ({"id": 2}, "b", "two")  # type: ignore[index]
    done = applied(lane, second)
    after = lane.rows()
    assert after != before
    again = apply_plan(second.plan_id, options(lane))
    assert (again["recovered"], again["run_id"], lane.rows()) == (True, done["run_id"], after)


@pytest.mark.parametrize("kind", [deep("iceberg"), "delta_local"])
def test_a_table_that_somebody_changed_is_refused(kind: str, tmp_path: Path) -> None:
    lane = Lane(lake_fields(kind, tmp_path), tmp_path, {"mode": "append"})
    applied(lane, planned(lane, FIRST[:1]))
    result = planned(lane, FIRST[1:])
    database = lane.database()
    place = native_name(database.table_name("shop", "things"), "spark")
    session_for(Options())().sql(f"DELETE FROM {place} WHERE id = 1")
    with pytest.raises(StalePlanError, match="changed since the plan was made"):
        apply_plan(result.plan_id, options(lane))
    assert lane.rows() == []


@pytest.mark.deep
@pytest.mark.crash
@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("iceberg", "store.before_change"),
        deep("iceberg", "store.after_change"),
        deep("delta_local", "store.before_change"),
    ],
)
def test_a_plan_whose_application_fails_around_the_change_is_applied_once(
    kind: str, point: str, tmp_path: Path, disarmed: None
) -> None:
    lane = Lane(lake_fields(kind, tmp_path), tmp_path, {"mode": "append"})
    lane.load(FIRST[:1])
    result = planned(lane, FIRST[1:])
    failpoints.arm(f"{point}=raise@1")
    with pytest.raises(FailpointError):
        apply_plan(result.plan_id, options(lane))
    failpoints.arm("")
    assert apply_plan(result.plan_id, options(lane))["rows_inserted"] == 2
    assert len(lane.rows()) == 3


@pytest.mark.deep
def test_a_program_that_knows_no_lock_is_noticed_until_the_end(tmp_path: Path) -> None:
    lane = Lane(lake_fields("iceberg", tmp_path), tmp_path, {"mode": "append"})
    lane.load(FIRST[:1])
    database = lane.database()
    place = database.table_name("shop", "things")
    copy = f"INSERT INTO {native_name(place, 'spark')} SELECT * FROM {native_name(place, 'spark')}"
    with closing(database.session()) as session:
        database.begin_alone(session, [place])
        session_for(Options())().sql(copy)
        with pytest.raises(StalePlanError, match="another program"):
            database.data(session).run(Statement(copy, final=True))
        session.rollback()
    assert len(lane.rows()) == 2
