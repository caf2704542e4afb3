"""Frames in and out of every system: values, modes, orders and refusals; rows of this process are moved by it."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ematix_flow import (
    BigInt,
    Numeric,
    SQLiteConnection,
    Text,
    df,
    ematix,
    failpoints,
    nullable,
    pk,
    register_connection,
)
from ematix_flow.connect.types.frames import arrow_table
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.api.references import opened
from ematix_flow.errors import FlowError, MissingExtraError, RunError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.connections import Connection

AT = datetime(2024, 1, 2, 3, 4, 5, 678901, UTC)
FRAME = pl.DataFrame(
    {
        "id": [1, 2, 9_007_199_254_740_993],
        "name": ["ünï ✂", "", None],
        "amount": [Decimal("19.90"), Decimal("-0.01"), None],
        "score": [0.5, 1e300, None],
        "active": [True, False, None],
        "at": [AT, AT.replace(year=1900), None],
        "day": [date(2026, 1, 2), date(1582, 10, 4), None],
        "raw": [b"\x00\xff", b"", None],
        "doc": [{"a": 1, "b": [Decimal("1.50"), None]}, {"a": None, "b": []}, None],
        "kind": pl.Series(["x", "y", None], dtype=pl.Categorical),
        "hour": [time(1, 2, 3), time(23, 59, 59, 999999), None],
        "few": pl.Series([1, -2, None], dtype=pl.Int16),
    }
)
EXPECTED = FRAME.drop("doc", "kind", "hour", "few").to_dicts()
TEXTS = {
    "doc": ['{"a":1,"b":[1.50,null]}', '{"a":null,"b":[]}', None],
    "kind": ["x", "y", None],
    "hour": ["01:02:03", "23:59:59.999999", None],
    "few": [1, -2, None],
}

SERVERS = {"postgres": [pytest.mark.service], "mysql": [pytest.mark.service]}
DATABASES = [pytest.param(kind, marks=SERVERS.get(kind, [])) for kind in ("duckdb", "sqlite", "postgres", "mysql")]


def connection_to(kind: str, request: pytest.FixtureRequest) -> Connection:
    field = "url" if kind in SERVERS else "path"
    settings = {"kind": kind, field: str(request.getfixturevalue(f"{kind}_{field}"))}
    return register_connection(connection_from_fields("it", settings))


@pytest.fixture
def it(request: pytest.FixtureRequest) -> Connection:
    """Return a connection to an empty database of the kind of the test."""
    return connection_to(getattr(request, "param", "duckdb"), request)


def rows_of(connection: Connection, table: str = "shop.orders") -> list[dict[str, Any]]:
    return ematix.dataset(table, connection).to_arrow().sort_by("id").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("it", DATABASES, indirect=True)
def test_values_come_back_as_they_were_written(it: Connection) -> None:
    result = it.write_df(FRAME, "shop.orders", mode="append")
    assert (result["rows_inserted"], result["rows_rejected"], result["path"]) == (3, 0, "inferred_append")
    assert result["engine"] == "local"
    read = rows_of(it)
    texts = [{name: row.pop(name) for name in TEXTS} for row in read]
    if it.kind == "mysql":  # it has no type for truth, nor one for instants that reaches beyond 1970 to 2038
        for row in read:
            row["active"] = None if row["active"] is None else bool(row["active"])
            row["at"] = row["at"] and row["at"].replace(tzinfo=UTC)
    assert read == EXPECTED
    for number, row in enumerate(texts):
        doc = row.pop("doc")
        assert (doc or "").replace(" ", "").replace("1.50", "1.5") == (TEXTS["doc"][number] or "").replace(
            "1.50", "1.5"
        )  # type: ignore[union-attr]
        assert row == {name: TEXTS[name][number] for name in row}


@pytest.mark.slow
@pytest.mark.parametrize("it", DATABASES, indirect=True)
def test_every_mode_without_a_declared_table(it: Connection) -> None:
    first = pd.DataFrame({"id": [1, 2], "name": ["ada", "bob"]})
    second = pd.DataFrame({"id": [2, 3], "name": ["BOB", None]})
    assert it.write_df(first, "shop.merged", mode="merge", keys=["id"])["rows_inserted"] == 2
    merged = it.write_df(second, "shop.merged", mode="scd1", keys="id")
    assert (merged["path"], merged["rows_inserted"], merged["rows_updated"]) == ("inferred_scd1", 1, 1)
    assert [row["name"] for row in rows_of(it, "shop.merged")] == ["ada", "BOB", None]
    it.write_df(first, "shop.replaced", mode="append")
    it.write_df(first, "shop.replaced", mode="append")
    assert len(rows_of(it, "shop.replaced")) == 4
    assert it.write_df(second, "shop.replaced", mode="truncate")["path"] == "inferred_truncate"
    assert rows_of(it, "shop.replaced") == [{"id": 2, "name": "BOB"}, {"id": 3, "name": None}]


@pytest.mark.slow
@pytest.mark.parametrize("it", DATABASES, indirect=True)
def test_the_order_of_a_query_is_that_of_the_frame(it: Connection) -> None:
    few = pa.array(
        [index % 1000 / 8 for index in range(5000)], pa.float32()
    )  # read by a query around the query on MySQL
    it.write_df(pa.table({"id": pa.array(range(5000)), "few": few}), "shop.numbers")
    name = "shop_numbers" if it.kind == "sqlite" else "shop.numbers"
    frame = it.read_df(f"SELECT id, few FROM {name} ORDER BY id DESC -- the last first")
    assert frame["id"].to_list() == list(range(4999, -1, -1))


def declared() -> Any:
    columns = {"id": Annotated[BigInt, pk()], "name": Annotated[Text, nullable()], "amount": Numeric[10, 2]}  # type: ignore[misc]
    return ematix.table(schema="shop", name="orders")(type("Orders", (), {"__annotations__": columns}))


def test_a_declared_target_is_loaded_as_a_pipeline_loads_it(it: Connection) -> None:
    frame = pl.DataFrame({"amount": ["1.50", "many"], "id": [1, 2], "more": [0, 0], "name": ["a", "b"]})
    with pytest.raises(FlowError, match="many"):
        it.write_df(frame, "shop.orders", mode="merge", target=declared())
    result = it.write_df(frame, "shop.orders", mode="merge", target=declared(), on_bad_row="reject")
    assert (result["rows_inserted"], result["rows_rejected"], result["path"]) == (1, 1, "cross_db")
    (row,) = rows_of(it)
    assert (row["id"], row["amount"]) == (1, Decimal("1.50"))
    assert {"_loaded_at", "_batch_id"} <= row.keys()
    changed = it.write_df([{"id": 1, "name": "z", "amount": 2}], "shop.orders", mode="scd1", target=declared())
    assert (changed["rows_updated"], changed["rows_inserted"]) == (1, 0)


def test_versions_are_for_declared_tables(it: Connection) -> None:
    frame = pl.DataFrame({"id": [1], "name": ["a"], "amount": [1]})
    assert it.write_df(frame, "shop.orders", mode="scd2", target=declared())["rows_inserted"] == 1
    closed = it.write_df(frame.with_columns(name=pl.lit("b")), "shop.orders", mode="scd2", target=declared())
    assert closed["rows_closed"] == 1
    with pytest.raises(NotImplementedError, match="needs a declared table"):
        it.write_df(frame, "shop.other", mode="scd2", keys=["id"])


@pytest.mark.parametrize(
    ("frame", "name", "keywords", "message"),
    [
        (FRAME, "orders", {}, "no name of a table"),
        (FRAME, "shop.orders", {"mode": "merge"}, "has no keys"),
        (FRAME, "shop.orders", {"mode": "merge", "keys": ["nmae"]}, "did you mean 'name'"),
        (FRAME.drop("amount"), "shop.orders", {"target": declared}, "lacks columns of shop.orders: amount"),
        (FRAME, "shop.other", {"target": declared}, "target= is 'shop.orders'"),
        (object(), "shop.orders", {}, "object is no frame"),
        (pd.DataFrame({"a": [1, "b"]}), "shop.orders", {}, "values of several types"),
        (pl.DataFrame(), "shop.orders", {}, "no columns"),
    ],
)
def test_what_cannot_be_written_is_refused(
    frame: Any, name: str, keywords: dict[str, Any], message: str, it: Connection
) -> None:
    given = {key: value() if key == "target" else value for key, value in keywords.items()}
    with pytest.raises(FlowError, match=message):
        it.write_df(frame, name, **given)


@pytest.mark.slow
def test_an_existing_table_keeps_its_types_and_new_columns_are_drift(it: Connection) -> None:
    handle = opened(it)
    handle.execute("CREATE SCHEMA shop")
    handle.execute(
        "CREATE TABLE shop.orders (id INTEGER PRIMARY KEY, amount DECIMAL(6,2), note VARCHAR DEFAULT 'none')"
    )
    handle.close()
    it.write_df(pl.DataFrame({"id": [1], "amount": [1.5]}), "shop.orders")
    assert rows_of(it) == [{"id": 1, "amount": Decimal("1.50"), "note": "none"}]
    with pytest.raises(FlowError, match="new"):
        it.write_df(pl.DataFrame({"id": [2], "new": [1]}), "shop.orders")
    it.write_df(pl.DataFrame({"id": [2], "new": [1]}), "shop.orders", on_drift="evolve")
    assert rows_of(it)[1]["new"] == 1


@pytest.mark.slow
def test_a_frame_is_of_the_preferred_library(it: Connection) -> None:
    it.write_df(pl.DataFrame({"id": [9_007_199_254_740_993, None]}), "shop.orders")
    sql = "SELECT id FROM shop.orders ORDER BY id NULLS LAST"
    assert isinstance(it.read_df(sql), pl.DataFrame)
    assert isinstance(it.to_polars(sql), pl.DataFrame)
    assert isinstance(it.to_arrow(sql), pa.Table)
    assert it.read_df(sql, prefer="duckdb").fetchall() == [(9_007_199_254_740_993,), (None,)]
    numbers = it.to_pandas(sql)["id"]
    assert (str(numbers.dtype), numbers[0]) == ("Int64", 9_007_199_254_740_993)
    assert it.read_batches(sql).read_all().num_rows == 2
    with pytest.raises(ValueError, match="no library of frames"):
        it.read_df(sql, prefer="excel")
    with pytest.raises(ImportError, match="modin"):
        it.read_df(sql, prefer="modin")


@pytest.mark.slow
def test_without_polars_a_frame_is_one_of_pandas(it: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    it.write_df(pl.DataFrame({"id": [1]}), "shop.orders")
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "polars" else known(name))
    assert isinstance(it.read_df("SELECT 1 AS one"), pd.DataFrame)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"ematix-flow-spark\[df\]"):
        it.read_df("SELECT 1 AS one", prefer="polars")


@pytest.mark.slow
def test_a_lazy_frame_reads_when_it_is_collected(it: Connection) -> None:
    it.write_df(pl.DataFrame({"id": range(10), "name": ["n"] * 10}), "shop.orders")
    lazy = it.scan_df("SELECT * FROM shop.orders ORDER BY id").filter(pl.col("id") > 3).select("id")
    whole = ematix.dataset("shop.orders", it).lazy()
    it.write_df(pl.DataFrame({"id": [10], "name": ["n"]}), "shop.orders")
    assert lazy.head(2).collect()["id"].to_list() == [4, 5]
    assert whole.select(pl.col("id").sum()).collect().item() == 55


@pytest.mark.slow
def test_queries_that_are_none_are_refused(it: Connection) -> None:
    it.write_df(pl.DataFrame({"id": [1]}), "shop.orders")
    for sql, message in (
        ("SELECT 1 AS a, 2 AS a", "2 columns with the name 'a'"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELECT 1; SELECT 2", "not one query"),
        ("", "empty text"),
    ):
        with pytest.raises(FlowError, match=message):
            it.read_df(sql)
    with pytest.raises(TypeError, match="a query is text"):
        it.read_df(1)


def test_whole_numbers_of_a_decimal_column_of_sqlite_are_decimals(sqlite_path: Path) -> None:
    it = SQLiteConnection(name="it", path=str(sqlite_path))
    with closing(sqlite3.connect(sqlite_path)) as file:
        file.executescript("CREATE TABLE t (price DECIMAL(10,2)); INSERT INTO t VALUES (7), (NULL), (-12345678)")
    assert it.read_df("SELECT price FROM t")["price"].to_list() == [Decimal(7), None, Decimal(-12345678)]
    with closing(sqlite3.connect(sqlite_path)) as file:
        file.executescript("INSERT INTO t VALUES (123456789)")
    with pytest.raises(RunError, match="no decimal128"):
        it.read_df("SELECT price FROM t")


def test_a_date_of_sqlite_that_is_none_is_an_error(sqlite_path: Path) -> None:
    it = register_connection(connection_from_fields("it", {"kind": "sqlite", "path": str(sqlite_path)}))
    handle = opened(it)
    handle.execute("CREATE TABLE t (day DATE)")
    handle.execute("INSERT INTO t VALUES (20240102)")
    handle.close()
    with pytest.raises(RunError, match="'day' has a value that is no date32"):
        it.read_df("SELECT day FROM t")
    assert it.read_df("SELECT CAST(day AS TEXT) AS day FROM t")["day"].to_list() == ["20240102"]


@pytest.mark.slow
@pytest.mark.parametrize("frame_format", ["parquet", "csv"])
def test_files_are_written_and_read(frame_format: str, tmp_path: Path) -> None:
    fields = {"kind": "object_store_local", "path": str(tmp_path / "lake"), "format": frame_format}
    it = register_connection(connection_from_fields("it", fields))
    assert it.write_df(pl.DataFrame({"id": [1, 2]}), "shop.orders")["rows_inserted"] == 2
    it.write_df(pl.DataFrame({"id": [3]}), "shop.orders")
    read = it.read_df("shop/orders")
    assert sorted(map(int, read["id"])) == [1, 2, 3]
    assert ematix.dataset("shop.orders", it).to_arrow().num_rows == 3
    with pytest.raises(NotImplementedError):
        it.write_df(pl.DataFrame({"id": [1]}), "shop.orders", mode="merge", keys=["id"])


@pytest.mark.slow
def test_a_dataset_is_named_by_its_pipeline_or_its_table(it: Connection) -> None:
    orders = declared()

    @ematix.pipeline(target=orders, source_connection="it", target_connection="it", mode="append")
    def load_orders(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name, 2.5 AS amount"

    load_orders()
    for what in ("load_orders", load_orders, "shop.orders", orders):
        data = ematix.dataset(what)
        assert data.select("id", "amount").to_arrow().to_pylist() == [{"id": 1, "amount": Decimal("2.50")}]
    assert data.schema.names[:3] == ["id", "name", "amount"]
    assert duckdb.from_arrow(pa.table(data)).aggregate("count(*)").fetchall() == [(1,)]
    assert df.to_polars(data).height == df.to_pandas(data).shape[0] == 1
    with pytest.raises(KeyError, match="neither a declared pipeline nor a table"):
        ematix.dataset("load_ordres")


class UnknownFrame:
    """A frame of a library that nobody has heard of, which knows Arrow's protocol."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"id": [1]}).__arrow_c_stream__(requested_schema)


