"""What a system leaves out before Spark sees its rows: columns and simple conditions; Spark tests all of them again.

A condition is sent only where the system keeps at least the rows that Spark keeps. So texts are compared for equality alone,
because systems order them differently, and few are sent to SQLite, because its columns hold values of any type.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from ematix_flow.plan.sql.render import native_column, native_name, render, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ematix_flow.connect.base.columns import SourceColumn, TableName

COMPARISONS = ("=", "<", "<=", ">", ">=")
IN, NOT_NULL = "in", "is not null"

MOST_VALUES = 1000
"""The longest list of values that is sent to a system."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A column compared with constants: one of COMPARISONS, `in` or `is not null`; NULL fulfils none of them."""

    column: str
    operator: str
    values: tuple[object, ...] = ()


def relation_sql(relation: TableName | str, columns: Sequence[str], conditions: Iterable[str], dialect: str) -> str:
    """Return the query for some columns of a table, or of a query of the system, with conditions in its dialect."""
    source = f"(\n{relation}\n) AS _src_pushed" if isinstance(relation, str) else native_name(relation, dialect)
    listed = ", ".join(native_column(name, dialect) for name in columns)
    where = " AND ".join(conditions)
    return f"SELECT {listed} FROM {source}" + (f" WHERE {where}" if where else "")


def conditions_sql(conditions: Iterable[Condition], columns: Iterable[SourceColumn], dialect: str) -> tuple[str, ...]:
    """Return those conditions that may be sent to the system, as its SQL."""
    known = {column.name.lower(): column for column in columns}
    rendered = (condition_sql(c, known[c.column.lower()], dialect) for c in conditions if c.column.lower() in known)
    return tuple(dict.fromkeys(sql for sql in rendered if sql))


def condition_sql(condition: Condition, column: SourceColumn, dialect: str) -> str:
    """Return the condition as SQL of the system; empty where it might leave out a row that Spark keeps."""
    name = native_column(column.name, dialect)
    if condition.operator == NOT_NULL:
        return f"{name} IS NOT NULL"
    values = [_value_sql(value, column, dialect) for value in condition.values[: MOST_VALUES + 1]]
    if not values or not all(values) or len(values) > MOST_VALUES:
        return ""
    if condition.operator == IN:
        return f"{name} IN ({', '.join(values)})"
    if condition.operator not in COMPARISONS or (column.family in ("text", "boolean") and condition.operator != "="):
        return ""
    return f"{name} {condition.operator} {values[0]}"


def range_sql(column: SourceColumn, above: object, up_to: object, dialect: str) -> str:
    """Return the condition for values above one and up to another, or for none at all; empty where it might leave out too much."""
    name, parts = native_column(column.name, dialect), []
    for operator, value in ((">", above), ("<=", up_to)):
        if value is not None:
            parts.append(condition_sql(Condition(column.name, operator, (value,)), column, dialect))
    return f"({' AND '.join(parts)} OR {name} IS NULL)" if parts and all(parts) else ""


def _value_sql(value: object, column: SourceColumn, dialect: str) -> str:  # noqa: PLR0911 - one line per family
    """Return a constant that means the same to Spark and to the system; empty where that is not certain."""
    if dialect == "sqlite" and not _is_sure_in_sqlite(column):
        return ""
    match column.family, value:
        case "boolean", bool():
            return str(value).upper() if dialect in ("postgres", "duckdb") else ""
        case _, bool():
            return ""
        case ("integer", int()) | ("decimal", int() | Decimal()):
            return f"{value:f}" if isinstance(value, Decimal) and value.is_finite() else str(value)
        case "text", str():
            return "" if "\0" in value or "\\" in value else text(value)
        case "timestamp", datetime() if value.tzinfo is None and "_NS" not in column.native.upper():
            # Spark compares what is left of nanoseconds, which are cut off.
            return _timestamp_literal(value, "TIMESTAMP", dialect)
        case "timestamp_tz", datetime() if value.tzinfo is not None and dialect in ("postgres", "duckdb"):
            return _timestamp_literal(value.astimezone(UTC), "TIMESTAMPTZ", dialect)
        case "date", date() if not isinstance(value, datetime):
            return _timestamp_literal(value, "DATE", dialect)
    return ""


def _timestamp_literal(value: date, kind: str, dialect: str) -> str:
    literal = text(value.isoformat().replace("T", " "))
    return (
        literal if dialect == "mysql" else render(f"SELECT CAST({literal} AS {kind})", dialect).removeprefix("SELECT ")
    )


def _is_sure_in_sqlite(column: SourceColumn) -> bool:
    """Return whether the declared type makes SQLite store what is compared: whole numbers and texts alone do."""
    declared = column.native.upper()
    type_names = {"integer": ("INT",), "text": ("CHAR", "CLOB", "TEXT")}.get(column.family, ())
    return any(type_name in declared for type_name in type_names) and "DECIMALTEXT" not in declared
