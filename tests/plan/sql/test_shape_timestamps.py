# ruff: noqa: DTZ001 - UTC times without a zone are what is compared
from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

import pytest

from ematix_flow import normalize as n
from ematix_flow.declare.table.class_body import Column, Table
from ematix_flow.plan.sql.shape.query import unsupported_on
from ematix_flow.types import BigInt, Date, Timestamp, TimestampTZ

if TYPE_CHECKING:
    from tests.plan.sql.engines import Engine, Rows

SOURCE = {"i": "integer", "c": "text"}
NOON = datetime(2026, 1, 2, 12, 0)

DEFAULT_TIMES: dict[str | None, datetime | None] = {
    None: None,
    "2026-01-02 03:04:05": datetime(2026, 1, 2, 3, 4, 5),
    "2026-01-02T03:04:05": datetime(2026, 1, 2, 3, 4, 5),
    "2026-01-02T03:04:05Z": datetime(2026, 1, 2, 3, 4, 5),
    "2026-01-02T03:04:05+02:00": datetime(2026, 1, 2, 1, 4, 5),
    "2026-01-02T03:04:05+0200": datetime(2026, 1, 2, 1, 4, 5),
    "2026-01-02T03:04:05+02": datetime(2026, 1, 2, 1, 4, 5),
    "2026-01-02 03:04:05-05:30": datetime(2026, 1, 2, 8, 34, 5),
    "2026-01-01T00:30:00+01:00": datetime(2025, 12, 31, 23, 30),
    "2026-01-02 03:04:05.1": datetime(2026, 1, 2, 3, 4, 5, 100000),
    "2026-01-02 03:04:05.123": datetime(2026, 1, 2, 3, 4, 5, 123000),
    "2026-01-02T03:04:05.123456": datetime(2026, 1, 2, 3, 4, 5, 123456),
    "2026-01-02T03:04:05.123456Z": datetime(2026, 1, 2, 3, 4, 5, 123456),
    "2026-01-02T03:04:05.5+02:00": datetime(2026, 1, 2, 1, 4, 5, 500000),
    "2026-01-02T03:04:05.25-0030": datetime(2026, 1, 2, 3, 34, 5, 250000),
    "2026-01-02": datetime(2026, 1, 2),
    "01/31/2026": datetime(2026, 1, 31),
    "2024-02-29": datetime(2024, 2, 29),
    "2000-02-29T23:59:59": datetime(2000, 2, 29, 23, 59, 59),
    "0001-01-01 00:00:00": datetime(1, 1, 1),
    "9999-12-31T23:59:59Z": datetime(9999, 12, 31, 23, 59, 59),
    "9999-12-31 23:59:59.999999+00:00": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "0001-01-01T00:00:00-0000": datetime(1, 1, 1),
    "0001-01-01T00:00:00+00": datetime(1, 1, 1),
    "1900-01-01T00:00:00Z": datetime(1900, 1, 1),
    # refused
    "": None,
    "2026-02-30": None,
    "2025-02-29": None,
    "1900-02-29": None,
    "2026-04-31T00:00:00": None,
    "02/30/2026": None,
    "13/01/2026": None,
    "2026-13-01": None,
    "2026-00-10": None,
    "0000-01-01": None,
    "2026-01-02 24:00:00": None,
    "2026-01-02 03:60:05": None,
    "2026-01-02 03:04:60": None,
    "2026-01-02 03:04:05.1234567": None,
    "2026-01-02 03:04": None,
    "2026-1-2": None,
    "20260102": None,
    "2026-01-02T03:04:05+15:00": None,
    "2026-01-02t03:04:05z": None,
    "2026-01-02T03:04:05Z\n": None,
    " 2026-01-02": None,
    "9999-12-31T23:59:59-05:00": None,
    "now": None,
    "infinity": None,
}


def shaped(engine: Engine, column: Column, values: list[object], family: str = "text") -> list[object]:
    table = Table("s", "t", (Column(BigInt, name="i", primary_key=True), column))
    rows: Rows = list(enumerate(values))
    return [row[column.name] for row in engine.shape(table, {"i": "integer", "c": family}, rows)]


@pytest.mark.parametrize("declared", [Timestamp, TimestampTZ])
def test_default_formats_of_timestamps(engine: Engine, declared: object) -> None:
    column = Column(declared, name="c", normalizers=(n.parse_timestamp(),))
    shaped_times = dict(zip(DEFAULT_TIMES, shaped(engine, column, list(DEFAULT_TIMES)), strict=True))
    assert shaped_times == DEFAULT_TIMES


@pytest.mark.slow
def test_text_without_a_normaliser_is_read_as_iso_or_fails(engine: Engine) -> None:
    table = Table("s", "t", (Column(BigInt, name="i", primary_key=True), Column(TimestampTZ, name="c")))
    iso = {text: at for text, at in DEFAULT_TIMES.items() if "/" not in (text or "")}
    iso["01/31/2026"] = None
    rows: Rows = list(enumerate(iso))
    assert [row["c"] for row in engine.shape(table, SOURCE, rows)] == list(iso.values())
    failed = [bool(columns) for columns in engine.failures(table, SOURCE, rows)]
    assert failed == [at is None and text is not None for text, at in iso.items()]


