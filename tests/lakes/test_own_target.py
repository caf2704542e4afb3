"""Queries over lake tables that read the table they load: the first run finds it empty, and so say preview and dry run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, Source, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine import apply_plan, diff_pipeline
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.engine.review.dry_run import dry_run_pipeline
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.engine.review.validate import validate_pipeline
from ematix_flow.run_log import SqliteRunLog
from tests.depth import deep
from tests.engine.every_type import TYPES
from tests.lakes.targets import TargetTable, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

NOTE = "which does not exist yet: a run creates it before it reads, so it has no rows"
NEXT = "SELECT COALESCE((SELECT MAX(id) FROM shop.things), 0) + 1 AS id, 'a' AS word"
UPSERT = (
    "WITH fresh AS (SELECT * FROM VALUES (1L, 'a'), (2L, 'b') AS v(id, word)) "
    "SELECT f.id, COALESCE(concat(things.word, '!'), f.word) AS word "
    "FROM fresh f LEFT JOIN shop.things ON things.id = f.id"
)
COLUMNS = (Column(BigInt(), nullable=False, primary_key=True, name="id"), Column(Text(), name="word"))
KINDS = ["delta_local", "iceberg"]


@pytest.fixture
def target_table(request: pytest.FixtureRequest, tmp_path: Path) -> TargetTable:
    kind = getattr(request, "param", "delta_local")
    return TargetTable(lake_fields(kind, tmp_path), tmp_path, {}, Table("shop", "things", COLUMNS))


def flow(target_table: TargetTable, sql: Any, mode: str = "append") -> Pipeline:
    """Declare a load of the lake whose query reads its own target."""
    target = TargetDeclaration(target_table.table, write(mode=mode), target_table.connection)
    return Pipeline("grow", lambda: sql, (target,), source_connection=target_table.connection)


def options(target_table: TargetTable) -> Options:
    return Options(run_log=SqliteRunLog(target_table.folder / "run_log.db"))


@pytest.mark.deep
@pytest.mark.parametrize("target_table", KINDS, indirect=True)
@pytest.mark.parametrize(
    ("mode", "sql", "first", "second"),
    [
        deep("append", NEXT, [("1", "a")], [("1", "a"), ("2", "a")]),
        ("merge", UPSERT, [("1", "a"), ("2", "b")], [("1", "a!"), ("2", "b!")]),
    ],
    ids=["append", "merge"],
)
def test_the_first_run_reads_its_target_as_empty(
    target_table: TargetTable, mode: str, sql: str, first: list[Any], second: list[Any]
) -> None:
    pipeline = flow(target_table, sql, mode)
    assert validate_pipeline(pipeline).errors == ()
    simulated = dry_run_pipeline(pipeline)
    assert simulated.errors == ()
    assert (simulated.targets[0].dry_run_rows_affected or {})["rows_inserted"] == len(first)
    assert [note for note in simulated.notes if NOTE in note]
    assert run_pipeline(pipeline, options(target_table))["rows_inserted"] == len(first)
    assert target_table.rows("id, word") == first
    run_pipeline(pipeline, options(target_table))
    assert target_table.rows("id, word") == second


@pytest.mark.deep
def test_a_preview_of_it_says_so(target_table: TargetTable) -> None:
    preview = preview_pipeline(flow(target_table, NEXT))
    assert [note for note in preview.notes if NOTE in note]
    assert preview.source_sql == NEXT


@pytest.mark.deep
def test_a_plan_of_it_can_be_kept_and_applied(target_table: TargetTable) -> None:
    planned = diff_pipeline(flow(target_table, NEXT), options(target_table))
    apply_plan(planned.plan_id, options(target_table))
    assert target_table.rows("id, word") == [("1", "a")]


@pytest.mark.deep
def test_a_table_of_every_type_can_be_asked_about_before_it_exists(target_table: TargetTable) -> None:
    target_table.table = Table("shop", "things", tuple(Column(kind, name=name) for name, kind in TYPES.items()))
    columns = ", ".join(f"`{name}`" for name in TYPES)
    assert (
        run_pipeline(flow(target_table, f"SELECT {columns} FROM shop.things"), options(target_table))["rows_inserted"]
        == 0
    )


@pytest.mark.deep
def test_a_join_of_several_connections_reads_its_missing_target_as_empty(
    target_table: TargetTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    target_table.give([(1, "a", None, None, None), (2, "b", None, None, None)])
    source = connection_from_fields("source", {"kind": "sqlite", "path": str(tmp_path / "source.db")})
    query = (
        "SELECT s.id, COALESCE(concat(t.word, '!'), s.word) AS word "
        "FROM other.things s LEFT JOIN lake.shop.things t ON t.id = s.id"
    )
    pipeline = flow(
        target_table, Source.sql(query, connections={"other": source, "lake": target_table.connection}), "merge"
    )
    assert validate_pipeline(pipeline).errors == ()
    assert dry_run_pipeline(pipeline).errors == ()
    assert run_pipeline(pipeline, options(target_table))["rows_inserted"] == 2
    run_pipeline(pipeline, options(target_table))
    assert target_table.rows("id, word") == [("1", "a!"), ("2", "b!")]
