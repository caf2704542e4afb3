"""The row hash of scd2: one canonical encoding, rendered for each database and written once more in Python as its oracle.

A NULL is `-`; any other value is the byte length of its text, a colon and the text. The hash is the SHA-256 of these,
one after the other in the order of the compare columns. Nothing decides by this hash; it is for consumers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ematix_flow.connect.sqlite.functions import float_bits, numeric_text
from ematix_flow.plan.sql.render import native_column

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ematix_flow.connect.base.stage import StageColumn

FLOATS = ("float", "double")


def row_hash_sql(columns: Sequence[StageColumn], alias: str, dialect: str) -> str:
    """Return the dialect's expression for the hash over columns of the relation `alias`."""
    parts = [_hash_input(column, f"{alias}.{native_column(column.name, dialect)}", dialect) for column in columns]
    match dialect:
        case "postgres":
            return f"sha256(convert_to({' || '.join(parts)}, 'UTF8'))"
        case "mysql":
            return f"UNHEX(SHA2(CONCAT({', '.join(parts)}), 256))"
        case "duckdb":
            return f"unhex(sha256({' || '.join(parts)}))"
        case "spark":
            return f"unhex(sha2(concat({', '.join(parts)}), 256))"
        case _:
            return f"flow_sha256({' || '.join(parts)})"


def _hash_input(column: StageColumn, value: str, dialect: str) -> str:
    as_text = column_text(column, value, dialect)
    match dialect:
        case "mysql":
            return f"COALESCE(CONCAT(OCTET_LENGTH({as_text}), ':', {as_text}), '-')"
        case "duckdb":
            return f"COALESCE(CAST(strlen({as_text}) AS VARCHAR) || ':' || {as_text}, '-')"
        case "spark":
            return f"COALESCE(concat(octet_length({as_text}), ':', {as_text}), '-')"
        case "sqlite":
            return f"COALESCE(length(CAST({as_text} AS BLOB)) || ':' || {as_text}, '-')"
        case _:
            return f"COALESCE(octet_length({as_text})::text || ':' || {as_text}, '-')"


def column_text(column: StageColumn, value: str, dialect: str) -> str:
    """Return a value of a column as text that is the same for equal values."""
    kind = column.type.kind
    if kind in FLOATS:
        return _float_text(value, dialect)
    if kind == "bytes":
        return _bytes_text(value, dialect)
    if kind == "boolean":
        return f"CASE WHEN {value} THEN 'true' WHEN NOT {value} THEN 'false' END"
    if kind in ("timestamp", "timestamp_tz"):
        return _time_text(kind, value, dialect)
    if kind == "numeric" and dialect == "sqlite":
        return f"flow_numeric_text({value}, {getattr(column.type, 'scale', 0)})"
    return f"CAST({value} AS CHAR)" if dialect == "mysql" else f"CAST({value} AS {_text_type(dialect)})"


def _bytes_text(value: str, dialect: str) -> str:
    match dialect:
        case "postgres":
            return f"encode({value}, 'hex')"
        case "sqlite":
            # SQLite returns an empty text for NULL.
            return f"CASE WHEN {value} IS NOT NULL THEN lower(hex({value})) END"
        case _:
            return f"lower(hex({value}))"


def _text_type(dialect: str) -> str:
    return {"duckdb": "VARCHAR", "spark": "STRING"}.get(dialect, "TEXT")


def _float_text(value: str, dialect: str) -> str:
    match dialect:
        case "postgres":
            return f"encode(float8send(CAST({value} AS double precision)), 'hex')"
        case "mysql":
            # No function of MySQL returns the bits of a double; its shortest decimal text replaces them.
            return f"CAST({value} AS CHAR)"
        case "duckdb":
            return f"lower(hex(CAST(CAST(CAST({value} AS DOUBLE) AS BIT) AS BLOB)))"
        case "spark":
            bits = f"java_method('java.lang.Double', 'doubleToLongBits', CAST({value} AS DOUBLE))"
            return f"CASE WHEN {value} IS NOT NULL THEN lower(lpad(hex(CAST({bits} AS BIGINT)), 16, '0')) END"
        case _:
            return f"flow_float_bits({value})"


def _time_text(kind: str, value: str, dialect: str) -> str:
    match dialect:
        case "postgres":
            moved = f"({value} AT TIME ZONE 'UTC')" if kind == "timestamp_tz" else value
            return f"to_char({moved}, 'YYYY-MM-DD HH24:MI:SS.US')"
        case "mysql":
            return f"DATE_FORMAT({value}, '%Y-%m-%d %H:%i:%s.%f')"
        case "duckdb":
            moved = f"({value} AT TIME ZONE 'UTC')" if kind == "timestamp_tz" else value
            return f"strftime({moved}, '%Y-%m-%d %H:%M:%S.%f')"
        case "spark":
            return f"date_format({value}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
        case _:
            return f"substr({value}, 1, 26)"


def encode(values: Sequence[object]) -> bytes:
    """Return the canonical encoding of already canonical texts (None for NULL)."""
    return b"".join(b"-" if value is None else f"{len(str(value).encode())}:{value}".encode() for value in values)


def row_hash(columns: Sequence[StageColumn], values: Sequence[object]) -> bytes:
    """Return the hash of Python values; the definition that every database must agree with."""
    texts = [_python_text(column, value) for column, value in zip(columns, values, strict=True)]
    return hashlib.sha256(encode(texts)).digest()


def _python_text(column: StageColumn, value: object) -> str | None:
    if value is None:
        return None
    kind = column.type.kind
    if kind in FLOATS:
        return float_bits(float(value))  # type: ignore[arg-type]
    if kind == "bytes":
        return bytes(value).hex()  # type: ignore[call-overload, no-any-return]
    if kind == "boolean":
        return "true" if value else "false"
    if kind in ("timestamp", "timestamp_tz"):
        return _instant_text(value)  # type: ignore[arg-type]
    if kind == "numeric":
        return numeric_text(value, getattr(column.type, "scale", 0))  # type: ignore[arg-type]
    return str(value)


def _instant_text(value: datetime) -> str:
    # Not strftime: on Linux its %Y writes the year 1 with one digit.
    return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
