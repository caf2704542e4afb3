"""Changes of rows as relations: which of them are new, and what all of a key come to; the same SQL for every system.

A change is new when its version is greater than the one that its key has. The last change of a key decides whether its
row is there. A column that the last change does not carry has the value of the last one that does, as far as no delete
came between. Where deleted rows are only marked a delete ends nothing: what was written before it stays in the row.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.changes.change import DELETE, SKIP, TRUNCATE, UPDATE
from ematix_flow.declare.table.types import BigInt, Integer, Text, TimestampTZ
from ematix_flow.plan.columns import CHANGE, CHANGE_AT, CHANGE_CARRIES, CHANGE_MS, CHANGE_VERSION
from ematix_flow.plan.sql.dialects import sql_func
from ematix_flow.plan.sql.modes.row_hash import column_text
from ematix_flow.plan.sql.render import CANONICAL, STAGED, listed, native_column, quoted, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.plan.sql.program import Load

KEY = "_flow_key"
"""Column with the key of a row as JSON."""
CREATES = "_flow_creates"
"""Column that is 1 where a change of the key creates its row after the last delete, and not only updates it."""
WHOLE_TABLE = "*"
"""The key of a change of all rows."""
SNAPSHOT = "*snapshot"
"""The key of the rows that a table began with; each has the version of this key until a change gives it its own."""
KEY_OF_ROW = "FLOW_KEY_OF_ROW"
"""Marker of the key as JSON in canonical SQL."""

_UTC = "FLOW_UTC"
_PLAIN = ("text", "string", "small_int", "integer", "big_int", "uuid")
_HAS = "_flow_has_{}"
_REPORTED = "2"
"""What stands for a column of a marked row of which only a delete told; it is written only where the row is not there."""
_CHANGE = (CHANGE, CHANGE_VERSION, CHANGE_AT, CHANGE_MS, CHANGE_CARRIES)


def event_columns(load: Load) -> tuple[StageColumn, ...]:
    """Return the columns of a relation of changes."""
    change = (
        StageColumn(KEY, Text()),
        StageColumn(CHANGE, Text()),
        StageColumn(CHANGE_VERSION, Text()),
        StageColumn(CHANGE_AT, TimestampTZ()),
        StageColumn(CHANGE_MS, BigInt()),
        StageColumn(CHANGE_CARRIES, Text()),
    )
    return (*load.columns, *change)


def final_columns(load: Load) -> tuple[StageColumn, ...]:
    """Return the columns of a relation of what changes come to."""
    return (*event_columns(load), StageColumn(CREATES, Integer()))


def key_json(load: Load, alias: str) -> str:
    """Return the dialect's expression for the key of a row as JSON, the same for equal keys."""
    dialect = load.dialect
    by_name = {column.name: column for column in load.columns}
    values = {}
    for name in load.keys:
        value = f"{alias}.{native_column(name, dialect)}"
        values[name] = value if by_name[name].type.kind in _PLAIN else column_text(by_name[name], value, dialect)
    if dialect == "postgres":
        return _postgres_json(values)
    pairs = ", ".join(f"{exp.Literal.string(name).sql(dialect=dialect)}, {value}" for name, value in values.items())
    match dialect:
        case "mysql":
            return f"CAST(JSON_OBJECT({pairs}) AS CHAR)"
        case "duckdb":
            return f"CAST(json_object({pairs}) AS VARCHAR)"
        case "spark":
            return f"to_json(named_struct({pairs}))"
        case _:
            return f"json_object({pairs})"


def _postgres_json(values: Mapping[str, str]) -> str:
    """Return the text of a `jsonb` object, put together: to build the object itself takes several times as long."""
    parts, head = [], "{"
    for name in sorted(values, key=lambda one: (len(one.encode()), one.encode())):  # as jsonb has them
        before = text(f"{head}{json.dumps(name, ensure_ascii=False)}: ")
        parts += [before, f"COALESCE(CAST(to_json({values[name]}) AS TEXT), 'null')"]
        head = ", "
    return f"CONCAT({', '.join(parts)}, '}}')"


