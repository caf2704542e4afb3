"""Systems as frames of the format `ematix`: rows, types, pushed columns and conditions. A Connect session is tried in `warm/test_warm.py`."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from pyspark.sql import datasource as ds

from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.spark.session import session_settings
from ematix_flow.errors import FlowError, PlanError, RunError
from ematix_flow.plan.remote_tasks import Away
from ematix_flow.run.read.data_source import DatabaseReader, EmatixDataSource, register
from ematix_flow.run.spark.session import spark_session

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    (1, "ünï ✂", Decimal("19.90"), date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 678901), b"\x00\xff"),  # noqa: DTZ001
    (2, "", Decimal("-0.01"), date(1582, 10, 4), datetime(1900, 1, 1), b""),  # noqa: DTZ001
    (3, None, None, None, None, None),
]
TABLE = "CREATE TABLE orders (id BIGINT, name VARCHAR(40), amount DECIMAL(10,2), day DATE, moment {at}, raw {raw})"


def source(fields: dict[str, Any], **options: str) -> EmatixDataSource:
    """Return the data source as Spark makes it, in this process."""
    known = {"connections": {"it": connection_from_fields("it", fields)}, "folder": "."}
    given: Any = {"connection": "it", **options}
    return cast("EmatixDataSource", type("OfTest", (EmatixDataSource,), known)(given))


def rows_of(data_source: EmatixDataSource, *filters: ds.Filter) -> list[tuple[Any, ...]]:
    """Return the rows as tasks read them."""
    reader = data_source.reader(data_source.schema())
    if filters:
        assert list(reader.pushFilters(list(filters))) == list(filters)
    batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def empty_database(kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of an empty database."""
    if kind in ("postgres", "mysql"):
        return {"kind": kind, "url": request.getfixturevalue(f"{kind}_url")}
    return {"kind": kind, "path": str(request.getfixturevalue(f"{kind}_path"))}


def run(fields: dict[str, Any], *statements: str) -> None:
    session = open_database(connection_from_fields("it", fields)).session()
    try:
        for statement in statements:
            session.execute(statement)
    finally:
        session.close()


def fill(fields: dict[str, Any]) -> None:
    session = open_database(connection_from_fields("it", fields)).session()
    kinds = {"postgres": ("TIMESTAMP", "BYTEA"), "mysql": ("DATETIME(6)", "VARBINARY(20)")}
    at, raw = kinds.get(fields["kind"], ("TIMESTAMP", "BLOB"))
    try:
        session.execute(TABLE.format(at=at, raw=raw))
        for row in ROWS:
            session.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", row)
    finally:
        session.close()


SERVERS = [pytest.param(kind, marks=pytest.mark.service) for kind in ("postgres", "mysql")]


@pytest.mark.parametrize("kind", [*SERVERS, "duckdb"])
def test_a_table_is_read_with_its_types(kind: str, request: pytest.FixtureRequest) -> None:
    fields = empty_database(kind, request)
    fill(fields)
    opened = source(fields, table="orders")
    assert [field.dataType.simpleString() for field in opened.schema().fields] == [
        "bigint", "string", "decimal(10,2)", "date", "timestamp_ntz", "binary"
    ]  # fmt: skip
    assert rows_of(opened) == ROWS
    assert rows_of(source(fields, query="SELECT id FROM orders WHERE id < 3;", columns="id")) == [(1,), (2,)]


def test_sqlite_has_texts_for_times() -> None:
    fields = {"kind": "sqlite", "path": "here.sqlite"}
    with sqlite3.connect("here.sqlite") as database:
        database.execute("CREATE TABLE t (id INTEGER, amount NUMERIC(10,2), day DATE)")
        database.execute("INSERT INTO t VALUES (1, 19.9, '2026-01-02'), (2, 5, NULL)")
    assert rows_of(source(fields, table="t")) == [(1, Decimal("19.90"), "2026-01-02"), (2, Decimal("5.00"), None)]
    with sqlite3.connect("here.sqlite") as database:
        database.execute("INSERT INTO t VALUES (3, 1.999, NULL)")
    with pytest.raises(RunError, match="column 'amount' has a value that is no decimal128"):
        rows_of(source(fields, table="t"))


def test_files_of_every_format(tmp_path: Path) -> None:
    instants = pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("us", tz="UTC"))
    table = pa.table({"id": [1, 2], "name": ["ünï, ✂", None], "at": instants})
    for name, write in (("parquet", pq.write_table), ("orc", po.write_table)):
        (tmp_path / name).mkdir()
        write(table, str(tmp_path / name / f"one.{name}"))
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "one.csv").write_text('id,name\n007,"a ""b"", c"\n2,\n', "utf-8")
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "one.jsonl").write_text('{"id": 1, "name": "x"}\n{"id": 2.50}\n', "utf-8")
    fields = {"kind": "files", "path": str(tmp_path), "format": "csv"}
    for folder in ("parquet", "orc"):
        assert rows_of(source(fields, path=folder, columns='["name", "id"]')) == [("ünï, ✂", 1), (None, 2)]
        assert source(fields, path=folder).schema()["at"].dataType.simpleString() == "timestamp"
    assert rows_of(source(fields, path="csv")) == [("007", 'a "b", c'), ("2", None)]
    assert rows_of(source(fields, path="lines", columns="id")) == [("1",), ("2.50",)]
    (tmp_path / "csv" / "two.csv").write_text("id,name\n1,2,3\n", "utf-8")
    with pytest.raises(RunError, match="malformed line"):
        rows_of(source(fields, path="csv"))


