"""Changes of another database as a program for databases: one transaction, a few statements over all keys of a batch.

The versions of keys are in a table of ours and move in the same transaction, also those of rows that are deleted. So a
change that comes twice, late or in another batch than its neighbours leads to the same table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.session import Statement
from ematix_flow.connect.base.stage import WorkTable
from ematix_flow.connect.changes.change import DELETE, READ, SKIP, TRUNCATE
from ematix_flow.plan.columns import CHANGE, CHANGE_AT, CHANGE_MS, CHANGE_VERSION
from ematix_flow.plan.sql.modes.append_truncate_merge import insert_value, same_key
from ematix_flow.plan.sql.modes.change_rows import (
    CREATES,
    KEY,
    KEY_OF_ROW,
    SNAPSHOT,
    WHOLE_TABLE,
    collapsed,
    event_columns,
    final_columns,
    is_carried,
    is_known,
    key_json,
    keyed_events,
    rendered,
    staged_tally,
    tally_sql,
    truncated,
    utc,
)
from ematix_flow.plan.sql.modes.moved_rows import has_moved, inheriting
from ematix_flow.plan.sql.program import Program
from ematix_flow.plan.sql.render import (
    STAGED,
    identifier_value,
    instant,
    listed,
    native_name,
    quoted,
    render,
    table_sql,
    text,
)

if TYPE_CHECKING:
    from ematix_flow.plan.sql.program import ChangeRules, Load

LABEL = "CDC (changes by key)"
EVENTS = "_flow_events"
FINAL = "_flow_final"
_VERSION = ("pipeline_name", "pk_json", "last_order", "last_seen_ts_ms", "updated_at")
"""The columns of the version of a key."""
_CAST = "FLOW_CAST"
"""Marker of a value of a type that only the database knows."""


def apply_changes(load: Load) -> Program:
    """Apply the changes of a batch to a table."""
    rules = load.changes
    assert rules is not None  # noqa: S101 - only loads of changes have this mode
    tally = render(
        f"{tally_sql(quoted(EVENTS))} UNION ALL {_late(rules)}", load.dialect, {KEY_OF_ROW: key_json(load, "s")}
    )
    statements = [
        *_beginning(load, rules),
        Statement(
            _new_events(load, rules),
            "",
            "collect the changes that are newer than their rows",
            when=_has_begun(load, rules, begun=False) if rules.is_snapshot else "",
            tally=tally,
        ),
        *_truncating(load, rules),
        Statement(
            inheriting(load, EVENTS),
            "",
            "let rows with another key have what the old one had",
            when=has_moved(load, EVENTS),
        ),
        Statement(_final(load), "", "work out what the changes of every key come to"),
        *_deleting(load, rules),
        *_clearing(load, rules),
        Statement(_updating(load), "updated", "update the rows that are there"),
        Statement(_inserting(load, rules), "inserted", "insert the others"),
        Statement(_moving(load, rules), "", "move the versions of known keys"),
        Statement(_remembering(load, rules), "", "remember the versions of new keys"),
        *_filling(load, rules),
    ]
    work = (WorkTable(EVENTS, event_columns(load)), WorkTable(FINAL, final_columns(load), load.keys))
    return Program(LABEL, tuple(statements), work, reads_staged_once=False)


def _versions(rules: ChangeRules) -> str:
    assert rules.versions is not None  # noqa: S101 - databases have such a table
    return table_sql(rules.versions)


def _of_scope(rules: ChangeRules, alias: str) -> str:
    return f"{alias}.{quoted('pipeline_name')} = {text(rules.scope)}"


def _beginning(load: Load, rules: ChangeRules) -> list[Statement]:
    """Return what gives all rows of a snapshot one version, where they are the first of their table and each has its own key."""
    if not rules.is_snapshot:
        return []
    version, read = quoted(CHANGE_VERSION), f"FROM \"{STAGED}\" AS {{0}} WHERE {{0}}.{quoted(CHANGE)} = '{READ}'"
    repeated = f"SELECT 1 {read.format('r')} GROUP BY {listed(load.keys, 'r')} HAVING COUNT(*) > 1"
    there = f"SELECT 1 FROM {table_sql(load.target)} AS tgt"
    known = f"SELECT 1 FROM {_versions(rules)} AS v WHERE {_of_scope(rules, 'v')}"
    absent = " AND ".join(f"NOT EXISTS ({query})" for query in (there, known, repeated))
    sql = (
        f"INSERT INTO {_versions(rules)} ({listed(_VERSION)}) SELECT {text(rules.scope)}, {text(SNAPSHOT)}, "
        f"MAX(s.{version}), MAX(s.{quoted(CHANGE_MS)}), {instant(load.loaded_at, load.dialect)} "
        f"{read.format('s')} AND {absent} HAVING COUNT(*) > 0 AND MIN(s.{version}) = MAX(s.{version})"
    )
    return [Statement(render(sql, load.dialect), "", "give the first rows of a table one version")]


def _has_begun(load: Load, rules: ChangeRules, *, begun: bool = True) -> str:
    """Return the query that has a row where this load gave all its rows one version, or where it did not."""
    sql = (
        f"SELECT COUNT(*) AS n FROM {_versions(rules)} AS v WHERE {_of_scope(rules, 'v')} "
        f"AND v.{quoted('pk_json')} = {text(SNAPSHOT)} "
        f"AND v.{quoted('updated_at')} = {instant(load.loaded_at, load.dialect)} HAVING COUNT(*) = {int(begun)}"
    )
    return render(sql, load.dialect)


def _filling(load: Load, rules: ChangeRules) -> list[Statement]:
    """Return what inserts the rows of a snapshot that have one version; nothing else has to be known of them."""
    if not rules.is_snapshot:
        return []
    values = [*(_written_value(load, name) for name in load.names), *_stamp(load)]
    sql = (
        f"INSERT INTO {table_sql(load.target)} ({listed((*load.names, *load.stamps))}) "
        f"SELECT {', '.join(values)} FROM \"{STAGED}\" AS s WHERE s.{quoted(CHANGE)} = '{READ}'"
    )
    when, tally = _has_begun(load, rules), render(staged_tally(), load.dialect)
    insert = rendered(sql, load.dialect, _casts(load))
    return [Statement(insert, "inserted", "insert the first rows of the table", when=when, tally=tally)]


def _new_events(load: Load, rules: ChangeRules) -> str:
    names = [column.name for column in event_columns(load)]
    # Looked up and not joined: PostgreSQL expects a handful of versions until it has statistics, and compares all pairs.
    known = (
        f"SELECT v.{quoted('last_order')} FROM {_versions(rules)} AS v "
        f"WHERE {_of_scope(rules, 'v')} AND v.{quoted('pk_json')} = e.{quoted(KEY)}"
    )
    cleared, first = (_version_of(rules, key, alias) for key, alias in ((WHOLE_TABLE, "w"), (SNAPSHOT, "f")))
    version = f"e.{quoted(CHANGE_VERSION)}"
    # A row of the snapshot itself may have been bad, and comes again when it is replayed.
    since = f"({version} > COALESCE(({first}), '') OR ({version} = ({first}) AND e.{quoted(CHANGE)} = '{READ}'))"
    emptied = f"SELECT MAX(t.{quoted(CHANGE_VERSION)}) FROM \"{STAGED}\" AS t WHERE t.{quoted(CHANGE)} = '{TRUNCATE}'"
    # Marked rows stay, so those count which a truncate of the same batch marks.
    left = "" if rules.soft else f" AND (e.{quoted(CHANGE)} = '{TRUNCATE}' OR {version} > COALESCE(({emptied}), ''))"
    sql = (
        f"INSERT INTO {quoted(EVENTS)} ({listed(names)}) SELECT {listed(names, 'e')} FROM ({keyed_events(load)}) AS e "
        f"WHERE e._flow_rank = 1 AND {version} > COALESCE(({known}), '') "
        f"AND {version} > COALESCE(({cleared}), '') AND {since}{left}"
    )
    return render(sql, load.dialect, {KEY_OF_ROW: key_json(load, "s")})


def _version_of(rules: ChangeRules, key: str, alias: str) -> str:
    """Return the query for the version that many rows have under one key, as canonical SQL."""
    return (
        f"SELECT {alias}.{quoted('last_order')} FROM {_versions(rules)} AS {alias} "
        f"WHERE {_of_scope(rules, alias)} AND {alias}.{quoted('pk_json')} = {text(key)}"
    )


def _late(rules: ChangeRules) -> str:
    """Return the query for the count of changes that came long after a newer one of their key, as canonical SQL.

    It reads the versions before they move, and only where a change was not new.
    """
    staged = f"FROM \"{STAGED}\" AS {{}} WHERE {{}}.{quoted(CHANGE)} <> '{SKIP}'"
    is_any_old = f"(SELECT COUNT(*) {staged.format('n', 'n')}) > (SELECT COUNT(*) FROM {quoted(EVENTS)})"
    of_rows = f"{staged.format('s', 's')} AND s.{quoted(CHANGE)} <> '{TRUNCATE}'"
    known = (
        f"SELECT 1 FROM {_versions(rules)} AS v WHERE {_of_scope(rules, 'v')} AND v.{quoted('pk_json')} = {KEY_OF_ROW}() "
        f"AND v.{quoted('last_order')} > s.{quoted(CHANGE_VERSION)} "
        f"AND v.{quoted('last_seen_ts_ms')} - {rules.tolerated_ms} > s.{quoted(CHANGE_MS)}"
    )
    return f"SELECT 'late', COUNT(*) {of_rows} AND {is_any_old} AND EXISTS ({known})"


def _truncating(load: Load, rules: ChangeRules) -> list[Statement]:
    """Return what a truncated table does to the rows that changes of the same batch wrote before, where they stay."""
    if not rules.soft:
        return []
    names = listed([column.name for column in event_columns(load)])
    sql = f"INSERT INTO {quoted(EVENTS)} ({names}) {truncated(load, quoted(EVENTS))}"
    when = render(f"SELECT 1 FROM {quoted(EVENTS)} AS t WHERE t.{quoted(CHANGE)} = '{TRUNCATE}' LIMIT 1", load.dialect)
    return [Statement(render(sql, load.dialect), "", "mark what a truncated table had before", when=when)]


def _final(load: Load) -> str:
    names = listed([column.name for column in final_columns(load)])
    return render(f"INSERT INTO {quoted(FINAL)} ({names}) {collapsed(load, quoted(EVENTS))}", load.dialect)


def _clearing(load: Load, rules: ChangeRules) -> list[Statement]:
    """Return what a truncated table does to the rows that are older."""
    target = quoted(load.target.name)
    there = f"FROM {quoted(FINAL)} AS t WHERE t.{quoted(CHANGE)} = '{TRUNCATE}'"
    newer = (
        f"SELECT 1 FROM {_versions(rules)} AS v WHERE {_of_scope(rules, 'v')} AND v.{quoted('pk_json')} = {KEY_OF_ROW}() "
        f"AND v.{quoted('last_order')} > (SELECT MAX(t.{quoted(CHANGE_VERSION)}) {there})"
    )
    old = f"NOT EXISTS ({newer})"
    if rules.soft:
        # Only the first truncate finds a row that is there.
        first = (
            f"SELECT MIN(m.{quoted(CHANGE_VERSION)}) FROM {quoted(EVENTS)} AS m WHERE m.{quoted(CHANGE)} = '{TRUNCATE}'"
        )
        at = (
            f"(SELECT MAX(t.{quoted(CHANGE_AT)}) FROM {quoted(EVENTS)} AS t "
            f"WHERE t.{quoted(CHANGE)} = '{TRUNCATE}' AND t.{quoted(CHANGE_VERSION)} = ({first}))"
        )
        sets = _soft_sets(load, rules, at)
        sql = f"UPDATE {table_sql(load.target)} SET {sets} WHERE {target}.{quoted(rules.soft)} IS NULL AND {old}"
    else:
        sql = f"DELETE FROM {table_sql(load.target)} WHERE {old}"
    when = render(f"SELECT 1 {there} LIMIT 1", load.dialect)
    inserts = {KEY_OF_ROW: key_json(load, native_name(_unqualified(load), load.dialect))}
    return [
        Statement(rendered(sql, load.dialect, inserts), "deleted", "remove the rows of a truncated table", when=when)
    ]


def _unqualified(load: Load) -> TableName:
    return TableName("", load.target.name)


def _deleting(load: Load, rules: ChangeRules) -> list[Statement]:
    target, gone = quoted(load.target.name), f"s.{quoted(CHANGE)} = '{DELETE}'"
    if not rules.soft:
        sql = (
            f"DELETE FROM {table_sql(load.target)} WHERE EXISTS (SELECT 1 FROM {quoted(FINAL)} AS s "
            f"WHERE {gone} AND {same_key(load.keys, target, 's')})"
        )
        return [Statement(render(sql, load.dialect), "deleted", "delete the rows that are gone")]
    sets = [*_carried_sets(load, rules.soft), _soft_sets(load, rules, f"s.{quoted(CHANGE_AT)}")]
    sql = (
        f"UPDATE {table_sql(load.target)} AS tgt SET {', '.join(sets)} "
        f"FROM {quoted(FINAL)} AS s WHERE {gone} AND {same_key(load.keys, 'tgt', 's')}"
    )
    return [
        Statement(rendered(sql, load.dialect, _casts(load)), "deleted", "mark the rows that are gone"),
        Statement(_inserting_gone(load, rules), "inserted", "insert rows that are gone before they were there"),
    ]


def _soft_sets(load: Load, rules: ChangeRules, at: str) -> str:
    sets = [f"{quoted(rules.soft)} = {_gone_since(load, rules, at)}", *_stamp_sets(load)]
    return ", ".join(sets)


def _gone_since(load: Load, rules: ChangeRules, at: str) -> str:
    """Return the value of the column of deleted rows, as canonical SQL."""
    kind = next(column.type.kind for column in load.columns if column.name == rules.soft)
    if kind == "boolean":
        return "TRUE"
    since = f"COALESCE({at}, {instant(load.loaded_at, load.dialect)})"
    return since if kind == "timestamp_tz" else utc(since)


def _stamp(load: Load) -> list[str]:
    return (
        [instant(load.loaded_at, load.dialect), identifier_value(load.batch_id, load.dialect)] if load.stamped else []
    )


def _stamp_sets(load: Load) -> list[str]:
    return [f"{quoted(name)} = {value}" for name, value in zip(load.stamps, _stamp(load), strict=True)]


def _carried_sets(load: Load, soft: str = "") -> list[str]:
    """Return how a row gets the values that its changes carry, but for its key and its mark, as canonical SQL."""
    sets = []
    for index, name in enumerate(load.names):
        if name not in (*load.keys, soft):
            value = f"CASE WHEN {is_carried(index, 's')} THEN {_written_value(load, name)} ELSE tgt.{quoted(name)} END"
            sets.append(f"{quoted(name)} = {value}")
    return sets


def _updating(load: Load) -> str:
    sets = _carried_sets(load)
    sets += _stamp_sets(load) or [f"{quoted(load.keys[0])} = s.{quoted(load.keys[0])}"]
    sql = (
        f"UPDATE {table_sql(load.target)} AS tgt SET {', '.join(sets)} FROM {quoted(FINAL)} AS s "
        f"WHERE {_written('s')} AND {same_key(load.keys, 'tgt', 's')}"
    )
    return rendered(sql, load.dialect, _casts(load))


def _written_value(load: Load, name: str) -> str:
    """Return the value of a change as the target's column takes it, as canonical SQL that `_casts` completes."""
    names = [column for column, _ in load.changes.casts] if load.changes is not None else []
    return f"{_CAST}_{names.index(name)}()" if name in names else insert_value(load, name)


