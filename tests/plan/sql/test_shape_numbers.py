# ruff: noqa: DTZ001 - UTC times without a zone are what is compared
from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import normalize as n
from ematix_flow.declare.table.class_body import Column, Table
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.shape.query import shape_query
from ematix_flow.types import (
    JSON,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    SmallInt,
    Text,
    Timestamp,
    TimestampTZ,
)

if TYPE_CHECKING:
    from tests.plan.sql.engines import Engine

FAILS = object()
D = Decimal


def results(engine: Engine, column: Column, values: list[Any], family: str = "text") -> list[Any]:
    """Return the value of each row, or FAILS."""
    table = Table("s", "t", (Column(BigInt, name="i", primary_key=True), column))
    source, rows = {"i": "integer", "c": family}, list(enumerate(values))
    shaped = [row["c"] for row in engine.shape(table, source, rows)]
    failed = engine.failures(table, source, rows)
    assert all(value is None for value, bad in zip(shaped, failed, strict=True) if bad)
    return [FAILS if bad else value for value, bad in zip(shaped, failed, strict=True)]


TEXTS: list[tuple[object, dict[str | None, Any]]] = [
    (BigInt, {
        "0": 0, "-7": -7, "007": 7, "9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63), None: None,
        "9223372036854775808": FAILS, "-9223372036854775809": FAILS, "99999999999999999999": FAILS, "": FAILS, "1.0": FAILS,
        " 1": FAILS, "+1": FAILS, "1e3": FAILS, "abc": FAILS, "-": FAILS, "1\n": FAILS, "0" * 30 + "5": 5,
    }),
    (Integer, {"2147483647": 2147483647, "2147483648": FAILS, "-2147483648": -2147483648}),
    (SmallInt, {"32767": 32767, "-32769": FAILS, "40000": FAILS}),
    (Numeric[5, 2], {
        "1": D("1.00"), "1.005": D("1.01"), "-1.005": D("-1.01"), "1.0049999": D("1.00"), "999.99": D("999.99"), "999.995": FAILS,
        "-999.994": D("-999.99"), "1000": FAILS, "12345678901234567890123456789012345678901234567890": FAILS, "1.": FAILS, ".5": FAILS,
        "1e2": FAILS, "abc": FAILS, "": FAILS, "0.00499999999999999999999999999999999999999999999": D("0.00"), "00012.5": D("12.50"),
    }),
    (Numeric[38, 10], {"1234567890123456789012345678.0123456789": D("1234567890123456789012345678.0123456789")}),
    (Double, {"1": 1.0, "1.5e3": 1500.0, "-.5": -0.5, "5.": 5.0, "1e308": 1e308, "1.7976931348623157e308": 1.7976931348623157e308,
              "abc": FAILS, "": FAILS, "NaN": FAILS, "1e999": FAILS, "0.1": 0.1,
              "5e-324": 5e-324, "-2.2250738585072014e-308": -2.2250738585072014e-308, "4.9e-324": 5e-324, "1e-324": FAILS}),
    (Float, {"1.5": 1.5, "1e39": FAILS}),
    (Boolean, {"true": True, "F": False, "1": True, "off": False, "Yes": True, "maybe": FAILS, "": FAILS, None: None}),
    (Date, {"2026-01-31": date(2026, 1, 31), "2026-02-30": FAILS, "01/31/2026": FAILS}),
    (UUID, {"6F9619FF-8B86-D011-B42D-00CF4FC964FF": "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "6f9619ff": FAILS}),
    (Bytes, {"aé": "aé".encode(), "": b""}),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "values"), TEXTS)
def test_text_is_read_strictly_or_fails(engine: Engine, declared: object, values: dict[str | None, Any]) -> None:
    shaped_values = results(engine, Column(declared, name="c"), list(values))
    assert dict(zip(values, shaped_values, strict=True)) == values


def test_json_text_is_checked_where_the_engine_can(engine: Engine) -> None:
    good = ['{"a": [1, 2]}', "null", None]
    if engine.dialect == "postgres":
        assert results(engine, Column(JSON, name="c"), good) == [{"a": [1, 2]}, None, None]
    else:
        assert results(engine, Column(JSON, name="c"), [*good, "{"]) == [*good, FAILS]


@pytest.mark.slow
def test_parsers_give_null_a_default_or_a_failure(engine: Engine) -> None:
    texts = ["12", "x", None, "99999999999999999999"]
    assert results(engine, Column(BigInt, name="c", normalizers=(n.parse_int(),)), texts) == [12, None, None, None]
    strict = Column(BigInt, name="c", normalizers=(n.parse_int("error"),))
    assert results(engine, strict, texts) == [12, FAILS, None, FAILS]
    given = Column(BigInt, name="c", normalizers=(n.parse_int("default", -1),))
    assert results(engine, given, texts) == [12, -1, -1, -1]
    money = Column(Numeric[10, 2], name="c", normalizers=(n.parse_numeric(6, 2),))
    assert results(engine, money, ["2.675", "-2.675", "12345.6", "$3"]) == [D("2.68"), D("-2.68"), None, None]


@pytest.mark.slow
def test_numbers_must_fit_their_column(engine: Engine) -> None:
    assert results(engine, Column(Integer, name="c"), [1, 2**31, None], "integer") == [1, FAILS, None]
    assert results(engine, Column(BigInt, name="c"), [1.0, 1.5, 1e19, -0.0], "float") == [1, FAILS, FAILS, 0]
    assert results(engine, Column(BigInt, name="c"), [D("3.000000"), D("3.5")], "decimal") == [3, FAILS]
    assert results(engine, Column(Numeric[4, 2], name="c"), [2.675, -0.005, 100.0], "float") == [
        D("2.68"),
        D("-0.01"),
        FAILS,
    ]
    assert results(engine, Column(Numeric[4, 2], name="c"), [D("2.675"), D("99.995")], "decimal") == [D("2.68"), FAILS]
    assert results(engine, Column(Boolean, name="c"), [1, 0, 2, None], "integer") == [True, False, FAILS, None]
    assert results(engine, Column(Double, name="c"), [D("1.5"), None], "decimal") == [1.5, None]


@pytest.mark.slow
def test_rounding_is_half_away_from_zero(engine: Engine) -> None:
    floats = [2.675, -2.675, 0.5, 1e300, 1234567.005, None]
    rounded = [2.68, -2.68, 0.5, 1e300, 1234567.01, None]
    assert results(engine, Column(Double, name="c", normalizers=(n.round(2),)), floats, "float") == rounded
    decimals = [D("2.5"), D("-2.5"), D("3.499999")]
    column = Column(Numeric[12, 2], name="c", normalizers=(n.round(0),))
    assert results(engine, column, decimals, "decimal") == [D(3), D(-3), D(3)]
    assert results(engine, column, ["2.5", None]) == [D(3), None]


@pytest.mark.slow
def test_clamp_keeps_null_and_compares_by_value(engine: Engine) -> None:
    column = Column(BigInt, name="c", normalizers=(n.clamp(-5, 10),))
    assert results(engine, column, [-6, 7, 11, None], "integer") == [-5, 7, 10, None]
    money = Column(Numeric[8, 2], name="c", normalizers=(n.clamp(0, 9.5),))
    assert results(engine, money, ["-1", "10", "2.5", None]) == [D(0), D("9.5"), D("2.5"), None]
    days = Column(Date, name="c", normalizers=(n.clamp(date(2026, 1, 1), "2026-12-31"),))
    assert results(engine, days, ["2025-01-01", "2026-05-05", "2027-01-01"]) == [
        date(2026, 1, 1),
        date(2026, 5, 5),
        date(2026, 12, 31),
    ]


@pytest.mark.slow
def test_values_of_a_declaration_keep_every_digit(engine: Engine) -> None:
    most, odd, large = 2**63 - 1, 2**53 + 1, D("12345678901234567890.12")
    nullified = Column(BigInt, name="c", normalizers=(n.nullif(odd),))
    assert results(engine, nullified, [odd, odd - 1, None], "integer") == [None, odd - 1, None]
    assert results(engine, Column(BigInt, name="c", normalizers=(n.nullif(most),)), [most], "integer") == [None]
    clamped = Column(BigInt, name="c", normalizers=(n.clamp(0, odd - 1),))
    assert results(engine, clamped, [odd, -1], "integer") == [odd - 1, 0]
    filled = Column(
        Numeric[22, 2],
        name="c",
        normalizers=(n.parse_numeric(22, 2), n.nullif(D("1.1")), n.default(large), n.clamp(0, large)),
    )
    values = ["1.10", None, "12345678901234567890.13", "12345678901234567890.11"]
    assert results(engine, filled, values) == [large, large, large, D("12345678901234567890.11")]


@pytest.mark.slow
def test_defaults_and_nullif_meet_the_type_they_are_compared_with(engine: Engine) -> None:
    assert results(engine, Column(BigInt, name="c", normalizers=(n.default(0),)), ["5", None]) == [5, 0]
    assert results(
        engine, Column(BigInt, name="c", normalizers=(n.nullif(-1), n.default(7))), [5, -1, None], "integer"
    ) == [5, 7, 7]
    assert results(engine, Column(Boolean, name="c", normalizers=(n.default(True),)), [None, "no"]) == [True, False]
    stamp = Column(TimestampTZ, name="c", normalizers=(n.default(datetime(2026, 1, 1, tzinfo=UTC)),))
    assert results(engine, stamp, [None, "2026-02-02T00:00:00+01:00"]) == [
        datetime(2026, 1, 1),
        datetime(2026, 2, 1, 23),
    ]


TYPED: list[tuple[str, Any, object, tuple[Any, ...], Any]] = [
    ("timestamp_tz", datetime(2026, 1, 2, 3, tzinfo=UTC), TimestampTZ, (n.parse_timestamp(),), datetime(2026, 1, 2, 3)),
    ("timestamp", datetime(2026, 1, 2, 3), TimestampTZ, (n.parse_timestamp(),), datetime(2026, 1, 2, 3)),
    ("timestamp_tz", datetime(2026, 1, 2, 3, tzinfo=UTC), Timestamp, (), datetime(2026, 1, 2, 3)),
    ("date", date(2026, 1, 2), TimestampTZ, (n.parse_timestamp(),), datetime(2026, 1, 2)),
    ("date", date(2026, 1, 2), Date, (n.parse_date("MM/DD/YYYY"),), date(2026, 1, 2)),
    ("integer", 12, BigInt, (n.parse_int(), n.trim()), 12),
    ("integer", 12, Text, (n.trim(), n.replace("1", "x")), "x2"),
    ("boolean", True, Boolean, (n.parse_bool(),), True),
    ("integer", 1, Boolean, (n.parse_bool(),), True),
    ("decimal", D("1.500000"), Numeric[10, 1], (n.parse_numeric(10, 1),), D("1.5")),
]


@pytest.mark.parametrize(("family", "value", "declared", "steps", "expected"), TYPED)
def test_normalisers_do_not_hurt_typed_values(
    engine: Engine, family: str, value: Any, declared: object, steps: tuple[Any, ...], expected: Any
) -> None:
    if engine.dialect == "sqlite" and steps == (n.parse_date("MM/DD/YYYY"),):
        expected = None  # SQLite keeps dates as text, so the format decides
    assert results(engine, Column(declared, name="c", normalizers=steps), [value, None], family) == [expected, None]


@pytest.mark.parametrize(
    ("family", "declared"), [("date", BigInt), ("integer", Date), ("binary", Text), ("boolean", Date)]
)
def test_families_without_a_common_meaning_are_refused(family: str, declared: object) -> None:
    table = Table("s", "t", (Column(declared, name="c"),))
    with pytest.raises(PlanError, match="column 'c'"):
        shape_query("SELECT 1", {"c": family}, table, "postgres")