def test_conditions_become_sql_where_they_mean_the_same(duckdb_path: Path) -> None:
    fields = {"kind": "duckdb", "path": str(duckdb_path)}
    fill(fields)
    reader = source(fields, table="orders", columns="id").reader(None)  # type: ignore[arg-type]
    assert isinstance(reader, DatabaseReader)
    reader = DatabaseReader(".", reader.system, reader.table_name, ("id", "name", "amount", "day", "moment"))
    at = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
    reader.pushFilters([
        ds.GreaterThan(("id",), 1),
        ds.In(("name",), ("a'b", None, "c")),
        ds.LessThanOrEqual(("amount",), Decimal("1.50")),
        ds.EqualTo(("day",), date(2026, 1, 2)),
        ds.LessThan(("moment",), at),
        ds.IsNotNull(("id",)),
        # From here on Spark is alone.
        ds.LessThan(("name",), "b"),
        ds.EqualTo(("name",), "a\\b"),
        ds.EqualTo(("id",), "1"),
        ds.StringStartsWith(("name",), "a"),
        ds.IsNull(("name",)),
        ds.Not(ds.EqualTo(("id",), 1)),
        ds.EqualTo(("moment", "deep"), 1),
    ])  # fmt: skip
    (part,) = reader.partitions()
    assert part.sql == (  # type: ignore[attr-defined]
        'SELECT "id", "name", "amount", "day", "moment" FROM "orders" WHERE "id" > 1 AND "name" IN (\'a\'\'b\', \'c\') '
        'AND "amount" <= 1.50 AND "day" = CAST(\'2026-01-02\' AS DATE) '
        'AND "moment" < CAST(\'2026-01-02 03:04:05\' AS TIMESTAMP) AND "id" IS NOT NULL'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "t", "tabel": "t"}, "no option 'tabel'"),
        ({"table": "t", "path": "p"}, "one of table, query and path"),
        ({"path": "p"}, "a database, which has no path"),
        ({"query": "SELECT 1 AS id", "columns": "idd"}, "no column 'idd'"),
        ({"connection": "others", "table": "t"}, "knows no connection 'others'"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], message: str, duckdb_path: Path) -> None:
    duckdb.connect(str(duckdb_path)).close()
    with pytest.raises(FlowError, match=message):
        source({"kind": "duckdb", "path": str(duckdb_path)}, **options).schema()


def test_lakes_are_left_to_spark(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="is a lake, which Spark reads itself"):
        source({"kind": "delta_local", "path": str(tmp_path)}, table="t").schema()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.service
@pytest.mark.usefixtures("spark")
def test_spark_sends_conditions_and_shows_no_secret(postgres_url: str) -> None:
    spark = spark_session(session_settings())
    fields = {"kind": "postgres", "url": postgres_url}
    # The third row can be read by nobody but PostgreSQL, and the last column by nobody at all.
    run(
        fields,
        "CREATE TABLE t (id INT, at TIMESTAMP, name TEXT)",
        "INSERT INTO t VALUES (1, '2026-01-01', 'a'), (2, '2026-01-02', 'b'), (3, 'infinity', 'c')",
        "CREATE VIEW v AS SELECT *, 1 / (id - id) AS broken FROM t",
    )
    connection = connection_from_fields("it", fields)
    register(spark, {"it": connection})
    reader = spark.read.format("ematix").option("connection", "it").option("table", "public.v")
    reader.option("columns", "id,at,name").load().createOrReplaceTempView("pushed_rows")
    frame = spark.sql("SELECT id FROM pushed_rows WHERE id < 3 AND name = 'a'")
    assert [tuple(row) for row in frame.collect()] == [(1,)]
    # Systems order texts differently, so Spark alone compares them, and the third row is read.
    with pytest.raises(Exception, match="infinite"):
        spark.sql("SELECT id FROM pushed_rows WHERE name < 'c'").collect()
    password = urlsplit(postgres_url).password
    shown = str(spark.sql("EXPLAIN EXTENDED SELECT * FROM pushed_rows WHERE id < 3").collect()[0][0])
    assert "ematix" in shown
    assert password
    assert password not in shown


def test_files_of_the_driver_are_refused_where_tasks_run_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id\n1\n")
    fields = {"kind": "object_store_local", "path": str(tmp_path), "format": "csv"}
    opened = source(fields, path="one.csv")
    assert rows_of(opened) == [("1",)]
    type(opened).away = Away("spark://h:7077")
    with pytest.raises(PlanError, match=r"tasks run on spark://h:7077 and cannot read"):
        opened.schema()


def test_wide_whole_numbers_of_duckdb_are_numbers(duckdb_path: Path) -> None:
    fields = {"kind": "duckdb", "path": str(duckdb_path)}
    run(fields, "CREATE TABLE wide AS SELECT 10::HUGEINT AS h, 18446744073709551615::UBIGINT AS u, 9::UHUGEINT AS w")
    opened = source(fields, table="wide")
    assert [field.dataType.simpleString() for field in opened.schema()] == [
        "decimal(38,0)",
        "decimal(20,0)",
        "decimal(38,0)",
    ]
    assert rows_of(opened) == [(Decimal(10), Decimal(18446744073709551615), Decimal(9))]
    run(fields, f"INSERT INTO wide SELECT {2**127 - 1}::HUGEINT, 0, 0")
    with pytest.raises(RunError, match="column 'h' has a value that is no decimal128"):
        rows_of(opened)
