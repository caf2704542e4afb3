"""Changes of another database as Spark SQL for lake tables: one MERGE, because that is the table's commit.

Rows have the version of their last change in a column. Keys whose rows are gone have theirs in the metadata of the
table, which counts from the same commit on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.session import Statement
from ematix_flow.connect.base.stage import StageColumn, WorkTable
from ematix_flow.connect.changes.change import DELETE, TRUNCATE, UPDATE
from ematix_flow.connect.lake.sql_session import POINTS_FOLDER
from ematix_flow.declare.table.types import Text, TimestampTZ
from ematix_flow.plan.columns import CHANGE, CHANGE_AT, CHANGE_CARRIES, CHANGE_VERSION
from ematix_flow.plan.sql.ddl import VERSION
from ematix_flow.plan.sql.modes.append_truncate_merge import same_key
from ematix_flow.plan.sql.modes.change_rows import (
    CREATES,
    KEY,
    KEY_OF_ROW,
    WHOLE_TABLE,
    collapsed,
    event_columns,
    final_columns,
    is_carried,
    is_known,
    key_json,
    keyed_events,
    rendered,
    tally_sql,
    truncated,
    utc,
)
from ematix_flow.plan.sql.modes.moved_rows import has_moved, inherited
from ematix_flow.plan.sql.program import Program
from ematix_flow.plan.sql.render import identifier_value, instant, listed, native_name, quoted, render, table_sql, text
from ematix_flow.records import run_tag

if TYPE_CHECKING:
    from ematix_flow.plan.sql.program import ChangeRules, Load

DIALECT = "spark"
_SINCE = "_flow_loaded_at"
_INHERITED = "_flow_inherited"
"""Stands for the query for what rows with another key had under the old one."""


def deleted_key_columns() -> tuple[StageColumn, ...]:
    """Return the columns of the relation of keys whose rows are gone."""
    return (StageColumn(KEY, Text()), StageColumn(CHANGE_VERSION, Text()), StageColumn(_SINCE, TimestampTZ()))


def apply_changes(load: Load) -> Program:
    """Apply the changes of a batch to a lake table."""
    rules = load.changes
    assert rules is not None  # noqa: S101 - only loads of changes have this mode
    assert load.points is not None  # noqa: S101 - set where rows have their versions themselves
    tag = run_tag(load.batch_id)
    events, final, actions = (f"_flow_{name}_{tag}" for name in ("changes", "final", "actions"))
    statements = (
        Statement(_new_events(load, rules), "", "collect the changes that are newer than their rows", cache_as=events),
        Statement(
            render(collapsed(load, _with_truncated(load, rules, events)), DIALECT),
            "",
            "work out what the changes of every key come to",
            cache_as=final,
        ),
        Statement(
            _completed(load, rules, events),
            "",
            "let rows with another key have what the old one had",
            when=has_moved(load, events),
            cache_as=final,
        ),
        Statement(_actions(load, rules, events, final), "", "work out what becomes of every row", cache_as=actions),
        Statement(_remember(load, final, actions), "", "remember the keys whose rows are gone", fills_points=True),
        Statement(_merge(load, rules, actions), "", "write, mark and delete rows", final=True),
    )
    known = (WorkTable(load.points.name, deleted_key_columns()),)
    tally = f"{render(tally_sql(quoted(events)), DIALECT)} UNION ALL {_row_tally(load, rules, actions)}"
    return Program("MERGE INTO (changes)", statements, known, reads_staged_once=False, tally=tally)


def _deleted_keys(load: Load) -> str:
    assert load.points is not None  # noqa: S101 - set where rows have their versions themselves
    return table_sql(load.points)


def _with_truncated(load: Load, rules: ChangeRules, events: str) -> str:
    """Return the relation of changes in which a truncate is a delete of what came before it, where rows stay."""
    if not rules.soft:
        return quoted(events)
    names = listed([column.name for column in event_columns(load)])
    return f"(SELECT {names} FROM {quoted(events)} UNION ALL {truncated(load, quoted(events))}) AS events"


def _completed(load: Load, rules: ChangeRules, events: str) -> str:
    """Return what the changes of every key come to, where rows that got another key have what the old one had."""
    names = listed([column.name for column in event_columns(load)])
    relation = f"(SELECT {names} FROM {_with_truncated(load, rules, events)} UNION ALL SELECT {names} FROM {quoted(_INHERITED)}) AS events"
    return render(collapsed(load, relation), DIALECT).replace(f"`{_INHERITED}`", f"({inherited(load, events)})")


def _new_events(load: Load, rules: ChangeRules) -> str:
    names = [column.name for column in event_columns(load)]
    version, key = f"e.{quoted(CHANGE_VERSION)}", f"e.{quoted(KEY)}"
    # Marked rows stay, so those count which a truncate of the same batch marks.
    of_batch = f" UNION ALL SELECT s.{quoted(CHANGE_VERSION)} FROM \"_flow_staged\" AS s WHERE s.{quoted(CHANGE)} = '{TRUNCATE}'"
    emptied = (
        f"SELECT MAX(v) FROM (SELECT m.{quoted(CHANGE_VERSION)} AS v FROM {_deleted_keys(load)} AS m "
        f"WHERE m.{quoted(KEY)} = {text(WHOLE_TABLE)}{'' if rules.soft else of_batch}) AS emptied"
    )
    sql = (
        f"SELECT {listed(names, 'e')} FROM ({keyed_events(load)}) AS e "
        f"LEFT JOIN {table_sql(load.target)} AS tgt ON {same_key(load.keys, 'tgt', 'e')} "
        f"LEFT JOIN {_deleted_keys(load)} AS m ON m.{quoted(KEY)} = {key} "
        f"WHERE e._flow_rank = 1 AND {version} > COALESCE(tgt.{quoted(VERSION.name)}, '') "
        f"AND {version} > COALESCE(m.{quoted(CHANGE_VERSION)}, '') "
        f"AND ((e.{quoted(CHANGE)} = '{TRUNCATE}') OR {version} > COALESCE(({emptied}), ''))"
    )
    return rendered(sql, DIALECT, {KEY_OF_ROW: key_json(load, "s")})


def _cleared(events: str) -> str:
    """Return the query for the last truncate of a batch, and the time of the first, which finds the rows that are there."""
    first = f"MIN_BY(c.{quoted(CHANGE_AT)}, c.{quoted(CHANGE_VERSION)})"
    return f"SELECT MAX(c.{quoted(CHANGE_VERSION)}) AS version, {first} AS at FROM {quoted(events)} AS c WHERE c.{quoted(CHANGE)} = '{TRUNCATE}'"


def _actions(load: Load, rules: ChangeRules, events: str, final: str) -> str:
    """Return what happens to every row: the last changes, and the rows that a truncated table removes."""
    names = [column.name for column in final_columns(load)]
    cleared = _cleared(events)
    effects = _effects(load, rules)
    values = [f"{effects[name]} AS {quoted(name)}" if name in effects else f"f.{quoted(name)}" for name in names]
    there = f"CASE WHEN tgt.{quoted(load.keys[0])} IS NULL THEN 0 ELSE 1 END AS _flow_there"
    changed = (
        f"SELECT {', '.join(values)}, {there} FROM {quoted(final)} AS f CROSS JOIN ({cleared}) AS t "
        f"LEFT JOIN {table_sql(load.target)} AS tgt ON {same_key(load.keys, 'tgt', 'f')} "
        f"WHERE f.{quoted(CHANGE)} <> '{TRUNCATE}'"
    )
    old = {
        KEY: "''",
        CHANGE: f"'{DELETE}'",
        CHANGE_VERSION: "t.version",
        CHANGE_AT: "t.at",
        CREATES: "0",
    }
    gone = [f"tgt.{quoted(name)}" if name in load.names else old.get(name, "NULL") for name in names]
    changed_key = f"SELECT 1 FROM {quoted(final)} AS f WHERE {same_key(load.keys, 'tgt', 'f')}"
    deleted = f" AND tgt.{quoted(rules.soft)} IS NULL" if rules.soft else ""
    removed = (
        f"SELECT {', '.join(gone)}, 1 FROM {table_sql(load.target)} AS tgt CROSS JOIN ({cleared}) AS t "
        f"WHERE COALESCE(tgt.{quoted(VERSION.name)}, '') < t.version AND NOT EXISTS ({changed_key}){deleted}"
    )
    return render(f"{changed} UNION ALL {removed}", DIALECT)


def _effects(load: Load, rules: ChangeRules) -> dict[str, str]:
    """Return the columns of a last change that depend on the row it finds, as canonical SQL.

    Behind a truncated table nothing of an older row is left to keep, unless rows are only marked. An update that is
    ignored because its row is missing is a delete, whose key is remembered: no older change makes the row again.
    """
    emptied = f"COALESCE(tgt.{quoted(VERSION.name)}, '') < COALESCE(t.version, '')"
    missing, effects = f"tgt.{quoted(load.keys[0])} IS NULL", {}
    if not rules.soft:
        missing = f"({missing} OR {emptied})"
        effects[CHANGE_CARRIES] = f"CASE WHEN {emptied} THEN NULL ELSE f.{quoted(CHANGE_CARRIES)} END"
    if not rules.inserts:
        ignored = f"f.{quoted(CHANGE)} = '{UPDATE}' AND f.{quoted(CREATES)} = 0 AND {missing}"
        effects[CHANGE] = f"CASE WHEN {ignored} THEN '{DELETE}' ELSE f.{quoted(CHANGE)} END"
    return effects


def _remember(load: Load, final: str, actions: str) -> str:
    """Return the statement that writes down the keys whose rows are gone; older ones are forgotten in time."""
    gone = (
        f"SELECT {listed([KEY, CHANGE_VERSION], 'a')} FROM {quoted(actions)} AS a "
        f"WHERE a.{quoted(CHANGE)} = '{DELETE}' AND a.{quoted(KEY)} <> '' UNION ALL "
        f"SELECT {listed([KEY, CHANGE_VERSION], 'f')} FROM {quoted(final)} AS f WHERE f.{quoted(CHANGE)} = '{TRUNCATE}'"
    )
    touched = f"SELECT 1 FROM {quoted(final)} AS f WHERE f.{quoted(KEY)} = m.{quoted(KEY)}"
    retention = (
        f" AND m.{quoted(_SINCE)} >= {instant(load.forget_before, DIALECT)}" if load.forget_before is not None else ""
    )
    rows = (
        f"SELECT m.{quoted(KEY)}, m.{quoted(CHANGE_VERSION)}, m.{quoted(_SINCE)} FROM {_deleted_keys(load)} AS m "
        f"WHERE NOT EXISTS ({touched}){retention} UNION ALL "
        f"SELECT {listed([KEY, CHANGE_VERSION], 'g')}, {instant(load.loaded_at, DIALECT)} FROM ({gone}) AS g"
    )
    return f"INSERT OVERWRITE DIRECTORY '{POINTS_FOLDER}' USING parquet {render(rows, DIALECT)}"


def _row_tally(load: Load, rules: ChangeRules, actions: str) -> str:
    there = "a._flow_there = 1"
    gone = f"a.{quoted(CHANGE)} = '{DELETE}'"
    kind = (
        f"CASE WHEN {gone} AND {there} THEN 'deleted' WHEN {gone} THEN {text('inserted' if rules.soft else 'skipped')} "
        f"WHEN {there} THEN 'updated' ELSE 'inserted' END"
    )
    counted = there + f" OR ({_inserted(load, rules, 'a')})"
    return render(f"SELECT {kind}, COUNT(*) FROM {quoted(actions)} AS a WHERE {counted} GROUP BY {kind}", DIALECT)


def _inserted(load: Load, rules: ChangeRules, alias: str) -> str:
    """Return the condition that a change inserts a row that is not there, as canonical SQL."""
    change = f"{alias}.{quoted(CHANGE)}"
    created = "" if rules.inserts else f" AND {alias}.{quoted(CREATES)} = 1"
    written = f"({change} <> '{DELETE}'{created})"
    if not rules.soft:
        return written
    known = [is_known(index, alias) for index, name in enumerate(load.names) if name in rules.required]
    gone = " AND ".join([f"{change} = '{DELETE}'", *known])
    return f"{written} OR ({gone}{created})"


def _merge(load: Load, rules: ChangeRules, actions: str) -> str:
    target, gone = native_name(load.target, DIALECT), f"s.{quoted(CHANGE)} = '{DELETE}'"
    stamp = [instant(load.loaded_at, DIALECT), identifier_value(load.batch_id, DIALECT)] if load.stamped else []
    more = [f"tgt.{quoted(VERSION.name)} = s.{quoted(CHANGE_VERSION)}"]
    more += [f"tgt.{quoted(name)} = {value}" for name, value in zip(load.stamps, stamp, strict=True)]
    sets = {
        name: f"tgt.{quoted(name)} = CASE WHEN {is_carried(index, 's')} THEN s.{quoted(name)} ELSE tgt.{quoted(name)} END"
        for index, name in enumerate(load.names)
        if name not in load.keys
    }
    since = _gone_since(load, rules) if rules.soft else ""
    values = [
        f"CASE WHEN {gone} THEN {since} END" if name == rules.soft else f"s.{quoted(name)}" for name in load.names
    ]
    names = listed((*load.names, VERSION.name, *load.stamps))
    inserted = ", ".join([*values, f"s.{quoted(CHANGE_VERSION)}", *stamp])
    marked = sets | {rules.soft: f"tgt.{quoted(rules.soft)} = {since}"}
    deleted = f"UPDATE SET {', '.join([*marked.values(), *more])}" if rules.soft else "DELETE"
    written = f"UPDATE SET {', '.join([*sets.values(), *more])}"
    clauses = [
        f"WHEN MATCHED AND {_spark(gone)} THEN {_clause(deleted)}",
        f"WHEN MATCHED THEN {_clause(written)}",
        f"WHEN NOT MATCHED AND {_spark(_inserted(load, rules, 's'))} THEN INSERT ({_spark_names(names)}) VALUES ({_spark(inserted)})",
    ]
    same = _spark(same_key(load.keys, "tgt", "s"))
    return f"MERGE INTO {target} AS tgt USING {_spark_names(quoted(actions))} AS s ON {same} {' '.join(clauses)}"


def _gone_since(load: Load, rules: ChangeRules) -> str:
    kind = next(column.type.kind for column in load.columns if column.name == rules.soft)
    if kind == "boolean":
        return "TRUE"
    since = f"COALESCE(s.{quoted(CHANGE_AT)}, {instant(load.loaded_at, DIALECT)})"
    return since if kind == "timestamp_tz" else utc(since)


def _clause(canonical: str) -> str:
    """Return the end of a clause of MERGE for Spark."""
    if not canonical.startswith("UPDATE SET "):
        return canonical
    return "UPDATE " + rendered(f"UPDATE tgt {canonical.removeprefix('UPDATE ')}", DIALECT).removeprefix("UPDATE tgt ")


def _spark(canonical: str) -> str:
    """Return an expression, or several, for Spark."""
    return rendered(f"SELECT {canonical}", DIALECT).removeprefix("SELECT ")


def _spark_names(canonical: str) -> str:
    return canonical.replace('"', "`")
