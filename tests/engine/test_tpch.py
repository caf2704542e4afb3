"""SQL of the user at its hardest: the queries of TPC-H over files and lake tables, with the answers of DuckDB.

They run with `--deep` only: over files and Delta, and on Sail.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from bench.tpch import TABLES, generate, queries
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Date, Double, Text
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.run_log import SqliteRunLog
from tests.services.engines import CONNECT_MODE
from tests.services.sail import sail_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.table.types import ColumnType

SCALE = 0.01
QUERIES = queries()
CHOSEN = sorted(QUERIES)

pytestmark = [pytest.mark.spark, pytest.mark.deep]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tables of TPC-H as Parquet files."""
    return generate(tmp_path_factory.mktemp("tpch"), SCALE)


@pytest.fixture(scope="module")
def answers(data: Path) -> dict[str, pa.Table]:
    """Return what DuckDB answers."""
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.execute(f"CREATE VIEW {table} AS FROM read_parquet('{data}/{table}/*.parquet')")
        return {name: connection.sql(QUERIES[name]).to_arrow_table() for name in CHOSEN}


@pytest.fixture(scope="module")
def on_sail() -> Iterator[SparkSession]:
    """Return a session on a server of Sail, which speaks Spark's Connect protocol and needs no Java."""
    with sail_session() as session:
        yield session


@pytest.mark.parametrize("name", CHOSEN)
def test_queries_over_files_answer_as_duckdb_does(
    name: str,
    data: Path,
    answers: dict[str, pa.Table],
    warm_spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CONNECT_MODE, "1")
    files = connection_from_fields("tpch", {"kind": "files", "path": str(data), "format": "parquet"})
    assert loaded(name, files, answers[name], tmp_path, warm_spark) == rows_of(answers[name])


@pytest.mark.parametrize("name", CHOSEN)
def test_queries_on_sail_answer_as_duckdb_does(
    name: str,
    data: Path,
    answers: dict[str, pa.Table],
    on_sail: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CONNECT_MODE, "1")
    files = connection_from_fields("tpch", {"kind": "files", "path": str(data), "format": "parquet"})
    assert loaded(name, files, answers[name], tmp_path, on_sail) == rows_of(answers[name])


@pytest.mark.xdist_group("lakes")
@pytest.mark.usefixtures("quick_lakes")
@pytest.mark.parametrize("name", CHOSEN)
def test_queries_over_delta_answer_as_duckdb_does(
    name: str, delta: Path, answers: dict[str, pa.Table], tmp_path: Path
) -> None:
    lake = connection_from_fields("tpch", {"kind": "delta", "path": str(delta)})
    assert loaded(name, lake, answers[name], tmp_path, None) == rows_of(answers[name])


@pytest.fixture(scope="module")
def delta(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tables of TPC-H as Delta tables."""
    import pyarrow.dataset as ds
    from deltalake import write_deltalake

    folder = tmp_path_factory.mktemp("delta")
    for table in TABLES:
        write_deltalake(folder / table, ds.dataset(data / table).to_table())
    return folder


def loaded(name: str, source: Connection, answer: pa.Table, folder: Path, spark: Any) -> list[tuple[Any, ...]]:
    """Run a query as the source of a load and return the rows that are in the target then."""
    columns = tuple(Column(_type(field.type), name=field.name) for field in answer.schema)
    target = connection_from_fields("answers", {"kind": "duckdb", "path": str(folder / "answers.duckdb")})
    table = Table("tpch", name, columns)
    declared = TargetDeclaration(table, write(mode="append"), target)
    pipeline = Pipeline(name, lambda: QUERIES[name], (declared,), source_connection=source)
    result = run_pipeline(pipeline, Options(run_log=SqliteRunLog(folder / "run_log.db"), spark=spark))
    assert result["engine"] == "spark"
    with closing(duckdb.connect(folder / "answers.duckdb")) as connection:
        names = ", ".join(f'"{field.name}"' for field in answer.schema)
        return rows_of(connection.sql(f"SELECT {names} FROM tpch.{name}").to_arrow_table())


def _type(kind: pa.DataType) -> ColumnType:
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and not kind.scale):
        return BigInt()
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return Double()
    return Date() if pa.types.is_date(kind) else Text()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows in an order of their own, with as many digits of numbers as engines agree on."""
    return sorted((tuple(_plain(value) for value in row.values()) for row in table.to_pylist()), key=repr)


def _plain(value: Any) -> Any:
    # Spark gives the average of a decimal six digits after the point, DuckDB a floating point number.
    return f"{float(value):.4f}" if hasattr(value, "__float__") else value
