"""The range of an incremental load as SQL of the source: (lo, hi], compared in the source's own type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.assumed_columns import FAMILIES
from ematix_flow.plan.sql.render import native_column, quoted, render
from ematix_flow.plan.sql.watermark_values import (
    NUMBERS,
    TIMES,
    highest_value_sql,
    value_before_sql,
    value_sql,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.plan.steps import Bounds
    from ematix_flow.records import SourceWatermark


_UNLIKE_TEXT = re.compile(r"^(ENUM|STRUCT|MAP|UNION)\b|\]$")
"""Types of DuckDB that a text is not compared with in their order: an enum is by its letters, and the others are not at all."""


def watermark_column(write: Write, columns: tuple[SourceColumn, ...]) -> SourceColumn:
    """Return the source column that an incremental load is bounded by."""
    name = write.incremental_column or ""
    for column in columns:
        if column.name == name:
            return column
    message = f"the source has no column {name!r} to load incrementally by"
    raise PlanError(message, hint=did_you_mean(name, [column.name for column in columns]))


def lower_bound(stored: SourceWatermark | None, write: Write) -> str | None:
    """Return the value that an incremental load starts above; a watermark of another column does not count."""
    return stored.value if stored is not None and stored.column == write.incremental_column else None


def check_comparable(column: SourceColumn, dialect: str) -> None:
    """Refuse columns whose order the source does not define well."""
    # SQLite keeps long decimals as text, which it orders by its characters.
    as_text = dialect == "sqlite" and column.native.upper().startswith("DECIMALTEXT")
    unlike = dialect == "duckdb" and _UNLIKE_TEXT.search(column.native) is not None
    ordered = column.family in (*NUMBERS, *TIMES) and not as_text
    if ordered or (column.family in ("text", "other") and dialect in ("sqlite", "duckdb") and not unlike):
        return
    message = f"{column.name!r} is {column.native or column.family}, which has no order that is safe for a watermark"
    raise PlanError(message, hint="use a number, a date or a timestamp; cast it in the query.")


def lower_sql(lo: str, column: SourceColumn, dialect: str, lookback: timedelta | None) -> str:
    """Return the lower bound, moved back by the look-back."""
    if lookback is None:
        return value_sql(lo, column, dialect)
    return value_before_sql(lo, column, dialect, lookback)


def bounded_sql(user_sql: str, bounds: Bounds, column: SourceColumn, write: Write, dialect: str) -> str:
    """Return the user's query restricted to the bounds, in the source's dialect."""
    name = render(f"SELECT {quoted(column.name)}", dialect).removeprefix("SELECT ")
    conditions = []
    if bounds.lo is not None:
        conditions.append(f"{name} > {_native(lower_sql(bounds.lo, column, dialect, write.lookback), dialect)}")
    if bounds.hi is not None:
        conditions.append(f"{name} <= {_native(value_sql(bounds.hi, column, dialect), dialect)}")
    condition = _joined(conditions, bounds)
    if write.null_watermark in ("load", "reject"):
        condition = f"({condition}) OR {name} IS NULL"
    return f"SELECT * FROM ({user_sql}) AS _src_bounded WHERE {condition}"


def _joined(conditions: list[str], bounds: Bounds) -> str:
    """Return the condition; a source without any value has no rows in range."""
    if bounds.fixed and bounds.hi is None:
        return "1 = 0"
    return " AND ".join(conditions) or "1 = 1"


def highest_sql(user_sql: str, lo: str | None, column: SourceColumn, write: Write, dialect: str) -> str:
    """Return the query for the upper bound, of which `stored_value` makes the text, and the number of NULLs."""
    return _highest(user_sql, lo, column, write, dialect, highest_value_sql("{name}", column, dialect))


def highest_of_some_sql(user_sql: str, lo: str | None, column: SourceColumn, write: Write, dialect: str) -> str:
    """Return the query for the highest value of some of the rows, in its own type, and their number of NULLs."""
    aggregate = "CAST(MAX({name}) AS DOUBLE)" if column.family == "float" else "MAX({name})"
    highest_sql = _highest(user_sql, lo, column, write, dialect, aggregate)
    return f"SELECT hi, CAST(nulls AS BIGINT) AS nulls FROM ({highest_sql}) AS _some(hi, nulls)"


def highest_of_all_sql(relation: str) -> str:
    """Return the query that puts together what `highest_of_some_sql` gave, with the bound as text."""
    return f"SELECT CAST(MAX(hi) AS VARCHAR), CAST(SUM(nulls) AS BIGINT) FROM {relation}"


def _highest(user_sql: str, lo: str | None, column: SourceColumn, write: Write, dialect: str, aggregate: str) -> str:
    name = render(f"SELECT {quoted(column.name)}", dialect).removeprefix("SELECT ")
    nulls = f"SUM(CASE WHEN {name} IS NULL THEN 1 ELSE 0 END)"
    sql = f"SELECT {aggregate.replace('{name}', name)}, {nulls} FROM ({user_sql}) AS _src_bounded"
    if lo is not None:
        sql += f" WHERE {name} > {_native(lower_sql(lo, column, dialect, write.lookback), dialect)} OR {name} IS NULL"
    return sql


def _native(canonical: str, dialect: str) -> str:
    if dialect in ("mysql", "sqlite"):
        return canonical
    return render(f"SELECT {canonical}", dialect).removeprefix("SELECT ")


def range_condition(bounds: Bounds, kind: str, write: Write, dialect: str) -> str:
    """Return the condition on shaped rows, for a declared column of this kind."""
    column = SourceColumn(bounds.column, FAMILIES[kind])
    name = native_column(bounds.column, dialect)
    conditions = []
    if bounds.lo is not None:
        conditions.append(f"{name} > {_native(lower_sql(bounds.lo, column, dialect, write.lookback), dialect)}")
    if bounds.hi is not None:
        conditions.append(f"{name} <= {_native(value_sql(bounds.hi, column, dialect), dialect)}")
    condition = _joined(conditions, bounds)
    # A row without a bound cannot be skipped: it is checked, and rejected or refused, like any other bad row.
    return f"({condition}) OR {name} IS NULL"
