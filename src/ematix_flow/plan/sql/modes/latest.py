"""Which of several rows for one key counts: the last of a stream, or the greatest by declared columns; as canonical SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.plan.sql.render import STAGED, listed, quoted, render

if TYPE_CHECKING:
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.plan.sql.program import Load

_RANK = "_flow_rank"


def latest(load: Load) -> str:
    """Return the relation with the row of each key that counts; empty where the load has no order.

    Without a position in a source two rows can be equally late; both are in the relation then, unless they are equal.
    """
    position_terms = [f"{quoted(name)} DESC" for name in load.order]
    terms = [*order_terms(load), *position_terms]
    if not terms:
        return ""
    selected = (*load.names, *(column.name for column in load.extra if column.name not in load.order))
    rank = f"RANK() OVER (PARTITION BY {listed(load.keys)} ORDER BY {', '.join(terms)})"
    ranked = f'SELECT {listed(selected)}, {rank} AS {quoted(_RANK)} FROM "{STAGED}" AS s'
    distinct = "" if position_terms else "DISTINCT "
    query = f"SELECT {distinct}{listed(selected)} FROM ({ranked}) AS ranked WHERE {quoted(_RANK)} = 1"
    return f"({render(query, load.dialect)})"


def order_terms(load: Load) -> list[str]:
    """Return the terms of an ORDER BY that puts the greatest row by the declared columns first, NULL last."""
    by_name = {column.name: column for column in load.columns}
    return [term for name in load.order_by for term in greatest_first(by_name[name], load.dialect)]


def greatest_first(column: StageColumn, dialect: str) -> tuple[str, str]:
    """Return the terms of an ORDER BY that puts the greatest value of a column first, NULL last."""
    name = quoted(column.name)
    return f"CASE WHEN {name} IS NULL THEN 1 ELSE 0 END", f"{_comparable(column, name, dialect)} DESC"


def not_older(load: Load, target: str = "tgt", staged: str = "s") -> str:
    """Return the condition that a staged row is not older than the one of the target; empty without declared columns."""
    if not load.order_by:
        return ""
    by_name = {column.name: column for column in load.columns}
    older, same = [], ""
    for name in load.order_by:
        there, new = f"{target}.{quoted(name)}", f"{staged}.{quoted(name)}"
        less = " < ".join(_comparable(by_name[name], side, load.dialect) for side in (new, there))
        older.append(f"{same}({new} IS NULL AND NOT {there} IS NULL OR {less})")
        same += f"{there} IS NOT DISTINCT FROM {new} AND "
    # A comparison with NULL is neither true nor false, and then the row is not older.
    return f"CASE WHEN {' OR '.join(older)} THEN 0 ELSE 1 END = 1"


def _comparable(column: StageColumn, value: str, dialect: str) -> str:
    """Return a value so that text is ordered by bytes, whatever the database's collation."""
    textual = column.type.kind in ("text", "string", "json", "jsonb")
    return f'CAST({value} AS TEXT) COLLATE "C"' if textual and dialect == "postgres" else value
