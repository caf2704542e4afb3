"""The page about types: what each system makes of a declared type, found by asking the system or by writing a file."""

from __future__ import annotations

import io
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from ematix_flow.connect.formats.writers import AS_DIGITS, writer
from ematix_flow.connect.registry import target_of
from ematix_flow.connect.types.arrow import arrow_type
from ematix_flow.connect.types.digits import MAX_DIGITS
from ematix_flow.declare.connection.registry import KINDS
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.connect.base.target import TargetSystem

SERVERS = ("postgres", "mysql")
DATABASES = ("duckdb", "sqlite", *SERVERS)
LAKES = {"delta": {"kind": "delta_local", "path": "x"}, "iceberg": {"catalog_type": "hadoop", "warehouse": "x"}}
FORMATS = ("parquet", "orc", "csv", "json_lines")

INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
SAMPLES: dict[str, Any] = {
    "small_int": 7, "integer": 7, "big_int": 7, "float": 0.25, "double": 0.25, "boolean": True, "text": "one, two",
    "string": "one, two", "date": date(2026, 1, 2), "timestamp": INSTANT.replace(tzinfo=None), "timestamp_tz": INSTANT,
    "json": '{"a": 1}', "jsonb": '{"a": 1}', "uuid": "2b0e3c1a-7c55-4f0e-9c5e-00000000abcd", "bytes": b"\x00\xff",
    "numeric": Decimal("1.50"),
}  # fmt: skip
"""A value of each kind, which the text formats show their spelling with."""

ORC_NAMES = {
    "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float", "double": "double", "bool": "boolean",
    "string": "string", "date32[day]": "date", "timestamp[ns]": "timestamp", "binary": "binary",
}  # fmt: skip
"""What Arrow reads in a file -> what ORC calls it."""

LIMITS = {
    "nul": "the character NUL in a text",
    "nan": "NaN",
    "infinity": "infinity",
    "empty_partition": "an empty text, or the text `__HIVE_DEFAULT_PARTITION__`, in a column that divides the table",
    "far_instant": "times before 1678 or after 2262, and fractions of a second before 1970",
}

READ_AS = """\
What a load writes is what a load reads: a table that one pipeline wrote and another one reads into the same declared
types has the same values, to the last digit and with every NULL. The tests load extreme values of every type into every
system and read them back. A value that does not fit is a bad row, never bent (see [bad rows](rejects.md))."""

NOTES = """\
- Instants are kept in UTC, points in time to the microsecond; nanoseconds of a source are cut off.
- MySQL's `DATETIME(6)` holds both kinds of timestamp, so a table there does not tell them apart; its own `TIMESTAMP`
  ends in 2038. ORC has one type for both, too: the declaration says which it is.
- JSON has the same value afterwards, not always the same text: `JSONB` of PostgreSQL orders keys and drops blanks.
- Key columns of `Text` and `Bytes` are `VARCHAR(255)` and `VARBINARY(255)` in MySQL, whose indexes hold no more.
- Lakes and files have no length for `String[40]`, no JSON and no UUID: they hold text, and a load checks its values
  before it stages a row. SQLite enforces no types; its tables get `CHECK` conditions that do.
- There is no type for a time of day or an interval: declare `Text`. A Parquet file with such a column is refused.
- A table that is there already may have types that no declaration spells: small and unsigned integers, `TEXT` and
  `DATETIME` of MySQL, columns of SQLite without a type, and the enums, arrays, ranges, times of day, intervals and
  addresses of PostgreSQL. Loads write them, numbers as numbers and the rest as text that the database casts: a stream
  into `target_table=("schema", "name")` as they are, and a declared table with the type that means the same (any whole
  number over `TINYINT` or `INT UNSIGNED`, `Text` or `String[n]` over `TEXT`, `Timestamp` over `DATETIME`, every type
  over a column without one), or with `Text` where none does. A list of JSON becomes an array. A value that the column
  has no place for, such as 256 in one byte or microseconds in whole seconds, is refused, as an error that names column
  and row, or as a bad row; lakes name the column only. A column that means something else, or that another declared
  type spells (`INT` under `BigInt`), is drift. Lists, structs and maps of lakes and shapes of MySQL are refused by
  column, and only where a load writes them."""

TEXTS = """\
CSV and JSON lines show a value instead of a type. Everything comes back as it was but what has the mark \u2020: bytes are
digits there and are read as these digits; `column_map={"raw": "unhex(raw)"}` makes bytes of them again."""

OUT_OF_RANGE = f"""\
A declared number has at most {MAX_DIGITS} digits: `Numeric[40, 2]` is refused when the load is planned, unless the rows
never leave their database, and so are more than 30 decimals for MySQL. Single values without a place are bad rows:"""

