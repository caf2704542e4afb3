"""Declared tables over tables that were there before: types that take the declared values are written, others are drift."""

from __future__ import annotations

import decimal
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.registry import target_of
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table import types
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.engine import run_pipeline
from ematix_flow.engine.api.ensure_tables import ensure_table
from ematix_flow.engine.api.sync import sync
from ematix_flow.errors import DriftError, FlowError
from tests.engine.existing_tables import POSTGRES_TYPES, existing_on

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.table.types import ColumnType
    from tests.engine.existing_tables import Existing

Declared = tuple[str, str, "ColumnType", list[tuple[Any, str]], list[Any]]
"""System, type of the column, declared type, values together with what the database shows, and what it refuses."""

POINT, FINE = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - no zone is meant
INSTANT, LATER = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
DIGITS = decimal.Decimal

WRITTEN: tuple[Declared, ...] = (
    ("duckdb", "TINYINT", types.SmallInt(), [(-128, "-128"), (127, "127")], [128]),
    ("duckdb", "TINYINT", types.BigInt(), [(5, "5")], [2**40]),
    ("duckdb", "UTINYINT", types.Integer(), [(255, "255")], [256, -1]),
    ("duckdb", "USMALLINT", types.Integer(), [(65535, "65535")], [-1]),
    ("duckdb", "UINTEGER", types.BigInt(), [(2**32 - 1, "4294967295")], [2**32]),
    ("duckdb", "UBIGINT", types.BigInt(), [(2**63 - 1, "9223372036854775807")], [-1]),
    ("duckdb", "UBIGINT", types.Numeric(20, 0), [(DIGITS(2**64 - 1), "18446744073709551615")], [DIGITS(2**64)]),
    ("duckdb", "HUGEINT", types.Numeric(38, 0), [(DIGITS("-7"), "-7")], []),
    ("duckdb", "TIMESTAMP_S", types.Timestamp(), [(POINT, "2026-01-02 03:04:05")], [FINE]),
    ("duckdb", "TIMESTAMP_MS", types.Timestamp(), [(POINT, "2026-01-02 03:04:05")], [FINE]),
    ("duckdb", "TIMESTAMP_NS", types.Timestamp(), [(FINE, "2026-01-02 03:04:05.678901")], []),
    ("duckdb", "TIME", types.Text(), [("23:59:59", "23:59:59")], ["25:00"]),
    ("duckdb", "INTEGER[]", types.Text(), [("[1, 2]", "[1, 2]")], ["[x]"]),
    ("sqlite", "", types.BigInt(), [(5, "integer 5")], []),
    ("sqlite", "", types.Text(), [("5", "text 5")], []),
    ("sqlite", "", types.Numeric(10, 2), [(DIGITS("1.25"), "real 1.25")], []),
    ("sqlite", "", types.Numeric(38, 10), [(DIGITS("1.5"), "text 1.5000000000")], []),
    ("sqlite", "", types.Timestamp(), [(FINE, "text 2026-01-02 03:04:05.678901")], []),
    ("sqlite", "", types.Boolean(), [(True, "integer 1")], []),
    ("sqlite", "TINYINT", types.SmallInt(), [(5, "integer 5")], []),
    ("sqlite", "UNSIGNED BIG INT", types.BigInt(), [(2**62, f"integer {2**62}")], []),
    ("sqlite", "NVARCHAR(5)", types.Text(), [("5", "text 5")], []),
    ("sqlite", "DATETIME", types.Timestamp(), [(FINE, "text 2026-01-02 03:04:05.678901")], []),
    ("sqlite", "DECIMAL(10,2)", types.Numeric(10, 2), [(DIGITS("1.25"), "real 1.25")], []),
    ("sqlite", "DOUBLE PRECISION", types.Double(), [(0.5, "real 0.5")], []),
    ("sqlite", "BOOL", types.Boolean(), [(False, "integer 0")], []),
    ("postgres", "character(3)", types.String(3), [("abc", "abc")], []),
    ("postgres", "numeric", types.Numeric(20, 10), [(DIGITS("1.5"), "1.5000000000")], []),
    ("postgres", "numeric(50,2)", types.Numeric(38, 2), [(DIGITS("1.25"), "1.25")], []),
    ("postgres", "timestamp(3)", types.Timestamp(), [(POINT, "2026-01-02 03:04:05")], [FINE]),
    ("postgres", "timestamptz(0)", types.TimestampTZ(), [(INSTANT, "2026-01-02 03:04:05+00")], [LATER]),
    ("postgres", "short_code", types.String(3), [("abc", "abc")], ["ab1"]),
    ("postgres", "integer[]", types.Text(), [("[1, null]", "{1,NULL}"), ("{4,5}", "{4,5}")], ["[1, x]", "{x}"]),
    ("postgres", "text[]", types.Text(), [('["a, b"]', '{"a, b"}')], ["{a"]),
    ("postgres", "interval", types.Text(), [("1 day 2 hours", "1 day 02:00:00")], ["soon"]),
    ("postgres", "int4range", types.Text(), [("[1,5)", "[1,5)")], ["[5,1)"]),
    ("postgres", "tstzrange", types.Text(), [("[2026-01-01 00:00+00,)", '["2026-01-01 00:00:00+00",)')], ["x"]),
    ("postgres", "inet", types.Text(), [("::1", "::1/128")], ["10.0.0.300"]),
    ("mysql", "TINYINT", types.SmallInt(), [(-128, "-128"), (127, "127")], [128]),
    ("mysql", "TINYINT UNSIGNED", types.Integer(), [(255, "255")], [256, -1]),
    ("mysql", "MEDIUMINT", types.Integer(), [(8388607, "8388607")], [8388608]),
    ("mysql", "INT UNSIGNED", types.BigInt(), [(2**32 - 1, "4294967295")], [2**32]),
    ("mysql", "BIGINT UNSIGNED", types.BigInt(), [(2**63 - 1, "9223372036854775807")], [-1]),
    ("mysql", "BIGINT UNSIGNED", types.Numeric(20, 0), [(DIGITS(2**64 - 1), "18446744073709551615")], [DIGITS(2**64)]),
    ("mysql", "DECIMAL(10,2) UNSIGNED", types.Numeric(10, 2), [(DIGITS("1.25"), "1.25")], [DIGITS(-1)]),
    ("mysql", "YEAR", types.Integer(), [(2026, "2026")], [26]),
    ("mysql", "BIT(1)", types.Boolean(), [(True, "1"), (False, "0")], []),
    ("mysql", "TINYTEXT", types.Text(), [("a" * 255, "a" * 255)], ["a" * 256]),
    ("mysql", "TEXT", types.Text(), [("\u2702", "\u2702")], ["a" * 65536]),
    ("mysql", "TEXT", types.String(40), [("x", "x")], []),
    ("mysql", "CHAR(3)", types.Text(), [("abc", "abc")], ["abcd"]),
    ("mysql", "DATETIME", types.Timestamp(), [(POINT, "2026-01-02 03:04:05")], [FINE]),
    ("mysql", "DATETIME", types.TimestampTZ(), [(INSTANT, "2026-01-02 03:04:05")], [LATER]),
    ("mysql", "DATETIME(3)", types.Timestamp(), [(POINT, "2026-01-02 03:04:05.000")], [FINE]),
    ("mysql", "TIMESTAMP NULL", types.TimestampTZ(), [(INSTANT, "2026-01-02 03:04:05")], [LATER]),
    ("mysql", "BINARY(3)", types.Bytes(), [(b"abc", "abc")], [b"ab", b"abcd"]),
    ("mysql", "BLOB", types.Bytes(), [(b"ab", "ab")], [b"a" * 65536]),
    ("mysql", "TIME", types.Text(), [("23:59:59", "23:59:59")], ["noon"]),
    ("mysql", "ENUM('low','7')", types.Text(), [("7", "7")], ["1"]),
)