def keyed_events(load: Load) -> str:
    """Return the query for the staged changes with their keys, each once, as canonical SQL with a marker."""
    names = ", ".join(f"s.{quoted(name)}" for name in (*load.names, *_CHANGE))
    key = f"CASE WHEN s.{quoted(CHANGE)} = '{TRUNCATE}' THEN {text(WHOLE_TABLE)} ELSE {KEY_OF_ROW}() END"
    same = ", ".join([f"s.{quoted(CHANGE)} = '{TRUNCATE}'", *(f"s.{quoted(name)}" for name in load.keys)])
    arrival = ", ".join(f"s.{quoted(name)} DESC" for name in load.order) or f"s.{quoted(CHANGE)}"
    rank = f"ROW_NUMBER() OVER (PARTITION BY {same}, s.{quoted(CHANGE_VERSION)} ORDER BY {arrival})"
    return (
        f'SELECT {names}, {key} AS {quoted(KEY)}, {rank} AS _flow_rank FROM "{STAGED}" AS s '
        f"WHERE s.{quoted(CHANGE)} <> '{SKIP}'"
    )


def is_soft(load: Load) -> bool:
    """Return whether rows that are deleted stay, with a mark."""
    return load.changes is not None and bool(load.changes.soft)


def collapsed(load: Load, events: str) -> str:
    """Return the query for what the changes of every key come to, over a relation of new changes, as canonical SQL."""
    change, version = quoted(CHANGE), quoted(CHANGE_VERSION)
    by_key = f"PARTITION BY {quoted(KEY)}"
    columns = listed([column.name for column in event_columns(load)])
    cleared = f"{_last_delete(by_key)} AS _flow_cleared"
    marking = f"'' AS _flow_cleared, ROW_NUMBER() OVER ({by_key} ORDER BY {version}) AS _flow_nth"
    placed = (
        f"placed AS (SELECT {columns}, ROW_NUMBER() OVER ({by_key} ORDER BY {version} DESC) AS _flow_back, "
        f"{marking if is_soft(load) else cleared}, "
        f"MAX({_is_partial(load)}) OVER ({by_key}) AS _flow_partial, "
        f"{_creates(load, by_key)} AS {quoted(CREATES)} FROM {events})"
    )
    gone = "" if is_soft(load) else f" OR {change} = '{DELETE}'"
    ignored = _is_ignored(load)
    last = columns
    if ignored:
        gone += f" OR {ignored}"
        last = columns.replace(change, f"CASE WHEN {ignored} THEN '{DELETE}' ELSE {change} END AS {change}")
    whole = f"SELECT {last}, {quoted(CREATES)} FROM placed WHERE _flow_back = 1 AND (_flow_partial = 0{gone})"
    has = ", ".join(f"{_knowledge(load, index)} AS {_HAS.format(index)}" for index, _ in enumerate(load.names))
    # Only keys with changes that lack columns are gathered column by column, after the last delete.
    parts = (
        f"parts AS (SELECT {columns}, {quoted(CREATES)}, _flow_back, _flow_cleared, {has} FROM placed "
        f"WHERE _flow_partial = 1 AND {version} > _flow_cleared{f' AND NOT ({ignored})' if ignored else ''})"
    )
    return f"WITH {placed}, {parts}, {_gathered(load, by_key)} {whole} UNION ALL {_merged(load)}"


def _last_delete(by_key: str) -> str:
    """Return the version of the last delete of a key, as canonical SQL."""
    version = quoted(CHANGE_VERSION)
    return f"MAX(CASE WHEN {quoted(CHANGE)} = '{DELETE}' THEN {version} ELSE '' END) OVER ({by_key})"


def _creates(load: Load, by_key: str) -> str:
    """Return 1 where a change creates the row of a key: of rows that are deleted, after the last delete."""
    change, updates = quoted(CHANGE), f"('{UPDATE}', '{DELETE}')"
    if is_soft(load):
        return f"MAX(CASE WHEN {change} IN {updates} THEN 0 ELSE 1 END) OVER ({by_key})"
    created = f"MAX(CASE WHEN {change} IN {updates} THEN '' ELSE {quoted(CHANGE_VERSION)} END) OVER ({by_key})"
    return f"CASE WHEN {created} > {_last_delete(by_key)} THEN 1 ELSE 0 END"


