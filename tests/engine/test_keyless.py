"""Declared tables without a key, as logs of events are: append and truncate load them, merge and scd2 refuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import register_connection
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import JSON, BigInt, Integer, Text
from ematix_flow.engine import Options, apply_plan, diff_pipeline, dry_run_pipeline, run_pipeline
from ematix_flow.engine.api.sync import sync
from ematix_flow.engine.review.validate import validate_pipeline
from ematix_flow.errors import DriftError, PlanError
from tests.engine.conftest import SYSTEMS
from tests.engine.existing_tables import existing_on

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.existing_tables import Existing

COLUMNS = (Column(Integer(), name="n"), Column(Text(), name="word"), Column(JSON(), name="doc"))
ROWS = "INSERT INTO happened VALUES (1, 'tea'), (1, 'tea'), (NULL, NULL)"


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Existing:
    """Return a database with the source of the events."""
    existing = existing_on(request.param, tmp_path, request)
    register_connection(existing.connection)
    existing.run("CREATE TABLE happened (n INTEGER, word VARCHAR(20))", ROWS)
    return existing


def events(system: Existing, columns: tuple[Column, ...] = COLUMNS, **options: Any) -> Pipeline:
    table = Table(system.schema, "events", columns)
    return Pipeline(
        name="events",
        function=lambda: "SELECT n, word, NULL AS doc FROM happened",
        targets=(TargetDeclaration(table, write(**options), "target"),),
        source_connection="target",
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_rows_are_loaded_planned_and_rehearsed(system: Existing, mode: str) -> None:
    assert validate_pipeline(events(system, mode=mode)).ok
    assert dry_run_pipeline(events(system, mode=mode)).targets[0].dry_run_error is None
    assert run_pipeline(events(system, mode=mode), Options(slot="first"))["rows_inserted"] == 3
    PROJECT.pipelines["events"] = events(system, mode=mode)
    planned = diff_pipeline(PROJECT.pipelines["events"])
    [diff] = planned.targets
    assert (diff.added, diff.removed) == (3, 3 if mode == "truncate" else 0)
    apply_plan(planned.plan_id)
    rows = system.rows("SELECT n, word FROM events ORDER BY n")
    assert sorted(rows, key=str) == sorted(
        [(1, "tea"), (1, "tea"), (None, None)] * (2 if mode == "append" else 1), key=str
    )


@pytest.mark.slow
def test_drift_is_seen_and_columns_grow(system: Existing) -> None:
    run_pipeline(events(system, mode="append"), Options(slot="first"))
    wider = (Column(BigInt(), name="n"), *COLUMNS[1:])
    with pytest.raises(DriftError, match="column 'n' is"):
        run_pipeline(events(system, wider, mode="append"), Options(slot="second"))
    done = run_pipeline(events(system, wider, mode="append", on_drift="evolve"), Options(slot="third"))
    assert done["rows_inserted"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_merge_and_scd2_need_a_key(system: Existing, mode: str) -> None:
    with pytest.raises(PlanError, match=r"must declare at least one primary key column") as refused:
        run_pipeline(events(system, mode=mode, keys=["n"]), Options())
    assert refused.value.hint == "mark it with pk(); only append and truncate need none."


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"kind": "delta_local"}, {"kind": "object_store_local", "format": "parquet"}])
def test_lakes_and_folders_take_them_too(tmp_path: Path, fields: dict[str, Any]) -> None:
    connection = connection_from_fields("target", {**fields, "path": str(tmp_path / "there")})
    table = Table("shop", "events", COLUMNS[:2])
    for number in range(2):
        done = sync(
            target=table,
            source=[{"n": 1, "word": "tea"}] * 2,
            target_connection=connection,
            mode="append",
            pipeline_name=f"events_{number}",
        )
        assert done["rows_inserted"] == 2