@pytest.mark.slow
def test_frames_of_any_library_are_known(it: Connection) -> None:
    import narwhals as nw

    frames = [
        UnknownFrame(),
        pl.LazyFrame({"id": [1]}),
        duckdb.sql("SELECT 1 AS id"),
        nw.from_native(pd.DataFrame({"id": [1]})),
        pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), iter([pa.record_batch({"id": [1]})])),
    ]
    for number, frame in enumerate(frames, start=1):
        it.write_df(frame, "shop.orders")
        assert it.read_df("SELECT * FROM shop.orders").height == number
    assert arrow_table("text") == "text"


@pytest.mark.slow
def test_handles_have_the_same_methods(it: Connection) -> None:
    handle = opened(it)
    try:
        handle.write_df(pl.DataFrame({"id": [1, 2]}), "shop.orders")
        assert df.read_df(handle, "SELECT SUM(id) AS total FROM shop.orders")["total"].to_list() == [Decimal(3)]
        assert df.from_pandas(handle, pd.DataFrame({"id": [2]}), "shop.orders", mode="truncate")["rows_inserted"] == 1
        assert handle.to_pandas("SELECT id FROM shop.orders")["id"].tolist() == [2]
    finally:
        handle.close()


@pytest.mark.slow
def test_a_pipeline_may_return_a_frame_of_any_library(it: Connection) -> None:
    @ematix.pipeline(target=declared(), source_connection="it", target_connection="it", mode="merge")
    def from_relation(conn: Any) -> Any:
        return duckdb.sql("SELECT 1 AS id, 'a' AS name, 2.5 AS amount")

    assert from_relation()["rows_inserted"] == 1
    assert rows_of(it)[0]["amount"] == Decimal("2.50")


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["ddl.after_expand", "stage.collected", "commit.before_commit", "commit.after_commit"]
)
def test_a_write_that_died_is_finished_by_the_same_call(point: str, it: Connection) -> None:
    frame = pl.DataFrame({"id": [1, 2], "name": ["a", None]})
    failpoints.arm(f"{point}=raise@1")
    try:
        with pytest.raises(failpoints.FailpointError):
            it.write_df(frame, "shop.orders")
    finally:
        failpoints.arm("")
    assert it.write_df(frame, "shop.orders")["rows_inserted"] == 2
    assert rows_of(it) == frame.to_dicts()
    it.write_df(frame, "shop.orders")
    assert len(rows_of(it)) == 4