DRIFT: tuple[tuple[str, str, ColumnType], ...] = (
    ("duckdb", "INTEGER", types.BigInt()),
    ("duckdb", "UTINYINT", types.Numeric(10, 2)),
    ("duckdb", "TINYINT", types.Text()),
    ("duckdb", "TIMESTAMP_S", types.TimestampTZ()),
    ("duckdb", "TIME", types.BigInt()),
    ("sqlite", "TEXT", types.BigInt()),
    ("sqlite", "NVARCHAR(5)", types.BigInt()),
    ("sqlite", "DATETIME", types.Text()),
    ("sqlite", "DECIMAL(10,2)", types.Numeric(12, 4)),
    ("sqlite", "DECIMAL", types.Numeric(38, 10)),
    ("sqlite", "MONEY", types.Text()),
    ("postgres", "integer", types.BigInt()),
    ("postgres", "numeric", types.Text()),
    ("postgres", "numeric(50,2)", types.Numeric(20, 4)),
    ("postgres", "timestamp(3)", types.TimestampTZ()),
    ("postgres", "integer[]", types.BigInt()),
    ("postgres", "short_code", types.Text()),
    ("mysql", "INT", types.BigInt()),
    ("mysql", "TINYINT(1)", types.SmallInt()),
    ("mysql", "INT UNSIGNED", types.Numeric(10, 2)),
    ("mysql", "DECIMAL(10,2) UNSIGNED", types.Numeric(10, 4)),
    ("mysql", "TEXT", types.BigInt()),
    ("mysql", "VARCHAR(40)", types.Text()),
    ("mysql", "FLOAT(7,2)", types.Float()),
    ("mysql", "TIMESTAMP NULL", types.Timestamp()),
)

