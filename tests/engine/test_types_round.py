"""Every declared type in every system: what was loaded is read back as a source, equal to the last digit.

The page of types is made from the same code, so that it cannot say more than this shows.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from ematix_flow.connect.formats.writers import AS_DIGITS
from ematix_flow.connect.registry import target_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.table.types import BigInt, Date, Numeric, Timestamp, TimestampTZ
from ematix_flow.errors import PlanError
from tests.engine.every_type import ODD_FLOATS, ROWS, TYPES, Journey, frame_of, plain

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SERVERS = [pytest.param(name, marks=pytest.mark.service) for name in ("postgres", "mysql")]
TEXTS = ("csv", "json_lines")


def fields_of(system: str, request: pytest.FixtureRequest, folder: Path) -> tuple[dict[str, Any], str, str]:
    """Return the settings of a system, the schema of the table there and how it is asked for."""
    if system in ("postgres", "mysql"):
        url = request.getfixturevalue(f"{system}_url")
        schema = url.rpartition("/")[2] if system == "mysql" else "main"
        return {"kind": system, "url": url}, schema, f"SELECT * FROM {schema}.every"
    if system in ("duckdb", "sqlite"):
        return {"kind": system, "path": str(folder / f"it.{system}")}, "main", "SELECT * FROM every"
    return {"kind": "object_store_local", "path": str(folder / "lake"), "format": system}, "main", "main/every"


@pytest.mark.parametrize("system", ["duckdb", "sqlite", *SERVERS, "parquet", "orc", *TEXTS])
def test_every_type_comes_back_as_it_was(system: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    fields, schema, query = fields_of(system, request, tmp_path)
    rows = [within_orc(row) for row in ROWS] if system == "orc" else ROWS
    journey = Journey(tmp_path)
    journey.load(frame_of(rows), fields, schema=schema)
    stored_rows = journey.rows_in(fields, query)
    assert plain(stored_rows) == plain([as_digits(row) for row in rows] if system in TEXTS else rows)


@pytest.mark.parametrize("system", ["parquet", "orc", "delta_local"])
def test_infinite_dates_and_times_are_bad_rows_of_files(system: str, tmp_path: Path) -> None:
    kind = {"kind": "object_store_local", "format": system} if system != "delta_local" else {"kind": system}
    target = {**kind, "path": str(tmp_path / "lake")}
    source = {"kind": "duckdb", "path": str(tmp_path / "source.duckdb")}
    with duckdb.connect(source["path"]) as connection:
        connection.execute("CREATE TABLE far (id BIGINT, day DATE, wall TIMESTAMP, moment TIMESTAMPTZ)")
        for number, column in enumerate(("day", "wall", "moment")):
            values = f"VALUES ({number}, 'infinity'), ({number + 3}, '-infinity')"
            connection.execute(f"INSERT INTO far (id, {column}) {values}")
        connection.execute("INSERT INTO far VALUES (6, '2026-01-01', '2026-01-01', '2026-01-01')")
    types = {"id": BigInt(), "day": Date(), "wall": Timestamp(), "moment": TimestampTZ()}
    result = Journey(tmp_path).load("SELECT * FROM far", target, source=source, types=types, on_bad_row="reject")
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 6)


@pytest.mark.parametrize("system", ["duckdb", SERVERS[0], "parquet", "orc"])
def test_numbers_that_are_none_come_back_where_the_system_has_them(
    system: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    fields, schema, query = fields_of(system, request, tmp_path)
    journey = Journey(tmp_path)
    journey.load(frame_of(ODD_FLOATS), fields, schema=schema)
    assert plain(journey.rows_in(fields, query)) == plain(ODD_FLOATS)


def within_orc(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the times that ORC can hold."""
    if row["at"] is None or row["at"].year not in (1, 9999):
        return row
    instant = (
        datetime(1678, 1, 1, tzinfo=UTC) if row["at"].year == 1 else datetime(2261, 12, 31, 23, 59, 59, 999999, UTC)
    )
    return row | {"at": instant.replace(tzinfo=None), "instant": instant, "day": date(1583, 1, 1)}


def as_digits(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as text files give it back: bytes are the digits that they are written with."""
    digit_columns = {name for name, kind in TYPES.items() if kind.kind in AS_DIGITS and row[name] is not None}
    return row | {name: row[name].hex().encode() for name in digit_columns}


@pytest.mark.parametrize("system", ["duckdb", "sqlite", *SERVERS, "parquet"])
def test_numbers_that_nothing_carries_are_refused_before_anything_is_made(
    system: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    fields, schema, _ = fields_of(system, request, tmp_path)
    types = {"id": BigInt(), "vast": Numeric(40, 2)}
    frame = pa.table({"id": [1], "vast": ["1"]})
    with pytest.raises(PlanError, match=r"Numeric\[40, 2\] has more digits"):
        Journey(tmp_path).load(frame, fields, types=types, schema=schema)
    if system == "mysql":
        with pytest.raises(PlanError, match="more digits than MySQL can store"):
            Journey(tmp_path).load(frame, fields, types=types | {"vast": Numeric(38, 31)}, schema=schema)
    target = target_of(connection_from_fields("it", fields))
    if target.exists():
        with closing(target.session()) as session:
            assert target.find_table(session, target.table_name(schema, "every")) is None