def _casts(load: Load) -> dict[str, str]:
    casts = load.changes.casts if load.changes is not None else ()
    return {f"{_CAST}_{index}": sql for index, (_, sql) in enumerate(casts)}


def _written(alias: str) -> str:
    return f"{alias}.{quoted(CHANGE)} NOT IN ('{DELETE}', '{TRUNCATE}')"


def _inserting(load: Load, rules: ChangeRules) -> str:
    return _insert(load, rules, [_written_value(load, name) for name in load.names], _written("s"))


def _inserting_gone(load: Load, rules: ChangeRules) -> str:
    """Return the statement that inserts a deleted row whose creation comes later, where all is known that it needs."""
    values = [
        _gone_since(load, rules, f"s.{quoted(CHANGE_AT)}") if name == rules.soft else _written_value(load, name)
        for name in load.names
    ]
    known = [is_known(index, "s") for index, name in enumerate(load.names) if name in rules.required]
    return _insert(load, rules, values, " AND ".join([f"s.{quoted(CHANGE)} = '{DELETE}'", *known]))


def _insert(load: Load, rules: ChangeRules, values: list[str], condition: str) -> str:
    created = "" if rules.inserts else f" AND s.{quoted(CREATES)} = 1"
    there = f"SELECT 1 FROM {table_sql(load.target)} AS tgt WHERE {same_key(load.keys, 'tgt', 's')}"
    sql = (
        f"INSERT INTO {table_sql(load.target)} ({listed((*load.names, *load.stamps))}) "
        f"SELECT {', '.join([*values, *_stamp(load)])} FROM {quoted(FINAL)} AS s "
        f"WHERE {condition}{created} AND NOT EXISTS ({there})"
    )
    return rendered(sql, load.dialect, _casts(load))