SHOWN = {
    "duckdb": "CAST(v AS VARCHAR)",
    "sqlite": "typeof(v) || ' ' || v",
    "postgres": "CAST(v AS TEXT)",
    "mysql": "CAST(CASE WHEN '{0}' LIKE 'BIT%' THEN v + 0 ELSE v END AS CHAR)",
}


FIRST = frozenset(
    {
        *(("duckdb", native) for native in ("TINYINT", "TIMESTAMP_S")),
        *(("sqlite", native) for native in ("", "DATETIME")),
        *(("postgres", native) for native in ("integer[]", "timestamp(3)")),
        *(("mysql", native) for native in ("TINYINT", "INT UNSIGNED")),
    }
)
"""What `make test` tries; the others are variations."""


def _given(cases: tuple[Any, ...], first: frozenset[tuple[str, str]] = FIRST) -> Any:
    services, deep = pytest.mark.service, pytest.mark.deep
    return [
        pytest.param(
            case,
            id=f"{case[0]} {case[1]} {case[2]}",
            marks=[
                *([services] if case[0] in ("postgres", "mysql") else []),
                *([] if case[:2] in first else [deep]),
            ],
        )
        for case in cases
    ]


def _declared(existing: Existing, native: str, kind: ColumnType) -> Table:
    """Create the table with a column of one type and what loads add to declared tables, and declare it with another type."""
    database = existing.database
    at, batch = database.ddl_type(types.TimestampTZ()), database.ddl_type(types.UUID())
    stamps = f"_loaded_at {at} NOT NULL, _batch_id {batch} NOT NULL"
    existing.run(f"CREATE TABLE things (id BIGINT NOT NULL PRIMARY KEY, v {native}, {stamps})")
    columns = (Column(types.BigInt(), primary_key=True, name="id"), Column(kind, name="v"))
    return Table(existing.schema, "things", columns)


