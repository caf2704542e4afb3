"""Values of watermarks: what is stored comes back as the value that was read, and a look-back never ends too late."""

from __future__ import annotations

import math
import sqlite3
import struct
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.errors import PlanError, RunError
from ematix_flow.plan.bounds import lower_sql
from ematix_flow.plan.sql.watermark_values import number_before, stored_value, value_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = SourceColumn("w", "float", "REAL")
WHOLE = SourceColumn("w", "integer", "BIGINT")
EXACT = SourceColumn("w", "decimal", "NUMERIC(30,6)")
TEXT = SourceColumn("w", "text", "TEXT")
STAMP = SourceColumn("w", "text", "TIMESTAMP")
FINE = SourceColumn("w", "timestamp", "TIMESTAMP_NS")

SQL_DIALECTS = ("postgres", "duckdb", "spark", "mysql", "sqlite")
HOUR = timedelta(hours=1)

finite = st.floats(allow_nan=False, allow_infinity=False)
backwards = st.timedeltas(timedelta(microseconds=1), timedelta(days=400))


@pytest.fixture(scope="module")
def in_sqlite() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def in_duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        yield connection


def stored(value: object, column: SourceColumn, dialect: str = "sqlite") -> str:
    text = stored_value(value, column, dialect)
    assert text is not None
    return text


@given(number=finite)
@example(number=1767225601.123458)
@example(number=2.787349232586165e-298)  # which SQLite 3.40 reads as another one
@example(number=5e-324)
@example(number=1.7976931348623157e308)
@example(number=-0.1)
@example(number=9.223372036854775e18)
@example(number=123456789012345678901.0)
def test_a_double_comes_back_as_itself(number: float, in_sqlite: Any, in_duckdb: Any) -> None:
    text = stored(number, REAL)
    for connection, dialect in ((in_sqlite, "sqlite"), (in_duckdb, "duckdb")):
        sql = lower_sql(text, REAL, dialect, None)
        assert connection.execute(f"SELECT {sql} = ?, {sql}", [number]).fetchone() == (True, number)
    assert float(value_sql(text, REAL, "mysql")) == number


def test_no_dialect_takes_a_double_for_an_exact_number() -> None:
    text = stored(1.1, REAL)
    assert [value_sql(text, REAL, dialect) for dialect in SQL_DIALECTS] == [
        *["CAST('1.1e0' AS DOUBLE PRECISION)"] * 3,
        "1.1e0",
        "(2476979795053773 / 2251799813685248.0)",
    ]


def test_what_was_stored_before_is_compared_as_before() -> None:
    assert [value_sql("1.1", REAL, dialect) for dialect in SQL_DIALECTS] == ["1.1"] * 5
    nanoseconds = "2026-01-01 00:00:01.123456789"
    assert value_sql(nanoseconds, FINE, "duckdb") == f"CAST('{nanoseconds}' AS TIMESTAMP)"


def test_nanoseconds_are_compared_as_nanoseconds() -> None:
    text = stored("2026-01-01 00:00:01.123456789", FINE, "duckdb")
    assert text == "2026-01-01T00:00:01.123456789"
    assert value_sql(text, FINE, "duckdb") == f"CAST('{text}' AS TIMESTAMP_NS)"
    assert lower_sql(text, FINE, "duckdb", timedelta(milliseconds=1500)) == (
        "CAST('2025-12-31T23:59:59.623456789' AS TIMESTAMP_NS)"
    )


def test_a_number_in_a_column_of_times_is_a_number_in_sqlite() -> None:
    assert value_sql(stored(1767225601.5, STAMP), STAMP, "sqlite") == "(3534451203 / 2.0)"
    assert value_sql(stored(1767225601, STAMP), STAMP, "sqlite") == "'1767225601'", "which its affinity converts"
    assert value_sql("1.5e0", TEXT, "sqlite") == "'1.5e0'", "which is text there"


def test_exact_numbers_are_stored_without_an_exponent() -> None:
    assert stored("1E-10", EXACT, "spark") == "0.0000000001"
    assert stored(Decimal("12.50"), EXACT, "postgres") == "12.50"
    assert stored("-9223372036854775808", WHOLE, "postgres") == "-9223372036854775808"


@pytest.mark.parametrize(
    ("value", "column"), [("v1", REAL), ("12", WHOLE), (b"12", TEXT), ("\x05", EXACT), (b"\x01", WHOLE)]
)
def test_a_highest_value_that_is_none_of_its_column_is_refused(value: object, column: SourceColumn) -> None:
    with pytest.raises(RunError, match="is no value of"):
        stored_value(value, column, "sqlite")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, "NaN", "infinity"])
def test_a_highest_value_that_nothing_comes_after_is_refused(value: object) -> None:
    with pytest.raises(RunError, match="never see another row"):
        stored_value(value, REAL, "postgres")


# Look-backs