NESTED = """\
## Lists, structs and maps

There are no declared types for them. A nested column of a Parquet or ORC file, of a line of JSON, of a lake table or of a
frame is read as a JSON document and goes into a `JSON`, `JSONB` or `Text` column, with every NULL inside it. In databases
it can be queried with the functions for JSON, in Spark with `from_json(column, 'STRUCT<...>')`."""


def page() -> str:
    """Return the page."""
    from docs import NOTE, table  # which imports this module

    systems = _systems()
    shown = {**_shown(), f"Numeric[{MAX_DIGITS}, 10]": types.Numeric(MAX_DIGITS, 10)}
    rows = [
        (f"`{name}`", *(f"`{one.ddl_type(kind)}`" for one in systems.values()), *(_in_file(kind, f) for f in FORMATS))
        for name, kind in shown.items()
    ]
    limits = [(name, values) for name, one in _holders().items() if (values := _limits(name, one))]
    return "\n\n".join(
        [
            "# Types",
            NOTE,
            READ_AS,
            table(("declared", *systems, *FORMATS), rows),
            TEXTS,
            NOTES,
            "## What has no place",
            OUT_OF_RANGE,
            table(("system", "values"), limits),
            NESTED,
        ]
    )


def _systems() -> dict[str, TargetSystem]:
    """Return every system that has types of its own, as a target."""
    holders: dict[str, TargetSystem] = {}
    for kind in DATABASES:
        cls: Any = KINDS[kind]
        holders[kind] = target_of(cls("x", url=f"{kind}://user@host/db") if kind in SERVERS else cls("x", path="x.db"))
    for name, fields in LAKES.items():
        lake: Any = KINDS[fields.get("kind", name)]
        given = {key: value for key, value in fields.items() if key != "kind"}
        holders[name] = target_of(lake("x", **given), ("s", "t"))
    return holders


def _holders() -> dict[str, TargetSystem]:
    files: Any = KINDS["object_store_local"]
    return {**_systems(), **{f: target_of(files("x", path="x", format=f)) for f in FORMATS}}


def _limits(name: str, system: TargetSystem) -> str:
    limits = [LIMITS[limit] for limit in system.capabilities.cannot_store]
    times = system.capabilities.times
    if times is not None and times.of_dates == times.of_instants:
        limits.append(f"dates and times that are not between the years {times.of_dates}")
    elif times is not None:
        limits.append(
            f"dates that are not between the years {times.of_dates}, timestamps not between {times.of_instants}"
        )
    if name in ("csv", "json_lines"):
        limits.append(
            "NaN and infinity are written as the words `nan` and `inf`, which are no numbers when they are read"
        )
    return "; ".join(limits)


def _shown() -> dict[str, types.ColumnType]:
    sized = {"String[40]": types.String(40), "Numeric[10, 2]": types.Numeric(10, 2)}
    plain = [cls for cls in types.ALL_TYPES if cls not in (types.String, types.Numeric)]
    return {cls.__name__: cls() for cls in plain} | sized


def _in_file(kind: types.ColumnType, file_format: str) -> str:
    """Return how a file holds a type, by writing a value and looking at it."""
    carried = arrow_type(kind)
    batch = pa.record_batch([pa.array([SAMPLES[kind.kind]], carried)], names=["x"])
    sink = io.BytesIO()
    written = writer(file_format, sink, batch.schema, {"csv_header": False})
    written.write(batch)
    written.close()
    sink.seek(0)
    if file_format == "parquet":
        return f"`{_parquet(pq.ParquetFile(sink).schema.column(0))}`"
    if file_format == "orc":
        orc_type = str(orc.ORCFile(sink).schema.field(0).type)
        return f"`{ORC_NAMES.get(orc_type, orc_type.replace('decimal128', 'decimal').replace(', ', ','))}`"
    text = sink.getvalue().decode().rstrip("\n")
    value = text.removeprefix('{"x":').removesuffix("}") if file_format == "json_lines" else text
    return f"`{value}`" + (" \u2020" if kind.kind in AS_DIGITS else "")


def _parquet(column: Any) -> str:
    logical = str(column.logical_type)
    zone = re.search(r"isAdjustedToUTC=(\w+)", logical)
    digits = re.search(r"precision=(\d+), scale=(\d+)", logical)
    inside = f"({digits[1]},{digits[2]})" if digits else ""
    if zone:
        inside = "(UTC, micros)" if zone[1] == "true" else "(micros)"
    type_name = logical.partition("(")[0].upper()
    bits = re.search(r"bitWidth=(\d+)", logical)
    type_name = f"INT({bits[1]})" if bits else type_name
    return column.physical_type if type_name == "NONE" else f"{column.physical_type} {type_name}{inside}"