FORMATS: list[tuple[str, dict[str, datetime | None]]] = [
    ("DD/MM/YYYY", {"31/01/2026": datetime(2026, 1, 31), "01/31/2026": None, "29/02/2025": None}),
    ("MM-DD-YYYY", {"01-31-2026": datetime(2026, 1, 31)}),
    ("DD-MM-YYYY", {"31-01-2026": datetime(2026, 1, 31)}),
    ("DD.MM.YYYY HH24:MI", {"31.01.2026 23:59": datetime(2026, 1, 31, 23, 59), "31x01.2026 23:59": None}),
    ("YYYYMMDDHH24MISS", {"20260102030405": datetime(2026, 1, 2, 3, 4, 5), "20260230030405": None}),
    (
        "YYYY-MM-DDTHH24:MI:SSOF",
        {"2026-01-02T03:04:05+0130": datetime(2026, 1, 2, 1, 34, 5), "2026-01-02T03:04:05": None},
    ),
    (
        "YYYY-MM-DD HH24:MI:SS.MS",
        {"2026-01-02 03:04:05.007": datetime(2026, 1, 2, 3, 4, 5, 7000), "2026-01-02 03:04:05": None},
    ),
    ("MM/DD/YYYY HH24:MI:SS.USOF", {"01/02/2026 03:04:05.5Z": datetime(2026, 1, 2, 3, 4, 5, 500000)}),
    ("YYYY/MM", {"2026/02": datetime(2026, 2, 1), "2026/13": None}),
    ('"on "YYYY-MM-DD', {"on 2026-02-03": datetime(2026, 2, 3), "in 2026-02-03": None}),
]


@pytest.mark.parametrize(("text", "values"), FORMATS)
def test_given_formats(engine: Engine, text: str, values: dict[str, datetime | None]) -> None:
    column = Column(Timestamp, name="c", normalizers=(n.parse_timestamp(text),))
    assert shaped(engine, column, list(values)) == list(values.values())


def test_dates(engine: Engine) -> None:
    values = {
        "2026-01-31": date(2026, 1, 31),
        "20260131": date(2026, 1, 31),
        "01/31/2026": date(2026, 1, 31),
        "2026-02-30": None,
        "31/01/2026": None,
    }
    column = Column(Date, name="c", normalizers=(n.parse_date(),))
    assert shaped(engine, column, list(values)) == list(values.values())


def test_a_default_stands_in_for_text_that_cannot_be_read(engine: Engine) -> None:
    step = n.parse_timestamp(on_failure="default", default=NOON)
    column = Column(TimestampTZ, name="c", normalizers=(step,))
    assert shaped(engine, column, ["soon", "2026-01-01"]) == [NOON, datetime(2026, 1, 1)]


def test_errors_are_failures_and_nulls_are_not(engine: Engine) -> None:
    strict = Column(Date, name="strict", normalizers=(n.parse_date("YYYY-MM-DD", on_failure="error"),))
    lenient = Column(Date, name="lenient", normalizers=(n.parse_date("YYYY-MM-DD"),))
    table = Table("s", "t", (Column(BigInt, name="i", primary_key=True), strict, lenient))
    rows: Rows = list(enumerate(["2026-01-01", "2026-02-30", None]))
    options = {"column_map": {"strict": "c", "lenient": "c"}}
    assert engine.failures(table, SOURCE, rows, **options) == [[], ["strict"], []]
    assert engine.shape(table, SOURCE, rows, **options)[1]["strict"] is None


TRUNCATED = {
    "second": datetime(2026, 8, 2, 3, 4, 5),
    "minute": datetime(2026, 8, 2, 3, 4),
    "hour": datetime(2026, 8, 2, 3),
    "day": datetime(2026, 8, 2),
    "week": datetime(2026, 7, 27),
    "month": datetime(2026, 8, 1),
    "quarter": datetime(2026, 7, 1),
    "year": datetime(2026, 1, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("declared", [Timestamp, TimestampTZ])
def test_truncation_is_in_utc_and_weeks_begin_on_monday(engine: Engine, declared: object) -> None:
    columns = tuple(Column(declared, name=p, normalizers=(n.date_trunc(p),)) for p in TRUNCATED)
    table = Table("s", "t", (Column(BigInt, name="i", primary_key=True), *columns))
    rows: Rows = [(1, "2026-08-02T03:04:05.678Z"), (2, None)]
    stored_rows = engine.shape(table, SOURCE, rows, column_map=dict.fromkeys(TRUNCATED, "c"))
    assert stored_rows == [{"i": 1, **TRUNCATED}, {"i": 2, **dict.fromkeys(TRUNCATED)}]


@pytest.mark.slow
def test_wall_time_of_a_zone(engine: Engine) -> None:
    steps = (n.parse_timestamp(), n.to_timezone("Europe/Berlin"))
    wall, instant = Column(Timestamp, name="c", normalizers=steps), Column(TimestampTZ, name="c", normalizers=steps)
    texts = ["2026-01-02T12:00:00Z", "2026-07-02T23:00:00Z", None]
    if engine.dialect == "mysql":
        assert "zones" in unsupported_on(Table("s", "t", (wall,)), "mysql")
        return
    assert shaped(engine, wall, [*texts]) == [datetime(2026, 1, 2, 13), datetime(2026, 7, 3, 1), None]
    assert shaped(engine, instant, [*texts]) == [NOON, datetime(2026, 7, 2, 23), None]
