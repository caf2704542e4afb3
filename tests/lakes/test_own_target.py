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
from tests.lakes.lanes import Lane, lake_fields

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
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Lane:
    kind = getattr(request, "param", "delta_local")
    return Lane(lake_fields(kind, tmp_path), tmp_path, {}, Table("shop", "things", COLUMNS))


def flow(lane: Lane, sql: Any, mode: str = "append") -> Pipeline:
    """Declare a load of the lake whose query reads its own target."""
    target = TargetDeclaration(lane.table, write(mode=mode), lane.connection)
    return Pipeline("grow", lambda: sql, (target,), source_connection=lane.connection)


def options(lane: Lane) -> Options:
    return Options(run_log=SqliteRunLog(lane.folder / "run_log.db"))


@pytest.mark.deep
@pytest.mark.parametrize("lane", KINDS, indirect=True)
@pytest.mark.parametrize(
    ("mode", "sql", "first", "second"),
    [
        deep("append", NEXT, [("1", "a")], [("1", "a"), ("2", "a")]),
        ("merge", UPSERT, [("1", "a"), ("2", "b")], [("1", "a!"), ("2", "b!")]),
    ],
    ids=["append", "merge"],
)
def test_the_first_run_reads_its_target_as_empty(
    lane: Lane, mode: str, sql: str, first: list[Any], second: list[Any]
) -> None:
    pipeline = flow(lane, sql, mode)
    assert validate_pipeline(pipeline).errors == ()
    rehearsed = dry_run_pipeline(pipeline)
    assert rehearsed.errors == ()
    assert (rehearsed.targets[0].dry_run_rows_affected or {})["rows_inserted"] == len(first)
    assert [note for note in rehearsed.notes if NOTE in note]
    assert run_pipeline(pipeline, options(lane))["rows_inserted"] == len(first)
    assert lane.rows("id, word") == first
    run_pipeline(pipeline, options(lane))
    assert lane.rows("id, word") == second


@pytest.mark.deep
def test_a_preview_of_it_says_so(lane: Lane) -> None:
    preview = preview_pipeline(flow(lane, NEXT))
    assert [note for note in preview.notes if NOTE in note]
    assert preview.source_sql == NEXT


@pytest.mark.deep
def test_a_plan_of_it_can_be_kept_and_applied(lane: Lane) -> None:
    kept = diff_pipeline(flow(lane, NEXT), options(lane))
    apply_plan(kept.plan_id, options(lane))
    assert lane.rows("id, word") == [("1", "a")]


@pytest.mark.deep
def test_a_table_of_every_type_can_be_asked_about_before_it_exists(lane: Lane) -> None:
    lane.table = Table("shop", "things", tuple(Column(kind, name=name) for name, kind in TYPES.items()))
    columns = ", ".join(f"`{name}`" for name in TYPES)
    assert run_pipeline(flow(lane, f"SELECT {columns} FROM shop.things"), options(lane))["rows_inserted"] == 0


@pytest.mark.deep
def test_a_join_of_several_connections_reads_its_missing_target_as_empty(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    lane.give([(1, "a", None, None, None), (2, "b", None, None, None)])
    source = connection_from_fields("source", {"kind": "sqlite", "path": str(tmp_path / "source.db")})
    query = (
        "SELECT s.id, COALESCE(concat(t.word, '!'), s.word) AS word "
        "FROM other.things s LEFT JOIN lake.shop.things t ON t.id = s.id"
    )
    pipeline = flow(lane, Source.sql(query, connections={"other": source, "lake": lane.connection}), "merge")
    assert validate_pipeline(pipeline).errors == ()
    assert dry_run_pipeline(pipeline).errors == ()
    assert run_pipeline(pipeline, options(lane))["rows_inserted"] == 2
    run_pipeline(pipeline, options(lane))
    assert lane.rows("id, word") == [("1", "a!"), ("2", "b!")]
