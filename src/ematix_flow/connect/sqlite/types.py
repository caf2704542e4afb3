"""Types of SQLite columns: how declared types are written, checked and recognised; SQLite itself enforces none.

A type's name decides the column's affinity, so the names are chosen for what SQLite does with the values: text that
looks like a number stays text in `JSONTEXT` and `DECIMALTEXT`, and `INT` is never the row id, which would turn a NULL
key into a number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.types.identifiers import quoted

if TYPE_CHECKING:
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.declare.table.types import ColumnType

EXACT_DIGITS = 15
"""Decimal digits that a double preserves exactly; a longer number is stored as text."""

_TYPES = {
    "small_int": "SMALLINT",
    "integer": "INT",
    "big_int": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "text": "TEXT",
    "json": "JSONTEXT",
    "jsonb": "JSONTEXT",
    "uuid": "UUID",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_tz": "TIMESTAMPTZ",
    "bytes": "BLOB",
}

_BITS = {"small_int": 16, "integer": 32, "big_int": 64}

# Chosen for speed, because they are evaluated for every row: `IN` with three words alone would cost more than the row.
_NUMBER = "({x} + 0) IS {x}"
_DAY, _TIME = "????-??-??", "??:??:??.??????"
_CONDITIONS = {
    "text": "typeof({x}) = 'text' OR {x} IS NULL",
    "float": _NUMBER,
    "double": _NUMBER,
    "boolean": "{x} IN (0, 1)",
    # json_valid(NULL) is false before SQLite 3.41.
    "json": "{x} IS NULL OR json_valid({x})",
    "jsonb": "{x} IS NULL OR json_valid({x})",
    "uuid": "{x} GLOB '????????-????-????-????-????????????'",
    "date": f"{{x}} GLOB '{_DAY}'",
    "timestamp": f"{{x}} GLOB '{_DAY} {_TIME}'",
    "timestamp_tz": f"{{x}} GLOB '{_DAY} {_TIME}+00:00'",
    "bytes": "typeof({x}) = 'blob' OR {x} IS NULL",
}
"""Kind -> what a value of it must satisfy."""

_FAMILIES = {
    "BOOLEAN": "boolean",
    "BOOL": "boolean",
    "UUID": "uuid",
    "JSON": "json",
    "JSONB": "json",
    "JSONTEXT": "json",
    "DECIMALTEXT": "decimal",
    "DECIMAL": "decimal",
    "NUMERIC": "decimal",
    # SQLite has no type for points in time: they are ISO text, which every shape can read.
    "DATE": "text",
    "DATETIME": "text",
    "TIMESTAMP": "text",
    "TIMESTAMPTZ": "text",
    "TIMESTAMP WITH TIME ZONE": "text",
    "BYTEA": "binary",
    "BINARY": "binary",
    "VARBINARY": "binary",
}

_BY_SUBSTRING = (("INT", "integer"), ("CHAR", "text"), ("CLOB", "text"), ("TEXT", "text"), ("BLOB", "binary"))
_FLOATS = ("REAL", "FLOA", "DOUB")


def ddl_type(column_type: ColumnType) -> str:
    """Return the name of a declared type."""
    if column_type.kind == "numeric":
        precision, scale = getattr(column_type, "precision", 0), getattr(column_type, "scale", 0)
        return f"{'NUMERIC' if precision <= EXACT_DIGITS else 'DECIMALTEXT'}({precision},{scale})"
    if column_type.kind == "string":
        return f"VARCHAR({getattr(column_type, 'length', 0)})"
    return _TYPES[column_type.kind]


def check_clause(column: StageColumn) -> str:
    """Return the condition that keeps every other value out of the column; NULL passes."""
    kind, name = column.type.kind, quoted(column.name)
    if kind in _BITS:
        return _integer(name, _BITS[kind])
    if kind == "numeric":
        return _decimal(column.type, name)
    if kind == "string":
        return f"typeof({name}) <> 'blob' AND length({name}) <= {getattr(column.type, 'length', 0)}"
    return _CONDITIONS[kind].format(x=name)


def _integer(name: str, bits: int) -> str:
    limit = 2 ** (bits - 1)
    size = "" if bits == 64 else f" AND {name} BETWEEN {-limit} AND {limit - 1}"  # noqa: PLR2004 - SQLite has no wider
    return f"{name} IS NULL OR (typeof({name}) = 'integer'{size})"


INTEGERS = {"SMALLINT": 16, "INT": 32, "BIGINT": 64}
"""Our words for whole numbers, by their bits, from the narrowest."""


def widens(existing: str, declared: str) -> bool:
    """Return whether a condition on whole numbers would have to allow more."""
    return existing in INTEGERS and declared in INTEGERS and INTEGERS[existing] < INTEGERS[declared]


def integer_definition(name: str, type_name: str, *, nullable: bool) -> str:
    """Return the definition of a column of whole numbers as CREATE TABLE has it; `name` is in quotes."""
    null = " NULL" if nullable else " NOT NULL"
    return f"{name} {type_name}{null} CHECK ({_integer(name, INTEGERS[type_name])})"


def as_enforced(column: str, declared: str, table_sql: str) -> str:
    """Return the type of a column: whole numbers that no condition of ours bounds have 64 bits, whatever they are called."""
    if declared not in INTEGERS:
        return declared or "no type"
    defined = (integer_definition(quoted(column), declared, nullable=may) for may in (True, False))
    return declared if any(text in table_sql for text in defined) else "INTEGER"


def _decimal(column_type: ColumnType, name: str) -> str:
    precision, scale = getattr(column_type, "precision", 0), getattr(column_type, "scale", 0)
    if precision <= EXACT_DIGITS:
        return f"{_NUMBER.format(x=name)} AND abs({name}) < 1e{precision - scale}"
    # Written out: at least one digit, the point and `scale` decimals.
    longest = max(precision - scale, 1) + (scale + 1 if scale else 0)
    return f"typeof({name}) <> 'blob' AND {name} NOT GLOB '*[^-0-9.]*' AND length(ltrim({name}, '-')) <= {longest}"


def family(declared: str) -> str:
    """Return the family that a declared type promises, or nothing where only the values show it."""
    name = re.sub(r"\s*\(.*?\)", "", declared).strip().upper()
    if name in _FAMILIES:
        return _FAMILIES[name]
    # SQLite's own rules of affinity, in their order.
    for substring, family_name in _BY_SUBSTRING:
        if substring in name:
            return family_name
    return "float" if any(substring in name for substring in _FLOATS) else ""


def family_of_values(storage: set[str]) -> str:
    """Return the family of a column without a declared type from the storage classes of its first values."""
    kinds = storage - {"null"}
    if not kinds:
        return "other"
    if kinds <= {"integer"}:
        return "integer"
    if kinds <= {"integer", "real"}:
        return "float"
    return "binary" if kinds == {"blob"} else "text"


def same_type(existing: str, declared: str) -> bool:
    """Compare two types; SQLite's plain INTEGER holds whole numbers of every size."""
    one, other = (name.replace(" ", "").upper() for name in (existing, declared))
    return one == other or (one == "INTEGER" and other in {"SMALLINT", "INT", "BIGINT"})
