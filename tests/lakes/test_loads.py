"""What else a load does, on lake tables: rejects, dry runs, partitions, catalogs, and reading them again."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, Source, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.engine.rejects import list_rejects, replay_rejects
from ematix_flow.engine.review.dry_run import dry_run_pipeline
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.errors import BadRowsError, DriftError, RunError
from tests.contracts.test_wraps import Wrap
from tests.lakes.lanes import COLUMNS, START, Lane, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lakes.lanes import Row

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

ROWS: list[Row] = [(1, "a", 0.5, "1", START), (2, "b", None, None, START)]
LAKES = ("delta_local", "iceberg")


@pytest.fixture
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Lane:
    """Give a lake table that rows are appended to: an Iceberg one, which is quicker, unless a test asks for others."""
    kind = getattr(request, "param", "iceberg")
    return Lane(lake_fields(kind, tmp_path), tmp_path, {"mode": "append"})


every_lake = pytest.mark.parametrize("lane", LAKES, indirect=True)


def test_a_dry_run_counts_and_leaves_nothing_behind(lane: Lane) -> None:
    lane.give(ROWS)
    told = dry_run_pipeline(lane.pipeline("id, word, share, amount, at")).targets[0]
    assert told.dry_run_error is None
    assert told.dry_run_rows_affected == {"rows_staged": 2, "rows_inserted": 2, "rows_deleted": 0, "rows_rejected": 0}
    assert [path.name for path in lane.folder.iterdir()] == ["source.db"]
    text = preview_pipeline(lane.pipeline()).text(verbose=True)
    assert "INSERT INTO" in text
    assert "is created" in text or "not known" in text


def test_bad_rows_fail_the_load_or_become_rejects_that_can_be_replayed(lane: Lane) -> None:
    bad: list[Row] = [(1, "a", 0.5, "none", START), (2, "b", None, "2", START)]
    with pytest.raises(BadRowsError):
        lane.load(bad)
    lane.options = {"mode": "append", "on_bad_row": "reject"}
    result = lane.load(bad)
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 1)
    (reject,) = list_rejects(lane.pipeline())
    assert reject.column_name == "amount"
    lane.table = replace(lane.table, columns=(*COLUMNS[:3], Column(Text(), nullable=True, name="amount"), COLUMNS[4]))
    with pytest.raises(DriftError, match="amount"):
        replay_rejects(lane.pipeline())
    assert lane.rows("id") == [("2",)]


@every_lake
def test_a_table_is_partitioned_as_its_class_says(lane: Lane) -> None:
    lane.table = replace(lane.table, partition_columns=("word",))
    lane.load(ROWS)
    folders = {path.name for path in lane.folder.rglob("word=*")}
    assert folders == {"word=a", "word=b"}
    assert len(lane.rows()) == 2


@every_lake
def test_a_table_is_read_at_the_version_that_is_asked_for(lane: Lane) -> None:
    lane.load(ROWS)
    earlier = newest(lane)
    lane.load([(3, "c", None, None, START)])
    schema, name = lane.table.schema, lane.table.name
    assert copied(lane, "SELECT id, word FROM shop.things WHERE id > 1") == [(2, "b"), (3, "c")]
    old = Source.delta(lane.connection, schema, name, version=earlier)
    assert copied(lane, old) == [(1, "a"), (2, "b")]
    assert copied(lane, f"SELECT t.id, t.word FROM shop.things VERSION AS OF {earlier} AS t") == [(1, "a"), (2, "b")]
    with pytest.raises(RunError, match=r"no (Delta|Iceberg) table"):
        copied(lane, "SELECT id, word FROM shop.nothing")


@pytest.mark.deep
@every_lake
@pytest.mark.parametrize("returned", ["shop/things", "shop.things"])
def test_a_function_may_return_the_folder_of_a_table(lane: Lane, returned: str, tmp_path: Path) -> None:
    lane.load(ROWS)
    target = connection_from_fields("copy", {"kind": "sqlite", "path": str(tmp_path / "copy.db")})
    pipeline = Pipeline(
        name="copies",
        function=lambda: returned,
        targets=(TargetDeclaration(replace(lane.table, schema="main"), write("append"), target),),
        source_connection=lane.connection,
    )
    assert "lake" in preview_pipeline(pipeline).text()
    assert run_pipeline(pipeline, Options())["rows_inserted"] == len(ROWS)


def test_an_incremental_load_reads_only_what_is_new_in_a_lake(lane: Lane) -> None:
    lane.load(ROWS)
    query = "SELECT id, word FROM shop.things"
    assert copied(lane, query, mode="append", incremental_column="id", slot="1") == [(1, "a"), (2, "b")]
    lane.load([(3, "c", None, None, START)])
    assert copied(lane, query, mode="append", incremental_column="id", slot="2") == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.deep
@every_lake
def test_sql_around_rows_of_a_lake_sees_those_that_fit(lane: Lane) -> None:
    lane.load([(1, "7", None, None, START), (2, "7", None, None, START), (3, "x", None, None, START)])
    query = "SELECT word AS id, CAST(id AS STRING) AS word FROM shop.things"
    wrap = Wrap("SELECT id, MAX(word) AS word FROM INNER_ROWS GROUP BY id")
    given = {"mode": "append", "on_bad_row": "reject", "transforms_pre": [wrap]}
    assert copied(lane, query, **given) == [(7, "2")]
    target = connection_from_fields("copy", {"kind": "duckdb", "path": str(lane.folder / "copy.duckdb")})
    with closing(open_database(target).session()) as session:
        [(column, row)] = session.query("SELECT column_name, row_json FROM ematix_flow.rejects")
    assert (column, json.loads(row)) == ("id", {"id": "x", "word": "3"})


@pytest.mark.deep
def test_a_catalog_may_be_a_database(tmp_path: Path) -> None:
    fields = {
        "kind": "iceberg",
        "catalog_type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}",
        "warehouse": str(tmp_path / "warehouse"),
    }
    lane = Lane(fields, tmp_path, {"mode": "scd2", "ttl": timedelta(days=9)})
    lane.load(ROWS)
    lane.load([(1, "z", 0.5, "1", START)])
    assert lane.rows("id, word, is_current") == [("1", "a", "False"), ("1", "z", "True"), ("2", "b", "True")]


def newest(lane: Lane) -> str:
    """Give the version that the table has now."""
    from ematix_flow.connect.registry import system_of

    source: Any = system_of(lane.connection)
    return str(source.newest(lane.database().engine(), lane.table.schema, lane.table.name))  # type: ignore[attr-defined]


def copied(lane: Lane, what: Any, slot: str = "", **options: Any) -> list[tuple[Any, ...]]:
    """Load what a query of the lake gives into a DuckDB file and give its rows."""
    import duckdb

    columns, transforms = (COLUMNS[0], COLUMNS[1]), tuple(options.pop("transforms_pre", ()))
    target = connection_from_fields("copy", {"kind": "duckdb", "path": str(lane.folder / "copy.duckdb")})
    table = Table(
        "copies",
        "things",
        tuple(replace(column, type=kind()) for column, kind in zip(columns, (BigInt, Text), strict=True)),
    )
    pipeline = Pipeline(
        name="copy",
        function=lambda: what,
        targets=(TargetDeclaration(table, write(**({"mode": "truncate"} | options)), target),),
        source_connection=lane.connection,
        transforms_pre=transforms,
    )
    run_pipeline(pipeline, Options(slot=slot or str(what)))
    with closing(duckdb.connect(str(lane.folder / "copy.duckdb"))) as connection:
        return connection.execute("SELECT id, word FROM copies.things ORDER BY id").fetchall()