@pytest.mark.slow
@pytest.mark.parametrize("case", _given(WRITTEN))
def test_declared_values_are_written_and_compared_and_what_does_not_fit_is_refused_by_row(
    case: Declared, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    system, native, kind, good, bad = case
    existing = existing_on(system, tmp_path, request)
    existing.run(*(POSTGRES_TYPES if system == "postgres" else ()))
    table, connection = _declared(existing, native, kind), existing.connection
    rows = [{"id": number, "v": value} for number, (value, _) in enumerate(good)] + [{"id": 100, "v": None}]
    first = sync(target=table, source=rows, target_connection=connection, mode="merge")
    assert first["rows_inserted"] == len(rows)
    again = sync(target=table, source=rows, target_connection=connection, mode="merge")
    assert (again["rows_updated"], again["rows_unchanged"]) == (0, len(rows))
    shown = SHOWN[system].format(native.replace("'", ""))
    expected = {**{number: text for number, (_, text) in enumerate(good)}, 100: None}
    assert dict(existing.rows(f"SELECT id, {shown} FROM things")) == expected
    for value in bad:
        wrong = [{"id": 200, "v": good[0][0]}, {"id": 201, "v": value}]
        with pytest.raises(FlowError, match=r'\n  v: refused; row \{"id": 201') as refused:
            sync(target=table, source=wrong, target_connection=connection, mode="append")
        assert not isinstance(refused.value, DriftError)
    assert dict(existing.rows(f"SELECT id, {shown} FROM things")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("case", _given(DRIFT))
def test_a_column_that_means_something_else_is_still_drift(
    case: tuple[str, str, ColumnType], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    system, native, kind = case
    existing = existing_on(system, tmp_path, request)
    existing.run(*(POSTGRES_TYPES if system == "postgres" else ()))
    table = _declared(existing, native, kind)
    with pytest.raises(DriftError, match="column 'v' is "):
        sync(target=table, source=[{"id": 1, "v": None}], target_connection=existing.connection, mode="append")


INSIDE = (
    ("duckdb", "UTINYINT", types.Integer()),
    ("postgres", "int4range", types.Text()),
    ("mysql", "TINYINT UNSIGNED", types.Integer()),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", _given(INSIDE, frozenset({INSIDE[0][:2], INSIDE[1][:2]})))
@pytest.mark.parametrize("path", ["same_db", "cross_db"])
def test_rows_of_the_same_database_are_written_too(
    path: str, case: tuple[str, str, ColumnType], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    system, native, kind = case
    existing = existing_on(system, tmp_path, request)
    table = _declared(existing, native, kind)
    good, bad = ("'[1,5)'", "'[5,1)'") if system == "postgres" else ("200", "300")
    existing.run("CREATE TABLE came (id BIGINT, v VARCHAR(20))", f"INSERT INTO came VALUES (1, {good}), (2, NULL)")
    target = TargetDeclaration(table, write("merge"), existing.connection)
    pipeline = Pipeline(
        name="came",
        function=lambda: "SELECT id, v FROM came",
        targets=(target,),
        source_connection=existing.connection,
        force_path=path,
    )
    assert run_pipeline(pipeline)["rows_inserted"] == 2
    assert run_pipeline(pipeline)["rows_unchanged"] == 2
    existing.run(f"INSERT INTO came VALUES (3, {bad})")
    with pytest.raises(FlowError, match=r'v: refused; row \{"id": 3'):
        run_pipeline(pipeline)
    assert existing.rows("SELECT COUNT(*) FROM things") == [(2,)]


@pytest.mark.slow
def test_refused_values_become_rejects(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    existing = existing_on("duckdb", tmp_path, request)
    table = _declared(existing, "UTINYINT", types.Integer())
    rows = [{"id": 1, "v": 255}, {"id": 2, "v": 256}]
    done = sync(target=table, source=rows, target_connection=existing.connection, mode="append", on_bad_row="reject")
    assert (done["rows_inserted"], done["rows_rejected"]) == (1, 1)


@pytest.mark.service
def test_evolve_widens_what_can_be_widened(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    existing = existing_on("mysql", tmp_path, request)
    table = _declared(existing, "TINYINT", types.BigInt())
    rows = [{"id": 1, "v": 2**40}]
    sync(target=table, source=rows, target_connection=existing.connection, mode="append", on_drift="evolve")
    assert existing.rows("SELECT v FROM things") == [(2**40,)]
    with closing(target_of(existing.connection).session()) as session:
        existing_table = existing.database.find_table(session, existing.database.table_name(table.schema, table.name))
    assert existing_table is not None
    assert {column.name: column.type for column in existing_table.columns}["v"] == "BIGINT"


def test_ensure_table_says_that_such_a_table_matches(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    existing = existing_on("sqlite", tmp_path, request)
    table = _declared(existing, "", types.Text())
    assert ensure_table(table, existing.connection) == {"action": "matched", "differences": []}
