"""Plans that are applied by a process which dies anywhere: applied again, every row is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.folders import FOLDER
from tests.crash.journey import Load, difference, expected, prepare, table_rows
from tests.crash.metadata import contradictions
from tests.depth import deep_but

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = pytest.mark.crash

POINTS = (
    "token.after_insert",
    "ddl.after_expand",
    "commit.ledger_inserted",
    "commit.applied_first_stmt",
    "commit.before_commit",
    "commit.commit_sent",
    "gc.before_drop",
    "post.before",
)
"""One of every kind of place that applying a plan passes; all of them are swept by loads, which share the path."""

SYSTEMS = (
    "duckdb",
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.service),
    pytest.param("mysql", marks=pytest.mark.service),
    FOLDER,
)


@pytest.mark.parametrize("kind", deep_but(SYSTEMS, "postgres", FOLDER))
def test_a_plan_whose_application_is_killed_anywhere_is_applied_once(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str
) -> None:
    target = target_of(kind)
    prepare(target, "planned")
    complaints, numbers = [], []
    for number, point in enumerate(point for point in POINTS if point in target.points):
        load = Load("append", number, "planned")
        plan_id = nursery.run("plan", target, load).answer
        before = table_rows(target, load)
        ending = nursery.run("apply", target, load, plan_id, failpoints=f"{point}=kill")
        numbers.append(number)
        right_after, after = table_rows(target, load), expected("append", numbers)
        complaints += [] if ending.died else [f"{point}: it ended otherwise: {ending}"]
        complaints += (
            []
            if right_after in (before, after)
            else [f"{point}: right after the crash: {difference(right_after, after)}"]
        )
        again = nursery.run("apply", target, load, plan_id)
        complaints += [] if again.answer is not None else [f"{point}: applied again: {again.error}"]
        complaints += [
            f"{point}: {text}"
            for text in difference(table_rows(target, load), after) + contradictions(target, load, len(numbers))
        ]
    assert complaints == []
    with_staging = target.database.session()
    try:
        assert list(target.database.stages(with_staging)) == []
    finally:
        with_staging.close()


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_the_first_load_of_all_can_be_a_plan_that_dies(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str
) -> None:
    target = target_of(kind)
    prepare(target)
    load = Load("scd2_event", 0, "first")
    plan_id = nursery.run("plan", target, load).answer
    assert nursery.run("apply", target, load, plan_id, failpoints="ddl.after_expand=kill").died
    assert nursery.run("apply", target, load, plan_id).answer["status"] == "success"
    assert difference(table_rows(target, load), expected("scd2_event", [0])) == []