def _is_ignored(load: Load) -> str:
    """Return the condition that an update finds no row because one of its batch deleted it; empty where updates insert."""
    if load.changes is None or load.changes.inserts or is_soft(load):
        return ""
    return f"({quoted(CHANGE)} = '{UPDATE}' AND _flow_cleared <> '' AND {quoted(CREATES)} = 0)"


def _is_partial(load: Load) -> str:
    """Return 1 for a change that lacks columns of its row, as canonical SQL.

    A delete carries what is known of the row that is gone, which is never all that a row needs: a row that stays has the
    columns that were written before, and one that goes needs none.
    """
    change, lacks = quoted(CHANGE), f"CASE WHEN {quoted(CHANGE_CARRIES)} IS NULL THEN 0 ELSE 1 END"
    deleted = "1" if is_soft(load) else "0"
    return f"CASE WHEN {change} = '{DELETE}' THEN {deleted} WHEN {change} = '{TRUNCATE}' THEN 0 ELSE {lacks} END"


def _knowledge(load: Load, index: int) -> str:
    """Return what a change knows of the column of a number, the more the greater, as canonical SQL.

    What a delete tells of a marked row is only for one that nothing else has written: connectors fill in what a log that
    keeps the key alone does not have.
    """
    carried = f"CASE WHEN {_carries(index)} THEN 1 ELSE 0 END"
    if not is_soft(load):
        return carried
    reported = f"CASE WHEN _flow_nth = 1 AND {_carries(index)} THEN 1 ELSE 0 END"
    return f"CASE WHEN {quoted(CHANGE)} = '{DELETE}' THEN {reported} ELSE 2 * {carried} END"


def _carries(index: int) -> str:
    carries = quoted(CHANGE_CARRIES)
    return f"({carries} IS NULL OR SUBSTRING({carries}, {index + 1}, 1) = '1')"


def _gathered(load: Load, by_key: str) -> str:
    retained = listed([KEY, CHANGE, CHANGE_VERSION, CHANGE_AT, CHANGE_MS, CREATES])
    values = [
        f"FIRST_VALUE({quoted(name)}) OVER ({by_key} ORDER BY {_HAS.format(index)} DESC, {quoted(CHANGE_VERSION)} DESC) "
        f"AS {quoted(name)}, MAX({_HAS.format(index)}) OVER ({by_key}) AS _flow_any_{index}"
        for index, name in enumerate(load.names)
    ]
    return f"gathered AS (SELECT {retained}, _flow_back, _flow_cleared, {', '.join(values)} FROM parts)"


def _merged(load: Load) -> str:
    """Return the last change of keys that were gathered; after a delete nothing of the old row is left to keep."""
    any_of = [f"_flow_any_{index}" for index, _ in enumerate(load.names)]
    values = [f"CASE WHEN {has} > 0 THEN {quoted(name)} END" for name, has in zip(load.names, any_of, strict=True)]
    reported = f"WHEN 1 THEN '{_REPORTED}' WHEN 2 THEN '1'" if is_soft(load) else "WHEN 1 THEN '1'"
    carries = joined([f"CASE {has} {reported} ELSE '0' END" for has in any_of], load.dialect)
    return (
        f"SELECT {', '.join(values)}, {listed([KEY, CHANGE, CHANGE_VERSION, CHANGE_AT, CHANGE_MS])}, "
        f"CASE WHEN _flow_cleared = '' THEN {carries} END, {quoted(CREATES)} FROM gathered WHERE _flow_back = 1"
    )


