"""Rows that got another key: what their change does not carry is what the row had under its old key; no table is changed here.

Such a change names the end of the old key, by its version, behind the columns that it carries. What the row had there is
what changes of the same batch wrote before that end, or else what the table has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ematix_flow.connect.changes.change import DELETE, TRUNCATE
from ematix_flow.plan.columns import CHANGE, CHANGE_CARRIES, CHANGE_VERSION
from ematix_flow.plan.sql.modes.append_truncate_merge import same_key, stored
from ematix_flow.plan.sql.modes.change_rows import KEY, event_columns, is_carried, is_soft, joined
from ematix_flow.plan.sql.render import listed, native_column, quoted, render, table_sql

if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.plan.sql.program import Load

_DEPTH = 3
"""How often the key of a row may change in one batch so that it still takes what it had under the first one."""
_EVENTS = "_flow_completed"
"""Stands for the relation of changes, whose name may be another one in every batch."""
_HAD, _HAS, _ANY = "_flow_had_{}", "_flow_has_{}", "_flow_any_{}"


@dataclass(frozen=True, slots=True)
class _Moves:
    """What the query depends on: it is the same for all batches of a table."""

    dialect: str
    target: TableName
    columns: tuple[StageColumn, ...]
    keys: tuple[str, ...]
    every: tuple[str, ...]
    """The columns of a relation of changes."""
    values: tuple[str, ...]
    """The columns of the table as they are staged."""
    soft: bool


def has_moved(load: Load, events: str) -> str:
    """Return the query that has a row where changes lack columns of rows that got another key."""
    relation, carries = native_column(events, load.dialect), native_column(CHANGE_CARRIES, load.dialect)
    return f"SELECT 1 FROM {relation} AS m WHERE LENGTH(m.{carries}) > {len(load.names)} LIMIT 1"


def inherited(load: Load, events: str) -> str:
    """Return the query for what rows that got another key had under the old one, as changes.

    Each has the version of the change that it completes, and carries the columns that this lacks.
    """
    return _named(_inherited(_moves_of(load)), events, load.dialect)


def inheriting(load: Load, events: str) -> str:
    """Return the statement that adds to a relation of changes what rows that got another key had under the old one."""
    return _named(_inheriting(_moves_of(load)), events, load.dialect)


def _moves_of(load: Load) -> _Moves:
    values = tuple(_as_staged(load, column) for column in load.columns)
    every = tuple(column.name for column in event_columns(load))
    return _Moves(load.dialect, load.target, load.columns, load.keys, every, values, is_soft(load))


def _as_staged(load: Load, column: StageColumn) -> str:
    """Return a column of the target as it is staged: as text where only the database knows its type."""
    is_text = column.native and column.type.kind == "text"
    return f"CAST(tgt.{quoted(column.name)} AS TEXT)" if is_text else stored(load, column.name)


def _named(sql: str, events: str, dialect: str) -> str:
    return sql.replace(native_column(_EVENTS, dialect), native_column(events, dialect))


@lru_cache(maxsize=64)
def _inheriting(moves: _Moves) -> str:
    return render(f"INSERT INTO {quoted(_EVENTS)} ({listed(moves.every)}) {_query(moves)}", moves.dialect)


@lru_cache(maxsize=64)
def _inherited(moves: _Moves) -> str:
    return render(_query(moves), moves.dialect)


def _query(moves: _Moves) -> str:
    """Return the query over its own result, because a key may be one that its row had in the same batch only."""
    events = quoted(_EVENTS)
    names, steps, relation = listed(moves.every), [], events
    for number in range(1, _DEPTH):
        steps.append(f"known_{number} AS (SELECT {names} FROM {events} UNION ALL {_step(moves, events, relation)})")
        relation = f"known_{number}"
    return f"WITH {', '.join(steps)} {_step(moves, events, relation)}"


def _is_linked(alias: str, columns: int) -> str:
    return f"LENGTH({alias}.{quoted(CHANGE_CARRIES)}) > {columns}"


def _step(moves: _Moves, events: str, relation: str) -> str:
    """Return the query for what rows had under the key before, over a relation of changes that may have been completed."""
    carries, version = quoted(CHANGE_CARRIES), quoted(CHANGE_VERSION)
    lacks = [f"NOT {is_carried(index, 'm')} AND p.{_ANY.format(index)} = 1" for index, _ in enumerate(moves.columns)]
    values = {c.name: f"p.{_HAD.format(index)}" for index, c in enumerate(moves.columns) if c.name not in moves.keys}
    values[CHANGE_CARRIES] = joined([f"CASE WHEN {one} THEN '1' ELSE '0' END" for one in lacks], moves.dialect)
    chosen = [f"{values.get(name, f'm.{quoted(name)}')} AS {quoted(name)}" for name in moves.every]
    return (
        f"SELECT {', '.join(chosen)} FROM ({_last_values(moves, events, relation)}) AS p "
        f"INNER JOIN {events} AS m ON m.{quoted(KEY)} = p._flow_to AND m.{version} = p._flow_at AND m.{carries} = p._flow_lacks "
        f"WHERE p._flow_nth = 1"
    )


def _last_values(moves: _Moves, events: str, relation: str) -> str:
    """Return the query for the last known values of the old rows."""
    by_row = "PARTITION BY _flow_to, _flow_at"
    columns = [
        f"FIRST_VALUE({quoted(column.name)}) OVER ({by_row} ORDER BY {_HAS.format(index)} DESC, _flow_since DESC) "
        f"AS {_HAD.format(index)}, MAX({_HAS.format(index)}) OVER ({by_row}) AS {_ANY.format(index)}"
        for index, column in enumerate(moves.columns)
        if column.name not in moves.keys
    ]
    columns += [f"0 AS {_ANY.format(index)}" for index, column in enumerate(moves.columns) if column.name in moves.keys]
    nth = f"ROW_NUMBER() OVER ({by_row} ORDER BY _flow_since DESC) AS _flow_nth"
    known = f"({_in_batch(moves, events, relation)} UNION ALL {_in_table(moves, events)})"
    return f"SELECT _flow_to, _flow_at, _flow_lacks, {', '.join(columns)}, {nth} FROM {known} AS known"


def _in_batch(moves: _Moves, events: str, relation: str) -> str:
    """Return the query for what changes of the batch wrote into the old rows, after the last delete before."""
    change, version = f"e.{quoted(CHANGE)}", f"e.{quoted(CHANGE_VERSION)}"
    has = [f"CASE WHEN {is_carried(i, 'e')} THEN 1 ELSE 0 END AS {_HAS.format(i)}" for i, _ in enumerate(moves.columns)]
    since = "" if moves.soft else f" AND {version} > COALESCE(o._flow_cleared, '')"
    names = listed((column.name for column in moves.columns), "e")
    return (
        f"SELECT o._flow_to, o._flow_at, o._flow_lacks, {version} AS _flow_since, {', '.join(has)}, {names} "
        f"FROM ({_ends(moves, events)}) AS o INNER JOIN {relation} AS e ON e.{quoted(KEY)} = o._flow_from "
        f"WHERE {version} < o._flow_until AND {change} <> '{DELETE}'{since}"
    )


def _in_table(moves: _Moves, events: str) -> str:
    """Return the query for what the table has of the old rows."""
    has = ", ".join("1" for _ in moves.columns)
    emptied = f"SELECT 1 FROM {events} AS t WHERE t.{quoted(CHANGE)} = '{TRUNCATE}'"
    still = "" if moves.soft else f" WHERE o._flow_cleared IS NULL AND NOT EXISTS ({emptied})"
    return (
        f"SELECT o._flow_to, o._flow_at, o._flow_lacks, '', {has}, {', '.join(moves.values)} "
        f"FROM ({_ends(moves, events)}) AS o "
        f"INNER JOIN {table_sql(moves.target)} AS tgt ON {same_key(moves.keys, 'tgt', 'o')}{still}"
    )


def _ends(moves: _Moves, events: str) -> str:
    """Return the query for the ends of old keys, with the new ones and with the last delete before."""
    change, version, key, carries = quoted(CHANGE), quoted(CHANGE_VERSION), quoted(KEY), quoted(CHANGE_CARRIES)
    columns = len(moves.columns)
    grouped = f"m.{key}, m.{version}, m.{carries}, d.{key}, d.{version}, {listed(moves.keys, 'd')}"
    named = (
        f"m.{key} AS _flow_to, m.{version} AS _flow_at, m.{carries} AS _flow_lacks, d.{key} AS _flow_from, "
        f"d.{version} AS _flow_until, {listed(moves.keys, 'd')}"
    )
    return (
        f"SELECT {named}, MAX(c.{version}) AS _flow_cleared FROM {events} AS m "
        f"INNER JOIN {events} AS d ON d.{change} = '{DELETE}' AND d.{version} = SUBSTRING(m.{carries}, {columns + 1}) "
        f"LEFT JOIN {events} AS c ON c.{key} = d.{key} AND c.{change} = '{DELETE}' AND c.{version} < d.{version} "
        f"WHERE {_is_linked('m', columns)} GROUP BY {grouped}"
    )