@given(number=finite.filter(lambda number: abs(number) < 1e300), back=backwards)
def test_a_double_moved_back_is_the_next_one_that_is_not_later(number: float, back: timedelta) -> None:
    before = Fraction(number) - Fraction(back // timedelta(microseconds=1), 10**6)
    moved = float(number_before(stored(number, REAL), REAL, back))
    assert Fraction(moved) <= before < Fraction(math.nextafter(moved, math.inf))


def test_numbers_are_moved_back_by_seconds() -> None:
    assert number_before("100", WHOLE, HOUR) == "-3500"
    assert number_before("100", WHOLE, timedelta(milliseconds=500)) == "99", "above 99.5 is above 99"
    assert number_before("-100", WHOLE, timedelta(milliseconds=500)) == "-101"
    assert number_before("1767225600.25", EXACT, timedelta(milliseconds=500)) == "1767225599.75"
    long = "12345678901234567890123456789012345.125"
    assert number_before(long, EXACT, timedelta(seconds=5)) == "12345678901234567890123456789012340.125"


def before(text: str, back: timedelta, column: SourceColumn = TEXT, dialect: str = "sqlite") -> str:
    return lower_sql(text, column, dialect, back).strip("'")


@pytest.mark.parametrize(
    ("text", "back", "moved"),
    [
        ("2026-01-01T22:00:00-05:00", HOUR, "2026-01-01T21:00:00-05:00"),
        ("2026-01-01 00:30:00+05:30", HOUR, "2025-12-31 23:30:00+05:30"),
        ("2026-01-01T00:00:00Z", HOUR, "2025-12-31T23:00:00Z"),
        ("2026-01-01 00:00:00.123456 +0530", timedelta(microseconds=1), "2026-01-01 00:00:00.123455 +0530"),
        ("2026-01-01 00:00:00.5", timedelta(milliseconds=250), "2026-01-01 00:00:00.2"),
        ("2026-01-01 00:00:00.123456789", timedelta(milliseconds=500), "2025-12-31 23:59:59.623456789"),
        ("2026-01-01 00:00:00", timedelta(milliseconds=500), "2025-12-31 23:59:59"),
        ("2026-01-01 00:00", timedelta(seconds=90), "2025-12-31 23:58"),
        ("2026-01-01", timedelta(minutes=90), "2025-12-31"),
        ("0999-12-31", timedelta(days=1), "0999-12-30"),
    ],
)
def test_a_time_moved_back_is_spelled_as_it_was(text: str, back: timedelta, moved: str) -> None:
    assert before(text, back) == moved
    assert before(text, back, SourceColumn("w", "timestamp", "type 12"), "mysql") == moved


@given(
    at=st.datetimes(datetime(3, 1, 1)),  # noqa: DTZ001 - a time without a zone
    digits=st.integers(0, 9),
    offset=st.sampled_from(["", "Z", "+00:00", "-05:00", "+0530"]),
    between=st.sampled_from(" T"),
    back=backwards,
    later=st.timedeltas(timedelta(0), timedelta(days=1)),
)
def test_what_is_in_a_look_back_is_above_its_bound(
    at: datetime, digits: int, offset: str, between: str, back: timedelta, later: timedelta
) -> None:
    def retained(time: datetime) -> datetime:
        step = 10 ** max(6 - digits, 0)
        return time.replace(microsecond=time.microsecond // step * step)

    def spelled(time: datetime) -> str:
        fraction = f".{time.microsecond:06}000"[: digits + 1] if digits else ""
        return f"{time.replace(microsecond=0).isoformat(between)}{fraction}{offset}"

    start = retained(at) - back
    bound = before(spelled(at), back)
    assert bound == spelled(start), "as exact as the text is"
    row = retained(start + later)
    assert row <= start or spelled(row) > bound


def test_databases_with_intervals_subtract_all_of_a_look_back() -> None:
    instant = SourceColumn("w", "timestamp_tz", "TIMESTAMPTZ")
    text = "2026-01-01 00:00:00+00"
    assert lower_sql(text, instant, "postgres", HOUR) == f"(CAST('{text}' AS TIMESTAMPTZ) - INTERVAL '3600 seconds')"
    assert lower_sql(text, instant, "postgres", timedelta(seconds=1.5)) == (
        f"(CAST('{text}' AS TIMESTAMPTZ) - INTERVAL '1500000 microseconds')"
    )


@pytest.mark.parametrize(
    ("text", "column"),
    [("v0001", TEXT), ("1767225600", STAMP), ("2461042.5e0", STAMP), ("12:30:00", TEXT), ("2026-02-30", TEXT)],
)
def test_a_look_back_from_what_is_no_time_is_refused(text: str, column: SourceColumn) -> None:
    with pytest.raises(PlanError, match="no date or timestamp"):
        before(text, HOUR, column)


def test_a_look_back_to_before_the_year_one_is_refused() -> None:
    with pytest.raises(PlanError, match="before the year 1"):
        before("0001-01-01 00:00:00", HOUR)


def test_a_narrow_float_is_stored_as_the_double_that_it_is(in_duckdb: Any) -> None:
    (narrow,) = struct.unpack("f", struct.pack("f", 1.1))
    assert stored(narrow, REAL, "postgres") == "1.100000023841858e0"
    sql = lower_sql(stored(narrow, REAL, "duckdb"), REAL, "duckdb", None)
    assert in_duckdb.execute(f"SELECT 1.1::FLOAT <= {sql}, 1.1::FLOAT > {sql}").fetchone() == (True, False)