def truncated(load: Load, events: str) -> str:
    """Return the query for the deletes that truncates mean for rows which changes before them wrote, as canonical SQL.

    Marked rows stay, so what is older than a truncate of the same batch counts; one that comes in a later batch marks
    the rows that are there.
    """
    change, version, keys = quoted(CHANGE), quoted(CHANGE_VERSION), [KEY, *load.keys]
    followed = (
        f"SELECT {listed([*keys, CHANGE, CHANGE_VERSION])}, LEAD({version}) "
        f"OVER (PARTITION BY {quoted(KEY)} ORDER BY {version}) AS _flow_then FROM {events}"
    )
    written = (
        f"SELECT {listed(keys, 'e')}, MIN(t.{version}) AS _flow_end FROM {events} AS t CROSS JOIN ({followed}) AS e "
        f"WHERE t.{change} = '{TRUNCATE}' AND e.{change} NOT IN ('{DELETE}', '{TRUNCATE}') "
        f"AND t.{version} > e.{version} AND (e._flow_then IS NULL OR t.{version} < e._flow_then) "
        f"GROUP BY {listed(keys, 'e')}, e.{version}"
    )
    values = {name: f"w.{quoted(name)}" for name in keys}
    values |= {name: f"t.{quoted(name)}" for name in (CHANGE_VERSION, CHANGE_AT, CHANGE_MS)}
    values |= {CHANGE: f"'{DELETE}'", CHANGE_CARRIES: text("0" * len(load.names))}
    chosen = [f"{values.get(column.name, 'NULL')} AS {quoted(column.name)}" for column in event_columns(load)]
    return (
        f"SELECT {', '.join(chosen)} FROM ({written}) AS w "
        f"INNER JOIN {events} AS t ON t.{change} = '{TRUNCATE}' AND t.{version} = w._flow_end"
    )


def joined(parts: Sequence[str], dialect: str) -> str:
    """Return texts one after the other as canonical SQL for a dialect: SQLite has no function for it, MySQL no operator."""
    return " || ".join(parts) if dialect == "sqlite" else f"CONCAT({', '.join(parts)})"


def is_carried(index: int, alias: str) -> str:
    """Return the condition that a change carries the column of a number, as canonical SQL."""
    carries = f"{alias}.{quoted(CHANGE_CARRIES)}"
    return f"({carries} IS NULL OR SUBSTRING({carries}, {index + 1}, 1) = '1')"


def is_known(index: int, alias: str) -> str:
    """Return the condition that the column of a number is carried, or told by a delete alone, as canonical SQL."""
    carries = f"{alias}.{quoted(CHANGE_CARRIES)}"
    return f"({carries} IS NULL OR SUBSTRING({carries}, {index + 1}, 1) <> '0')"


def utc(at: str) -> str:
    """Return an instant without its zone, as canonical SQL that only `rendered` can render."""
    return f"{_UTC}({at})"


def rendered(canonical: str, dialect: str, inserts: dict[str, str] | None = None) -> str:
    """Return the dialect's SQL for canonical SQL, in which instants may be without their zone."""
    tree = parse_one(canonical, read=CANONICAL)
    for node in list(tree.find_all(exp.Anonymous)):
        if node.name == _UTC:
            node.replace(exp.paren(sql_func("utc", dialect, x=node.expressions[0])))
    sql = tree.sql(dialect=dialect)
    for marker, native in (inserts or {}).items():
        sql = sql.replace(f"{marker}()", native)
    return sql


def tally_sql(events: str) -> str:
    """Return the query for the counts of changes, over the relation of those that were new, as canonical SQL."""
    change = quoted(CHANGE)
    new = _by_operation(events)
    staged = f'FROM "{STAGED}" AS s'
    skipped = f"SELECT 'skipped', COUNT(*) {staged} WHERE s.{change} = '{SKIP}'"
    repeated = (
        f"SELECT 'repeated', (SELECT COUNT(*) {staged} WHERE s.{change} <> '{SKIP}') - (SELECT COUNT(*) FROM {events})"
    )
    return f"{new} UNION ALL {skipped} UNION ALL {repeated}"


def staged_tally() -> str:
    """Return the query for the counts of changes where every staged one is a version, as canonical SQL."""
    return _by_operation(f'"{STAGED}" AS s')


def _by_operation(relation: str) -> str:
    change = quoted(CHANGE)
    names = {DELETE: "deletes", TRUNCATE: "deletes", UPDATE: "updates", SKIP: "skipped"}
    kind = " ".join(f"WHEN {change} = '{code}' THEN '{name}'" for code, name in names.items())
    return f"SELECT CASE {kind} ELSE 'creates' END AS kind, COUNT(*) AS number FROM {relation} GROUP BY {change}"
