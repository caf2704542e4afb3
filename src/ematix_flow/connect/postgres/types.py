"""PostgreSQL's types: how declared ones are written, reflected ones read back and each carried by Arrow; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.types.fingerprint import sum_sql
from ematix_flow.connect.types.identifiers import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.columns import SourceColumn, TableSchema
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.declare.table.types import ColumnType

_DDL = {
    "small_int": "SMALLINT",
    "integer": "INTEGER",
    "big_int": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE PRECISION",
    "boolean": "BOOLEAN",
    "text": "TEXT",
    "json": "JSON",
    "jsonb": "JSONB",
    "uuid": "UUID",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_tz": "TIMESTAMPTZ",
    "bytes": "BYTEA",
}

_SPELLED = {
    "character varying": "VARCHAR",
    "character": "CHAR",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMPTZ",
    "double precision": "DOUBLE PRECISION",
    "numeric": "NUMERIC",
    **{name.lower(): name for name in _DDL.values()},
}
"""The output of format_type(), without its size -> what our DDL writes."""

_FAMILIES = {
    "SMALLINT": "integer",
    "INTEGER": "integer",
    "BIGINT": "integer",
    "oid": "integer",
    "NUMERIC": "decimal",
    "REAL": "float",
    "DOUBLE PRECISION": "float",
    "BOOLEAN": "boolean",
    "TEXT": "text",
    "VARCHAR": "text",
    "CHAR": "text",
    "name": "text",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp_tz",
    "BYTEA": "binary",
    "JSON": "json",
    "JSONB": "json",
    "UUID": "uuid",
}

_CARRIED = {
    "SMALLINT", "INTEGER", "BIGINT", "NUMERIC", "REAL", "DOUBLE PRECISION", "BOOLEAN", "TEXT", "VARCHAR", "DATE",
    "TIMESTAMP", "TIMESTAMPTZ", "BYTEA",
}  # fmt: skip
"""Types whose values the Arrow driver hands over as they are."""

_INTEGER_DIGITS = {"SMALLINT": 5, "INTEGER": 10, "BIGINT": 19}
_LADDERS = (("SMALLINT", "INTEGER", "BIGINT"), ("REAL", "DOUBLE PRECISION"))
_SIZE = re.compile(r"\s*\((\d+)(?:,\s*(-?\d+))?\)")


def ddl_type(column_type: ColumnType) -> str:
    """Return the type of a declared column in DDL."""
    if column_type.kind == "numeric":
        return f"NUMERIC({getattr(column_type, 'precision', 0)},{getattr(column_type, 'scale', 0)})"
    if column_type.kind == "string":
        return f"VARCHAR({getattr(column_type, 'length', 0)})"
    return _DDL[column_type.kind]


def stage_type(column_type: ColumnType) -> str:
    """Return the type of a staged column; Arrow has these three as text, and binary COPY converts nothing."""
    return "TEXT" if column_type.kind in ("json", "jsonb", "uuid") else ddl_type(column_type)


def work_type(column_type: ColumnType) -> str:
    """Return the type of a column inside a commit: as in the target, but json as text, since it has no equality."""
    return "TEXT" if column_type.kind == "json" else ddl_type(column_type)


def staged_value(column: StageColumn, quoted: str) -> str:
    """Return a staged column in the type that a commit works with."""
    if column.type.kind in ("jsonb", "uuid"):
        return f"CAST({quoted} AS {ddl_type(column.type)}) AS {quoted}"
    return quoted


def spelled(native: str) -> str:
    """Return a type as our DDL writes it; a type that no declaration has keeps its own name."""
    size = _SIZE.search(native)
    base = _SIZE.sub("", native)
    if base not in _SPELLED:
        return native
    inside = "" if size is None else f"({size[1]})" if size[2] is None else f"({size[1]},{size[2]})"
    return _SPELLED[base] + inside


def family(native: str) -> str:
    """Return the family of a type that `spelled` wrote."""
    return _FAMILIES.get(_base(native), "other")


def interchange(column: SourceColumn, expression: str) -> str:
    """Return the expression whose values Arrow carries exactly; what only PostgreSQL knows travels as text."""
    if _base(column.native) in _CARRIED:
        return expression
    return f"CAST({expression} AS {'BIGINT' if column.family == 'integer' else 'TEXT'})"


def widening(existing: str, declared: str) -> bool:
    """Return whether every value of one type is also one of the other."""
    for ladder in _LADDERS:
        if existing in ladder and declared in ladder:
            return ladder.index(existing) < ladder.index(declared)
    old, new = _size(existing), _size(declared)
    match _base(existing), _base(declared):
        case "VARCHAR", "TEXT":
            return True
        case "VARCHAR", "VARCHAR":
            return old is not None and (new is None or new[0] >= old[0])
        case "NUMERIC", "NUMERIC":
            return new is None or (old is not None and new[1] >= old[1] and new[0] - new[1] >= old[0] - old[1])
        case ("SMALLINT" | "INTEGER" | "BIGINT") as small, "NUMERIC":
            return new is None or new[0] - new[1] >= _INTEGER_DIGITS[small]
    return False


def _base(native: str) -> str:
    return _SIZE.sub("", native)


def _size(native: str) -> tuple[int, int] | None:
    size = _SIZE.search(native)
    return None if size is None else (int(size[1]), int(size[2] or 0))


def fingerprint_sql(existing: TableSchema | None, table: str, columns: Sequence[str]) -> str:
    """Return the query for the number of rows and the sum of their hashes; a column that is widened keeps its part."""
    native = {column.name: column.type for column in existing.columns} if existing is not None else {}
    row = ", ".join(_lasting(native.get(name, ""), quoted(name)) for name in columns)
    return sum_sql(table, f"CAST(hashtextextended(CAST(ROW({row}) AS TEXT), 0) AS NUMERIC)")


def _lasting(native: str, name: str) -> str:
    """Return a value so that its text outlives a wider type."""
    if native in _LADDERS[1]:
        return f"CAST({name} AS DOUBLE PRECISION)"
    return f"TRIM_SCALE({name})" if _base(native) == "NUMERIC" else name
