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
from tests.lakes.targets import COLUMNS, START, TargetTable, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lakes.targets import Row

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

ROWS: list[Row] = [(1, "a", 0.5, "1", START), (2, "b", None, None, START)]
LAKES = ("delta_local", "iceberg")


@pytest.fixture
def target_table(request: pytest.FixtureRequest, tmp_path: Path) -> TargetTable:
    """Return a lake table that rows are appended to: an Iceberg one, which is quicker, unless a test asks for others."""
    kind = getattr(request, "param", "iceberg")
    return TargetTable(lake_fields(kind, tmp_path), tmp_path, {"mode": "append"})


every_lake = pytest.mark.parametrize("target_table", LAKES, indirect=True)


def test_a_dry_run_counts_and_leaves_nothing_behind(target_table: TargetTable) -> None:
    target_table.give(ROWS)
    simulated = dry_run_pipeline(target_table.pipeline("id, word, share, amount, at")).targets[0]
    assert simulated.dry_run_error is None
    assert simulated.dry_run_rows_affected == {
        "rows_staged": 2,
        "rows_inserted": 2,
        "rows_deleted": 0,
        "rows_rejected": 0,
    }
    assert [path.name for path in target_table.folder.iterdir()] == ["source.db"]
    text = preview_pipeline(target_table.pipeline()).text(verbose=True)
    assert "INSERT INTO" in text
    assert "is created" in text or "not known" in text


def test_bad_rows_fail_the_load_or_become_rejects_that_can_be_replayed(target_table: TargetTable) -> None:
    bad: list[Row] = [(1, "a", 0.5, "none", START), (2, "b", None, "2", START)]
    with pytest.raises(BadRowsError):
        target_table.load(bad)
    target_table.options = {"mode": "append", "on_bad_row": "reject"}
    result = target_table.load(bad)
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 1)
    (reject,) = list_rejects(target_table.pipeline())
    assert reject.column_name == "amount"
    target_table.table = replace(
        target_table.table, columns=(*COLUMNS[:3], Column(Text(), nullable=True, name="amount"), COLUMNS[4])
    )
    with pytest.raises(DriftError, match="amount"):
        replay_rejects(target_table.pipeline())
    assert target_table.rows("id") == [("2",)]


@every_lake
def test_a_table_is_partitioned_as_its_class_says(target_table: TargetTable) -> None:
    target_table.table = replace(target_table.table, partition_columns=("word",))
    target_table.load(ROWS)
    folders = {path.name for path in target_table.folder.rglob("word=*")}
    assert folders == {"word=a", "word=b"}
    assert len(target_table.rows()) == 2


@every_lake
def test_a_table_is_read_at_the_version_that_is_asked_for(target_table: TargetTable) -> None:
    target_table.load(ROWS)
    earlier = newest(target_table)
    target_table.load([(3, "c", None, None, START)])
    schema, name = target_table.table.schema, target_table.table.name
    assert copied(target_table, "SELECT id, word FROM shop.things WHERE id > 1") == [(2, "b"), (3, "c")]
    old = Source.delta(target_table.connection, schema, name, version=earlier)
    assert copied(target_table, old) == [(1, "a"), (2, "b")]
    assert copied(target_table, f"SELECT t.id, t.word FROM shop.things VERSION AS OF {earlier} AS t") == [
        (1, "a"),
        (2, "b"),
    ]
    with pytest.raises(RunError, match=r"no (Delta|Iceberg) table"):
        copied(target_table, "SELECT id, word FROM shop.nothing")


@pytest.mark.deep
@every_lake
@pytest.mark.parametrize("returned", ["shop/things", "shop.things"])
def test_a_function_may_return_the_folder_of_a_table(target_table: TargetTable, returned: str, tmp_path: Path) -> None:
    target_table.load(ROWS)
    target = connection_from_fields("copy", {"kind": "sqlite", "path": str(tmp_path / "copy.db")})
    pipeline = Pipeline(
        name="copies",
        function=lambda: returned,
        targets=(TargetDeclaration(replace(target_table.table, schema="main"), write("append"), target),),
        source_connection=target_table.connection,
    )
    assert "lake" in preview_pipeline(pipeline).text()
    assert run_pipeline(pipeline, Options())["rows_inserted"] == len(ROWS)


def test_an_incremental_load_reads_only_what_is_new_in_a_lake(target_table: TargetTable) -> None:
    target_table.load(ROWS)
    query = "SELECT id, word FROM shop.things"
    assert copied(target_table, query, mode="append", incremental_column="id", slot="1") == [(1, "a"), (2, "b")]
    target_table.load([(3, "c", None, None, START)])
    assert copied(target_table, query, mode="append", incremental_column="id", slot="2") == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]


@pytest.mark.deep
@every_lake
def test_sql_around_rows_of_a_lake_sees_those_that_fit(target_table: TargetTable) -> None:
    target_table.load([(1, "7", None, None, START), (2, "7", None, None, START), (3, "x", None, None, START)])
    query = "SELECT word AS id, CAST(id AS STRING) AS word FROM shop.things"
    wrap = Wrap("SELECT id, MAX(word) AS word FROM INNER_ROWS GROUP BY id")
    given = {"mode": "append", "on_bad_row": "reject", "transforms_pre": [wrap]}
    assert copied(target_table, query, **given) == [(7, "2")]
    target = connection_from_fields("copy", {"kind": "duckdb", "path": str(target_table.folder / "copy.duckdb")})
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
    target_table = TargetTable(fields, tmp_path, {"mode": "scd2", "ttl": timedelta(days=9)})
    target_table.load(ROWS)
    target_table.load([(1, "z", 0.5, "1", START)])
    assert target_table.rows("id, word, is_current") == [("1", "a", "False"), ("1", "z", "True"), ("2", "b", "True")]


def newest(target_table: TargetTable) -> str:
    """Return the version that the table has now."""
    from ematix_flow.connect.registry import system_of

    source: Any = system_of(target_table.connection)
    return str(source.newest(target_table.database().engine(), target_table.table.schema, target_table.table.name))  # type: ignore[attr-defined]


def copied(target_table: TargetTable, what: Any, slot: str = "", **options: Any) -> list[tuple[Any, ...]]:
    """Load what a query of the lake gives into a DuckDB file and return its rows."""
    import duckdb

    columns, transforms = (COLUMNS[0], COLUMNS[1]), tuple(options.pop("transforms_pre", ()))
    target = connection_from_fields("copy", {"kind": "duckdb", "path": str(target_table.folder / "copy.duckdb")})
    table = Table(
        "copies",
        "things",
        tuple(replace(column, type=kind()) for column, kind in zip(columns, (BigInt, Text), strict=True)),
    )
    pipeline = Pipeline(
        name="copy",
        function=lambda: what,
        targets=(TargetDeclaration(table, write(**({"mode": "truncate"} | options)), target),),
        source_connection=target_table.connection,
        transforms_pre=transforms,
    )
    run_pipeline(pipeline, Options(slot=slot or str(what)))
    with closing(duckdb.connect(str(target_table.folder / "copy.duckdb"))) as connection:
        return connection.execute("SELECT id, word FROM copies.things ORDER BY id").fetchall()
