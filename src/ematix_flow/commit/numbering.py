"""Numbers for staged rows that every transaction gives alike, so that a row can be spoken of; it runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.plan.sql.render import native_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base import StageColumn


def numbered(
    columns: Sequence[StageColumn], dialect: str, relation: str, without: Sequence[int], up_to: int | None = None
) -> str:
    """Give staged rows under numbers that every transaction gives alike, without some and up to a number."""
    names = ", ".join(native_column(column.name, dialect) for column in columns)
    conditions = []
    if isinstance(without, range) and without:
        conditions.append(f"_flow_row >= {without.stop}")
    elif without:
        conditions.append(f"_flow_row NOT IN ({', '.join(str(number) for number in without)})")
    conditions += [f"_flow_row <= {up_to}"] if up_to is not None else []
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"(SELECT {names} FROM {with_numbers(columns, dialect, relation)} AS numbered_rows{where})"


def with_numbers(columns: Sequence[StageColumn], dialect: str, relation: str) -> str:
    """Give staged rows with their numbers in a column `_flow_row`."""
    names = ", ".join(native_column(column.name, dialect) for column in columns)
    by = ", ".join(_as_text(column, dialect) for column in columns)
    return f"(SELECT {names}, ROW_NUMBER() OVER (ORDER BY {by}) AS _flow_row FROM {relation} AS staged_rows)"


def _as_text(column: StageColumn, dialect: str) -> str:
    name = native_column(column.name, dialect)
    if dialect == "mysql":
        # MySQL refuses to call bytes text that are none.
        return f"HEX({name})" if column.type.kind == "bytes" else f"CAST({name} AS CHAR)"
    if dialect == "spark":
        return f"HEX({name})" if column.type.kind == "bytes" else f"CAST({name} AS STRING)"
    return f"CAST({name} AS VARCHAR)"
