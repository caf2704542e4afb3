"""Staging that others touch: emptied, dropped, foreign, collected, or there in thousands."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit.cleanup import collect
from ematix_flow.connect.base.stage import StageColumn, StageSpec
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.table.types import BigInt
from tests.crash.conftest import on
from tests.crash.harness import Sweep
from tests.crash.journey import Load, prepare

if TYPE_CHECKING:
    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = pytest.mark.crash

COLUMNS = (StageColumn("id", BigInt()),)


def stages(target: CrashTarget) -> list[str]:
    with closing(target.database.session()) as session:
        return [name for name, _ in target.database.stages(session)]


def drop(target: CrashTarget, name: str) -> None:
    with closing(target.database.session()) as session:
        target.database.drop_stage(session, StageSpec(name, b""))


def create_stages(target: CrashTarget, *names: str) -> None:
    schema = staged_schema(COLUMNS).serialize().to_pybytes()
    with closing(target.database.session()) as session:
        for name in names:
            target.database.open_stage(session, StageSpec(name, schema, columns=COLUMNS))


def test_a_staging_that_is_dropped_before_the_commit_is_filled_again(nursery: Nursery, target: CrashTarget) -> None:
    prepare(target, "dropped")
    sweep = Sweep(nursery, target, "append", "dropped")
    stopped = sweep.interrupted("stage.collected")
    (name,) = stages(target)
    drop(target, name)
    assert sweep.finished(stopped) == []


def test_a_load_whose_staging_is_always_lost_is_refused(nursery: Nursery, target: CrashTarget) -> None:
    prepare(target, "lost")
    sweep = Sweep(nursery, target, "append", "lost")
    ending = sweep.run(sweep.next_load(), "stage.collected=stop")
    for _ in range(3):
        for name in stages(target):
            drop(target, name)
        ending = nursery.resume(ending)
    assert sweep.refused(ending, "StagingLostError", "run the load again") == []
    assert sweep.undisturbed() == []


def test_foreign_staging_is_left_alone(nursery: Nursery, target: CrashTarget) -> None:
    prepare(target, "alone")
    create_stages(target, "stg_foreign_0")
    assert Sweep(nursery, target, "append", "alone").undisturbed() == []
    assert stages(target) == ["stg_foreign_0"]


def test_a_load_that_was_committed_is_not_made_again(nursery: Nursery, target: CrashTarget) -> None:
    prepare(target, "replayed")
    sweep = Sweep(nursery, target, "append", "replayed", options={"incremental_column": None}, slots=True)
    load = sweep.next_load()
    assert sweep.undisturbed() == []
    again = sweep.run(load)
    assert (again.answer["recovered"], again.answer["path"]) == (True, "recovered")
    sweep.loaded, sweep.requests = [], 0
    assert sweep.judged(load, []) == []


def test_a_collection_at_age_zero_spares_what_an_open_run_needs(nursery: Nursery, target: CrashTarget) -> None:
    prepare(target, "open")
    create_stages(target, "stg_orphan_0")
    sweep = Sweep(nursery, target, "append", "open")
    stopped = sweep.interrupted("stage.collected")
    assert collect(target.database, 0.0) == 1
    assert len(stages(target)) == 1
    assert sweep.finished(stopped) == []
    assert stages(target) == []


@pytest.mark.slow
@on("sqlite", "postgres")
def test_thousands_of_orphans_are_collected(nursery: Nursery, target: CrashTarget) -> None:
    many = 10_000 if target.kind in ("duckdb", "sqlite") else 400
    prepare(target)
    assert nursery.run("load", target, Load("merge", 0, "before")).answer is not None
    create_stages(target, *(f"stg_{number:05d}_0" for number in range(many)))
    assert collect(target.database, 0.0) == many
    assert stages(target) == []
