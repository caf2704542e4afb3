"""append, truncate and merge as programs over the staged rows and the target; written once for all dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.session import Statement
from ematix_flow.plan.sql.modes.latest import latest, not_older
from ematix_flow.plan.sql.program import DuplicateChecks, Program
from ematix_flow.plan.sql.render import STAGED, identifier_value, instant, listed, quoted, render, table_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.declare.pipeline.write import Replaced
    from ematix_flow.plan.sql.program import Load

FROM_STAGED = f'FROM "{STAGED}" AS s'


def append(load: Load) -> Program:
    """Insert every staged row."""
    return Program("INSERT...SELECT", (Statement(_insert(load), "inserted", "insert every row"),))


def truncate(load: Load) -> Program:
    """Replace the target's rows in the same transaction; readers see the old rows or the new ones."""
    # DELETE, because TRUNCATE is not safe for concurrent readers on PostgreSQL and commits on MySQL.
    clear = render(f"DELETE FROM {table_sql(load.target)}", load.dialect)
    return Program(
        "TRUNCATE + INSERT",
        (Statement(clear, "deleted", "remove the old rows"), Statement(_insert(load), "inserted", "insert every row")),
    )


def merge(load: Load) -> Program:
    """Update what changed, insert what is new and, if requested, delete what is absent."""
    statements = []
    if load.replaced is not None:
        text = _delete_replaced(load, load.replaced)
        statements.append(Statement(text, "deleted", "delete rows whose place others take"))
    if load.update:
        statements.append(Statement(_update(load), "updated", "update rows whose compare columns differ"))
    statements.append(Statement(_insert(load, where_new(load)), "inserted", "insert rows with a new key"))
    if load.delete_absent:
        statements.append(Statement(_delete_absent(load), "deleted", "delete rows whose key is absent"))
    return Program("ON CONFLICT upsert", tuple(statements), reads_staged_once=False, duplicates=duplicate_checks(load))


def duplicate_checks(load: Load) -> DuplicateChecks:
    """Return the queries that find keys which occur more than once in one load."""
    keys = listed(load.keys)
    staged = (*load.names, *(column.name for column in load.extra))
    distinct = render(f'SELECT DISTINCT {listed(staged)} FROM "{STAGED}" AS s', load.dialect)
    twice = f"GROUP BY {keys} HAVING COUNT(*) > 1 LIMIT 5"
    repeated = render(f'SELECT {keys} FROM "{STAGED}" AS s {twice}', load.dialect)
    return DuplicateChecks(repeated, latest(load) or f"({distinct})", ordered=bool(load.order))


def _insert(load: Load, where: str = "") -> str:
    names = listed((*load.names, *load.stamps))
    values = ", ".join([*(insert_value(load, name) for name in load.names), *_stamp(load)])
    sql = f"INSERT INTO {table_sql(load.target)} ({names}) SELECT {values} {FROM_STAGED}"
    return render(sql + (f" WHERE {where}" if where else ""), load.dialect)


def _update(load: Load) -> str:
    sets = [f"{quoted(name)} = {insert_value(load, name)}" for name in load.update]
    sets += [f"{quoted(name)} = {value}" for name, value in zip(load.stamps, _stamp(load), strict=True)]
    newer = f" AND {not_older(load)}" if load.order_by else ""
    sql = (
        f"UPDATE {table_sql(load.target)} AS tgt SET {', '.join(sets)} {FROM_STAGED} "
        f"WHERE {same_key(load.keys, 'tgt', 's')} AND ({differs(load, load.compare, 'tgt', 's')}){newer}"
    )
    return render(sql, load.dialect)


def _stamp(load: Load) -> tuple[str, ...]:
    stamp = (instant(load.loaded_at, load.dialect), identifier_value(load.batch_id, load.dialect))
    return stamp if load.stamped else ()


def _delete_absent(load: Load) -> str:
    target = quoted(load.target.name)
    sql = (
        f"DELETE FROM {table_sql(load.target)} WHERE NOT EXISTS "
        f"(SELECT 1 {FROM_STAGED} WHERE {same_key(load.keys, target, 's')})"
    )
    return render(sql, load.dialect)


def _delete_replaced(load: Load, replaced: Replaced) -> str:
    target, begin, end = quoted(load.target.name), quoted(replaced.begin), quoted(replaced.end)
    groups = "".join(
        f" AND NOT {target}.{quoted(name)} IS DISTINCT FROM s.{quoted(name)}"
        for name in replaced.group_by
        if name in load.names
    )
    sql = (
        f"DELETE FROM {table_sql(load.target)} WHERE NOT EXISTS "
        f"(SELECT 1 {FROM_STAGED} WHERE {same_key(load.keys, target, 's')}) AND EXISTS "
        f"(SELECT 1 {FROM_STAGED} WHERE {target}.{begin} >= s.{begin} AND {target}.{begin} < s.{end}{groups})"
    )
    return render(sql, load.dialect)


def where_new(load: Load) -> str:
    """Return the condition that no row of the target has the staged row's key."""
    return f"NOT EXISTS (SELECT 1 FROM {table_sql(load.target)} AS tgt WHERE {same_key(load.keys, 'tgt', 's')})"


def same_key(keys: Sequence[str], left: str, right: str) -> str:
    """Return the join condition on keys; keys are never NULL."""
    return " AND ".join(f"{left}.{quoted(key)} = {right}.{quoted(key)}" for key in keys)


def differs(load: Load, names: Sequence[str], target: str, staged: str) -> str:
    """Return the NULL-safe condition that any of the columns differs between the target and a staged row."""
    return " OR ".join(f"{stored(load, name, target)} IS DISTINCT FROM {staged}.{quoted(name)}" for name in names)


def insert_value(load: Load, name: str, alias: str = "s") -> str:
    """Return a staged column as the target column takes it."""
    value = f"{alias}.{quoted(name)}"
    return f"CAST({value} AS JSON)" if is_plain_json(load, name) else value


def stored(load: Load, name: str, alias: str = "tgt") -> str:
    """Return a target column so that it compares with the staged one."""
    value = f"{alias}.{quoted(name)}"
    return f"CAST({value} AS TEXT)" if is_plain_json(load, name) else value


def is_plain_json(load: Load, name: str) -> bool:
    """PostgreSQL's json type has no equality, so it is staged and compared as text."""
    return load.dialect == "postgres" and any(c.name == name and c.type.kind == "json" for c in load.columns)
