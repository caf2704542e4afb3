"""Numbers for staged rows that every transaction gives alike, so that a row can be referred to; it runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.plan.sql.render import native_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.stage import StageColumn


@dataclass(frozen=True, slots=True)
class Only:
    """A part of the numbered rows."""

    without: Sequence[int] = ()
    """Numbers that are left out."""
    up_to: int | None = None
    """The last number."""
    since: int = 1
    """The first number."""
    blank: str = ""
    """A column whose values are NULL."""


def numbered(columns: Sequence[StageColumn], dialect: str, relation: str, only: Only) -> str:
    """Return a part of the staged rows under numbers that every transaction gives alike."""
    natives = [(column.name, native_column(column.name, dialect)) for column in columns]
    # CASE, because a NULL alone has no type.
    blank = {only.blank: "CASE WHEN 1 = 0 THEN {0} END AS {0}"}
    names = ", ".join(blank.get(name, "{0}").format(native) for name, native in natives)
    conditions = [f"_flow_row >= {only.since}"] if only.since > 1 else []
    if only.without:
        conditions.append(f"_flow_row NOT IN ({', '.join(str(number) for number in only.without)})")
    conditions += [f"_flow_row <= {only.up_to}"] if only.up_to is not None else []
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"(SELECT {names} FROM {with_numbers(columns, dialect, relation)} AS numbered_rows{where})"


def with_numbers(columns: Sequence[StageColumn], dialect: str, relation: str) -> str:
    """Return staged rows with their numbers in a column `_flow_row`."""
    names = ", ".join(native_column(column.name, dialect) for column in columns)
    by = [_as_text(column, dialect) for column in columns]
    if len(by) == 1:
        # DuckDB 2.0 now and then takes a NULL for the first of an order by one column over a UNION ALL.
        by = [f"CASE WHEN {by[0]} IS NULL THEN 1 ELSE 0 END", *by]
    return f"(SELECT {names}, ROW_NUMBER() OVER (ORDER BY {', '.join(by)}) AS _flow_row FROM {relation} AS staged_rows)"


def _as_text(column: StageColumn, dialect: str) -> str:
    name = native_column(column.name, dialect)
    if dialect == "mysql":
        # MySQL refuses to call bytes text that are none.
        return f"HEX({name})" if column.type.kind == "bytes" else f"CAST({name} AS CHAR)"
    if dialect == "spark":
        return f"HEX({name})" if column.type.kind == "bytes" else f"CAST({name} AS STRING)"
    return f"CAST({name} AS VARCHAR)"
