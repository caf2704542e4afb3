"""What goes into SQLite and comes out again: checks in place of types, reading without types, damaged parts."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ematix_flow.connect.base.session import Split
from ematix_flow.connect.base.stage import StageColumn, StageSpec
from ematix_flow.connect.sqlite.database import READ_ROWS, SQLite
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.connection.registry import SQLiteConnection
from ematix_flow.declare.table.types import (
    JSON,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
)
from ematix_flow.errors import CommitError
from ematix_flow.records import TaskReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.sqlite.session import SQLiteSession
    from ematix_flow.declare.table.types import ColumnType

ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def database(sqlite_path: Path) -> SQLite:
    return SQLite(SQLiteConnection("lite", path=str(sqlite_path)))


@pytest.fixture
def session(database: SQLite) -> Iterator[SQLiteSession]:
    with closing(database.session()) as opened:
        yield opened


@pytest.mark.parametrize(
    ("column_type", "good", "bad"),
    [
        (SmallInt(), [5, "5", -(2**15)], [2**15, 5.5, "five", b"5"]),
        (Integer(), [2**31 - 1], [2**31, ""]),
        (BigInt(), [2**63 - 1, -(2**63)], [1.5, 1e30, "x"]),
        (Double(), [1.5, 5, float("inf")], ["x", b"x"]),
        (Boolean(), [True, 0], [2, "true"]),
        (Text(), ["", "x"], [b"x"]),
        (String(3), ["abc", "ééé", ""], ["abcd", b"abc"]),
        (Date(), ["2026-01-01"], ["2026-1-1", 20260101]),
        (Timestamp(), ["2026-01-01 00:00:00.000000"], ["2026-01-01T00:00:00.000000", "2026-01-01 00:00:00"]),
        (TimestampTZ(), ["2026-01-01 00:00:00.000000+00:00"], ["2026-01-01 00:00:00.000000+02:00"]),
        (JSON(), ["{}", "123", "null"], ["{", ""]),
        (UUID(), [ZERO], ["x", b"x"]),
        (Bytes(), [b"", b"\0"], ["x", 5]),
        (Numeric(5, 2), ["1.50", -999.99], ["x", 1000, b"1"]),
        (Numeric(20, 2), ["1.50", "-999999999999999999.99"], ["x", "1999999999999999999.99", b"x"]),
    ],
    ids=str,
)
def test_checks_stand_in_for_types(
    database: SQLite, session: SQLiteSession, column_type: ColumnType, good: list[Any], bad: list[Any]
) -> None:
    column = StageColumn('a "b" {c}', column_type)
    ddl = f'"a ""b"" {{c}}" {database.ddl_type(column_type)} CHECK ({database.check_clause(column)})'
    session.execute(f"CREATE TABLE t ({ddl})")
    for value in (None, *good):
        session.execute("INSERT INTO t VALUES (?)", (value,))
    for value in bad:
        with pytest.raises(sqlite3.IntegrityError):
            session.execute("INSERT INTO t VALUES (?)", (value,))
    assert session.query("SELECT COUNT(*) FROM t") == [(len(good) + 1,)]


def test_a_null_key_is_refused_and_not_made_up(database: SQLite, session: SQLiteSession) -> None:
    session.execute(f"CREATE TABLE t (id {database.ddl_type(Integer())} NOT NULL, PRIMARY KEY (id))")
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        session.execute("INSERT INTO t VALUES (NULL)")


def test_columns_are_described_by_declaration_or_by_their_first_values(
    database: SQLite, session: SQLiteSession
) -> None:
    session.execute(
        "CREATE TABLE t (i BIGINT, v VARCHAR(5), at TIMESTAMP, d DECIMAL(10,2), r REAL, b BLOB, f BOOLEAN, u UUID, j JSON, x)"
    )
    described = {c.name: c.family for c in database.describe(session, "SELECT *, i + 1 AS e FROM t")}
    assert described == {
        "i": "integer", "v": "text", "at": "text", "d": "decimal", "r": "float", "b": "binary", "f": "boolean",
        "u": "uuid", "j": "json", "x": "other", "e": "other",
    }  # fmt: skip
    session.execute("INSERT INTO t (i, x) VALUES (1, NULL), (NULL, 'a'), (2, 5)")
    query = "WITH c AS (SELECT x, i + 1 AS e, i / 2.0 AS h, CAST(i AS BLOB) AS y FROM t) SELECT * FROM c UNION ALL SELECT * FROM c"
    described = {c.name: c.family for c in database.describe(session, query)}
    assert described == {"x": "text", "e": "integer", "h": "float", "y": "binary"}


@pytest.mark.slow
def test_rows_are_read_in_batches_and_mixed_columns_as_text(database: SQLite, session: SQLiteSession) -> None:
    session.execute("CREATE TABLE t (n, m)")
    rows = [(i, None) for i in range(READ_ROWS)]
    mixed = [(2**60 + 1, 1), (0.5, "a"), (None, b"\xff"), (3, b"ok"), (4, 1.25)]
    session.fill("t", 2, [*rows, *mixed])
    first, second = database.read(Split("SELECT n, m FROM t ORDER BY rowid"))
    assert (first.num_rows, first.schema.types) == (READ_ROWS, [pa.int64(), pa.string()])
    assert second.column("n").to_pylist() == ["1152921504606846977", "0.5", None, "3", "4"]
    assert second.column("m").to_pylist() == ["1", "a", "X'FF'", "ok", "1.25"]


def test_a_reader_cannot_write(database: SQLite, session: SQLiteSession) -> None:
    session.execute("CREATE TABLE t (n)")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        list(database.read(Split("INSERT INTO t VALUES (1) RETURNING n")))
    assert session.query("SELECT COUNT(*) FROM t") == [(0,)]


def stage(
    database: SQLite, session: SQLiteSession, column: StageColumn, values: list[Any]
) -> tuple[StageSpec, TaskReport]:
    schema = staged_schema([column])
    spec = database.open_stage(session, StageSpec("stg_test", schema.serialize().to_pybytes(), columns=(column,)))
    stager = database.stager(spec, 0, 1)
    stager.write(pa.RecordBatch.from_pydict({column.name: values}, schema=schema))
    return spec, TaskReport(0, 1, len(values), 0, *stager.finish())


def test_nan_is_refused_because_it_would_become_null(database: SQLite, session: SQLiteSession) -> None:
    spec, part = stage(database, session, StageColumn("x", Double()), [1.0, float("nan")])
    with pytest.raises(CommitError, match="NaN"):
        database.staged_relation(session, spec, [part])


def test_long_decimals_are_text_with_all_their_decimals(database: SQLite, session: SQLiteSession) -> None:
    values = [Decimal("0E-9"), Decimal("-0.000000001"), Decimal("12345678901234567890123456789.5"), None]
    spec, part = stage(database, session, StageColumn("x", Numeric(38, 9)), values)
    relation = database.staged_relation(session, spec, [part])
    texts = ["0.000000000", "-0.000000001", "12345678901234567890123456789.500000000", None]
    assert session.query(f"SELECT x FROM {relation}") == [(text,) for text in texts]


def test_a_uuid_is_stored_in_small_letters(database: SQLite, session: SQLiteSession) -> None:
    spec, part = stage(database, session, StageColumn("x", UUID()), [ZERO.replace("0", "A")])
    assert session.query(f"SELECT x FROM {database.staged_relation(session, spec, [part])}") == [
        (ZERO.replace("0", "a"),)
    ]


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_part_that_was_touched_is_refused(database: SQLite, session: SQLiteSession, damage: str) -> None:
    spec, part = stage(database, session, StageColumn("x", Text()), ["some text that is long enough"] * 100)
    file = Path(part.path)
    if damage == "gone":
        file.unlink()
        with pytest.raises(CommitError, match="gone"):
            database.verify_stage(session, spec, [part])
    else:
        content = bytearray(file.read_bytes())
        # The text stands in statistics too; the third place is among the rows.
        content[[match.start() for match in re.finditer(b"long enough", content)][2]] ^= 0xFF
        file.write_bytes(content)
        database.verify_stage(session, spec, [part])
    with pytest.raises(CommitError, match="gone or unreadable"):
        database.staged_relation(session, spec, [part])
