"""Plans that are applied by a process which dies anywhere: applied again, every row is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.books import books
from tests.crash.folders import FOLDER
from tests.crash.journey import Load, difference, expected, found, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.journey import Place
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


@pytest.mark.parametrize("kind", SYSTEMS)
def test_a_plan_whose_application_is_killed_anywhere_is_applied_once(
    nursery: Nursery, place_of: Callable[[str], Place], kind: str
) -> None:
    place = place_of(kind)
    prepare(place, "planned")
    said, numbers = [], []
    for number, point in enumerate(point for point in POINTS if point in place.points):
        load = Load("append", number, "planned")
        plan_id = nursery.run("plan", place, load).answer
        before = found(place, load)
        ending = nursery.run("apply", place, load, plan_id, failpoints=f"{point}=kill")
        numbers.append(number)
        seen, after = found(place, load), expected("append", numbers)
        said += [] if ending.died else [f"{point}: it ended otherwise: {ending}"]
        said += [] if seen in (before, after) else [f"{point}: right after the crash: {difference(seen, after)}"]
        again = nursery.run("apply", place, load, plan_id)
        said += [] if again.answer is not None else [f"{point}: applied again: {again.error}"]
        said += [
            f"{point}: {text}" for text in difference(found(place, load), after) + books(place, load, len(numbers))
        ]
    assert said == []
    with_staging = place.database.session()
    try:
        assert list(place.database.stages(with_staging)) == []
    finally:
        with_staging.close()


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_the_first_load_of_all_can_be_a_plan_that_dies(
    nursery: Nursery, place_of: Callable[[str], Place], kind: str
) -> None:
    place = place_of(kind)
    prepare(place)
    load = Load("scd2_event", 0, "first")
    plan_id = nursery.run("plan", place, load).answer
    assert nursery.run("apply", place, load, plan_id, failpoints="ddl.after_expand=kill").died
    assert nursery.run("apply", place, load, plan_id).answer["status"] == "success"
    assert difference(found(place, load), expected("scd2_event", [0])) == []
