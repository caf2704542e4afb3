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
from tests.lakes.targets import MODES, START, TargetTable, lake_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.engine.review.diff import DiffResult
    from tests.lakes.targets import Row

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

DAY = timedelta(days=1)
FIRST: list[Row] = [(1, "a", 0.5, "1", START), (2, "b", None, None, START), (3, "c", 1.5, "3", START)]
SECOND: list[Row] = [(2, "two", None, None, START + DAY), (3, "c", 1.5, "3", START), (9, None, 1.0, "9", START)]


def options(target: TargetTable) -> Options:
    """Return the options of a load that comes an hour after the last one."""
    target.count += 1
    now = START + 2 * DAY + timedelta(hours=target.count)
    return Options(run_log=SqliteRunLog(target.folder / "run_log.db"), clock=Clock(now=lambda: now))


def planned(target: TargetTable, rows: list[Row]) -> DiffResult:
    """Make these rows the source and plan their load."""
    target.give(rows)
    return diff_pipeline(target.pipeline("id, word, share, amount, at"), options(target))


def applied(target: TargetTable, result: DiffResult) -> dict[str, Any]:
    """Apply a plan and check that it did what was foreseen."""
    done = apply_plan(result.plan_id, options(target))
    foreseen = counts_of(result.targets[0].counts, target.options["mode"])
    assert foreseen == {name: done[name] for name in foreseen}
    return done  # type: ignore[no-any-return]


def totals(result: DiffResult) -> tuple[int, int, int, int]:
    """Return added, changed, removed and unchanged keys."""
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
    target = TargetTable(lake_fields(kind, tmp_path), tmp_path, MODES[mode])
    first = planned(target, FIRST)
    assert totals(first) == (3, 0, 0, 0)
    assert applied(target, first)["rows_inserted"] == 3
    before = target.rows()
    second = planned(target, SECOND)
    assert totals(second) == foreseen
    assert target.rows() == before
    changed = next(sample for sample in second.targets[0].samples if sample.kind == "changed")
    assert (changed.key, changed.old["word"], changed.new["word"]) == ({"id": 2}, "b", "two")  # type: ignore[index]
    done = applied(target, second)
    after = target.rows()
    assert after != before
    again = apply_plan(second.plan_id, options(target))
    assert (again["recovered"], again["run_id"], target.rows()) == (True, done["run_id"], after)


@pytest.mark.parametrize("kind", [deep("iceberg"), "delta_local"])
def test_a_table_that_somebody_changed_is_refused(kind: str, tmp_path: Path) -> None:
    target = TargetTable(lake_fields(kind, tmp_path), tmp_path, {"mode": "append"})
    applied(target, planned(target, FIRST[:1]))
    result = planned(target, FIRST[1:])
    database = target.database()
    table_name = native_name(database.table_name("shop", "things"), "spark")
    session_for(Options())().sql(f"DELETE FROM {table_name} WHERE id = 1")
    with pytest.raises(StalePlanError, match="changed since the plan was made"):
        apply_plan(result.plan_id, options(target))
    assert target.rows() == []


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
    target = TargetTable(lake_fields(kind, tmp_path), tmp_path, {"mode": "append"})
    target.load(FIRST[:1])
    result = planned(target, FIRST[1:])
    failpoints.arm(f"{point}=raise@1")
    with pytest.raises(FailpointError):
        apply_plan(result.plan_id, options(target))
    failpoints.arm("")
    assert apply_plan(result.plan_id, options(target))["rows_inserted"] == 2
    assert len(target.rows()) == 3


@pytest.mark.deep
def test_a_program_that_knows_no_lock_is_noticed_until_the_end(tmp_path: Path) -> None:
    target = TargetTable(lake_fields("iceberg", tmp_path), tmp_path, {"mode": "append"})
    target.load(FIRST[:1])
    database = target.database()
    table_name = database.table_name("shop", "things")
    copy = f"INSERT INTO {native_name(table_name, 'spark')} SELECT * FROM {native_name(table_name, 'spark')}"
    with closing(database.session()) as session:
        database.begin_alone(session, [table_name])
        session_for(Options())().sql(copy)
        with pytest.raises(StalePlanError, match="another program"):
            database.data(session).run(Statement(copy, final=True))
        session.rollback()
    assert len(target.rows()) == 2