def _moving(load: Load, rules: ChangeRules) -> str:
    sets = (
        f"{quoted('last_order')} = s.{quoted(CHANGE_VERSION)}, {quoted('last_seen_ts_ms')} = s.{quoted(CHANGE_MS)}, "
        f"{quoted('updated_at')} = {instant(load.loaded_at, load.dialect)}"
    )
    sql = (
        f"UPDATE {_versions(rules)} AS v SET {sets} FROM {quoted(FINAL)} AS s "
        f"WHERE {_of_scope(rules, 'v')} AND v.{quoted('pk_json')} = s.{quoted(KEY)}"
    )
    return render(sql, load.dialect)


def _remembering(load: Load, rules: ChangeRules) -> str:
    known = f"{_of_scope(rules, 'v')} AND v.{quoted('pk_json')} = s.{quoted(KEY)}"
    sql = (
        f"INSERT INTO {_versions(rules)} ({listed(_VERSION)}) SELECT {text(rules.scope)}, s.{quoted(KEY)}, "
        f"s.{quoted(CHANGE_VERSION)}, s.{quoted(CHANGE_MS)}, {instant(load.loaded_at, load.dialect)} "
        f"FROM {quoted(FINAL)} AS s WHERE NOT EXISTS (SELECT 1 FROM {_versions(rules)} AS v WHERE {known})"
    )
    return render(sql, load.dialect)
