"""scd2 as programs: by load time, and order-proof by event time; written once for all dialects.

By event time, all known events of the touched keys are laid out in time order: opens and closes derived from the
stored versions, events that were folded before, and the staged ones. Neighbours with equal compare columns fold into
one version, the end of a version is the next event, and only rows that differ are written. So any order, repetition
or splitting of the same events results in the same table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.session import Statement
from ematix_flow.connect.base.stage import StageColumn, WorkTable
from ematix_flow.connect.changes.change import DELETE, SKIP, TRUNCATE
from ematix_flow.declare.table.types import Boolean, Integer, Text, TimestampTZ
from ematix_flow.plan.columns import CHANGE, CHANGE_VERSION
from ematix_flow.plan.sql.modes.append_truncate_merge import (
    differs,
    duplicate_checks,
    insert_value,
    is_plain_json,
    same_key,
    stored,
)
from ematix_flow.plan.sql.modes.change_rows import staged_tally
from ematix_flow.plan.sql.modes.latest import greatest_first, not_older, order_terms
from ematix_flow.plan.sql.modes.row_hash import row_hash_sql
from ematix_flow.plan.sql.program import Program
from ematix_flow.plan.sql.render import STAGED, identifier_value, instant, listed, quoted, render, table_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.plan.sql.program import Load

LABEL = "SCD2 (CREATE TEMP / UPDATE / INSERT)"
CHANGES = "_flow_changes"
TOUCHED = "_flow_touched"
DESIRED = "_flow_desired"
HASH = "FLOW_ROW_HASH"
POINT_AT = "_at"


def by_load_time(load: Load) -> Program:
    """Every changed row opens a version at the load's instant and closes the one before it."""
    changes = WorkTable(CHANGES, load.columns, load.keys)
    statements = [
        Statement(_collect_changes(load), "", "collect the rows that differ from the current version"),
        Statement(_close_changed(load), "closed", "close the current version of changed keys"),
        Statement(_open_changed(load), "inserted", "open the new versions"),
        *_closings(load),
    ]
    return Program(
        LABEL,
        tuple(statements),
        (changes,),
        reads_staged_once=not load.delete_absent,
        duplicates=duplicate_checks(load),
    )


def by_event_time(load: Load) -> Program:
    """Rebuild the versions of every touched key from all its known events."""
    touched = WorkTable(TOUCHED, tuple(c for c in load.columns if c.name in load.keys), load.keys)
    version = (
        StageColumn("valid_from", TimestampTZ(), in_key=True),
        StageColumn("valid_to", TimestampTZ()),
        StageColumn("is_current", Boolean()),
        StageColumn("_flow_kept", Integer()),
    )
    desired = WorkTable(DESIRED, (*load.columns, *version), load.keys)
    statements = [
        Statement(_collect_touched(load), "", "collect the keys of this load", tally=_changes_tally(load)),
        Statement(_lay_out(load), "", "lay out all events of these keys in time order and fold equal neighbours"),
        *_remember(load),
        Statement(_drop_folded(load), "deleted", "drop versions that are folded into an earlier one"),
        Statement(_close_versions(load), "closed", "close versions that a later event ends"),
        Statement(_correct_versions(load), "updated", "correct the bounds and values of other versions"),
        Statement(_open_versions(load), "inserted", "open the new versions"),
        *_closings(load),
    ]
    return Program(LABEL, tuple(statements), (touched, desired), reads_staged_once=False, points=load.points)


def _changes_tally(load: Load) -> str:
    return "" if load.changes is None else render(staged_tally(), load.dialect)


def points_columns(load: Load) -> tuple[StageColumn, ...]:
    """Return the columns of the table that remembers folded events, each in the type it is staged in."""
    at = StageColumn(POINT_AT, TimestampTZ(), in_key=True)
    staged = (replace(c, type=Text()) if is_plain_json(load, c.name) else c for c in load.columns)
    return (*staged, at, StageColumn("_loaded_at", TimestampTZ()))


# By load time


def _collect_changes(load: Load) -> str:
    first = quoted(load.keys[0])
    changed = differs(load, load.compare, "tgt", "s")
    if load.order_by:
        changed = f"({changed}) AND {not_older(load)}"
    return render(
        f"INSERT INTO {quoted(CHANGES)} ({listed(load.names)}) SELECT {listed(load.names, 's')} "
        f'FROM "{STAGED}" AS s LEFT JOIN {table_sql(load.target)} AS tgt '
        f"ON {same_key(load.keys, 'tgt', 's')} AND tgt.{quoted('is_current')} "
        f"WHERE tgt.{first} IS NULL OR {changed}",
        load.dialect,
    )


def _close_changed(load: Load) -> str:
    return render(
        f"UPDATE {table_sql(load.target)} AS tgt SET {quoted('valid_to')} = {instant(load.loaded_at, load.dialect)}, "
        f"{quoted('is_current')} = FALSE FROM {quoted(CHANGES)} AS s "
        f"WHERE {same_key(load.keys, 'tgt', 's')} AND tgt.{quoted('is_current')}",
        load.dialect,
    )


def _open_changed(load: Load) -> str:
    now = instant(load.loaded_at, load.dialect)
    return _insert_versions(load, CHANGES, f"{now}, NULL, TRUE", "")


# By event time


def _collect_touched(load: Load) -> str:
    keys = listed(load.keys)
    touched = f'SELECT DISTINCT {keys} FROM "{STAGED}" AS s{rows_only(load)}'
    return render(f"INSERT INTO {quoted(TOUCHED)} ({keys}) {touched}", load.dialect)


def _closes(load: Load) -> str:
    """Return 1 for a staged row that ends a version, which only a change can, as canonical SQL."""
    return "0" if load.changes is None else f"CASE WHEN s.{quoted(CHANGE)} = '{DELETE}' THEN 1 ELSE 0 END"


def rows_only(load: Load) -> str:
    """Return the condition that a staged change is one of a row."""
    return "" if load.changes is None else f" WHERE NOT s.{quoted(CHANGE)} IN ('{SKIP}', '{TRUNCATE}')"


def _events(load: Load, touched_by: str) -> str:
    """Return the union of all events: (columns, at, closes), of changes with their version, which is empty for what is there."""
    target, touched = table_sql(load.target), quoted(touched_by)
    join = f"JOIN {touched} AS k ON {same_key(load.keys, 'tgt', 'k')}"
    version = _version_column(load, staged=False)
    closed = ", ".join(f"tgt.{quoted(n)}" if n in load.keys else "NULL" for n in load.names)
    values = ", ".join(f"{stored(load, name)} AS {quoted(name)}" for name in load.names)
    followed = (
        f"SELECT 1 FROM {target} AS nxt WHERE {same_key(load.keys, 'nxt', 'tgt')} "
        f"AND nxt.{quoted('valid_from')} = tgt.{quoted('valid_to')}"
    )
    parts = [
        f"SELECT {values}, tgt.{quoted('valid_from')} AS _flow_at, 0 AS _flow_closes{version} FROM {target} AS tgt {join}",
        (
            f"SELECT {closed}, tgt.{quoted('valid_to')}, 1{version} FROM {target} AS tgt {join} "
            f"WHERE NOT tgt.{quoted('valid_to')} IS NULL AND NOT EXISTS ({followed})"
        ),
        (
            f"SELECT {listed(load.names, 's')}, s.{quoted(load.event)}, {_closes(load)}{_version_column(load, staged=True)} "
            f'FROM "{STAGED}" AS s{rows_only(load)}'
        ),
    ]
    if load.points is not None:
        points = table_sql(load.points)
        on = same_key(load.keys, "p", "k")
        parts.append(
            f"SELECT {listed(load.names, 'p')}, p.{quoted(POINT_AT)}, 0{version} FROM {points} AS p JOIN {touched} AS k ON {on}"
        )
    return " UNION ALL ".join(parts)


def _version_column(load: Load, *, staged: bool) -> str:
    """Return the version of an event as one more column, as canonical SQL; only changes have one."""
    if load.changes is None:
        return ""
    value = f"s.{quoted(CHANGE_VERSION)}" if staged else "''"
    return f", {value} AS {quoted(CHANGE_VERSION)}"


def _lay_out(load: Load) -> str:
    columns = listed((*load.names, "valid_from", "valid_to", "is_current", "_flow_kept"))
    return render(f"INSERT INTO {quoted(DESIRED)} ({columns}) {laid_out(load, TOUCHED)}", load.dialect)


def laid_out(load: Load, touched: str) -> str:
    """Return the query for all versions of the touched keys, retained ones and folded ones, as canonical SQL."""
    steps, last = _marking(load, touched)
    ends, versions = _ending(load, "marked")
    return f"WITH {steps}, marked AS ({last}), {ends} {versions}"


def marked(load: Load, touched: str) -> str:
    """Return the first half of `laid_out`: the events in time order, each with whether it stays, as canonical SQL."""
    steps, last = _marking(load, touched)
    return f"WITH {steps} {last}"


def ended(load: Load, events: str) -> str:
    """Return the second half of `laid_out`, over a relation of marked events."""
    ends, versions = _ending(load, quoted(events))
    return f"WITH {ends} {versions}"


def _marking(load: Load, touched: str) -> tuple[str, str]:
    names, keys = listed(load.names), listed(load.keys)
    over = _in_time_order(load)
    before = ", ".join(
        f"LAG({quoted(n)}) {over} AS {quoted('_flow_was_' + str(i))}" for i, n in enumerate(load.compare)
    )
    equal = " AND ".join(
        f"{quoted(name)} IS NOT DISTINCT FROM {quoted('_flow_was_' + str(i))}" for i, name in enumerate(load.compare)
    )
    retained = (
        f"CASE WHEN _flow_closes = 1 THEN CASE WHEN _flow_was_closed = 0 THEN 1 ELSE 0 END "
        f"WHEN _flow_was_closed = 0 AND {equal} THEN 0 ELSE 1 END"
    )
    steps = (
        f"events AS ({_events(load, touched)}), "
        f"ranked AS (SELECT {names}, _flow_at, _flow_closes, ROW_NUMBER() OVER (PARTITION BY {keys}, _flow_at "
        f"ORDER BY {_tie_break(load)}) AS _flow_rank FROM events), "
        f"lined AS (SELECT {names}, _flow_at, _flow_closes, LAG(_flow_closes) {over} AS _flow_was_closed, {before} "
        f"FROM ranked WHERE _flow_rank = 1)"
    )
    return steps, f"SELECT {names}, _flow_at, _flow_closes, {retained} AS _flow_kept FROM lined"


def _ending(load: Load, events: str) -> tuple[str, str]:
    names = listed(load.names)
    last = (
        f"ended AS (SELECT {names}, _flow_at, _flow_closes, LEAD(_flow_at) {_in_time_order(load)} AS _flow_next "
        f"FROM {events} WHERE _flow_kept = 1)"
    )
    versions = (
        f"SELECT {names}, _flow_at AS valid_from, _flow_next AS valid_to, _flow_next IS NULL AS is_current, "
        f"1 AS _flow_kept FROM ended WHERE _flow_closes = 0 "
        f"UNION ALL SELECT {names}, _flow_at, NULL, FALSE, 0 FROM {events} WHERE _flow_kept = 0 AND _flow_closes = 0"
    )
    return last, versions


def _in_time_order(load: Load) -> str:
    return f"OVER (PARTITION BY {listed(load.keys)} ORDER BY _flow_at)"


def _tie_break(load: Load) -> str:
    """Two events of a key at one instant: the greater values win, so that no order of arrival matters.

    Of changes the last one in the log wins, also one that ends a row. What is there was loaded before, and has no version any more.
    """
    others = [column for column in load.columns if column.name not in load.keys]
    terms = [term for column in others for term in greatest_first(column, load.dialect)]
    latest = [] if load.changes is None else [f"{quoted(CHANGE_VERSION)} DESC"]
    return ", ".join([*latest, "_flow_closes", *order_terms(load), *terms])


def _remember(load: Load) -> list[Statement]:
    if load.points is None:
        return []
    points = table_sql(load.points)
    mine = same_key(load.keys, "k", quoted(load.points.name))
    forget = render(
        f"DELETE FROM {points} WHERE EXISTS (SELECT 1 FROM {quoted(TOUCHED)} AS k WHERE {mine})", load.dialect
    )
    columns = listed((*load.names, POINT_AT, "_loaded_at"))
    remember = render(
        f"INSERT INTO {points} ({columns}) SELECT {listed(load.names, 's')}, s.{quoted('valid_from')}, "
        f"{instant(load.loaded_at, load.dialect)} FROM {quoted(DESIRED)} AS s WHERE s.{quoted('_flow_kept')} = 0",
        load.dialect,
    )
    statements = [
        Statement(forget, "", "forget the folded events"),
        Statement(remember, "", "remember the folded events"),
    ]
    if load.forget_before is not None:
        old = f"DELETE FROM {points} WHERE {quoted('_loaded_at')} < {instant(load.forget_before, load.dialect)}"
        statements.append(Statement(render(old, load.dialect), "", "prune what is beyond the late horizon"))
    return statements


def _drop_folded(load: Load) -> str:
    target = quoted(load.target.name)
    return render(
        f"DELETE FROM {table_sql(load.target)} "
        f"WHERE EXISTS (SELECT 1 FROM {quoted(TOUCHED)} AS k WHERE {same_key(load.keys, 'k', target)}) "
        f"AND NOT EXISTS (SELECT 1 FROM {quoted(DESIRED)} AS s WHERE {_same_version(load, target, 's')})",
        load.dialect,
    )


def _close_versions(load: Load) -> str:
    return render(
        f"UPDATE {table_sql(load.target)} AS tgt SET {quoted('valid_to')} = s.{quoted('valid_to')}, "
        f"{quoted('is_current')} = FALSE FROM {quoted(DESIRED)} AS s "
        f"WHERE {_same_version(load, 'tgt', 's')} AND tgt.{quoted('is_current')} AND NOT s.{quoted('is_current')}",
        load.dialect,
    )


def _correct_versions(load: Load) -> str:
    others = [name for name in load.names if name not in load.keys]
    sets = [f"{quoted(name)} = {insert_value(load, name)}" for name in others]
    sets += [f"{quoted(name)} = s.{quoted(name)}" for name in ("valid_to", "is_current")]
    sets += [f"{quoted('row_hash')} = {HASH}()", *_stamp_sets(load)]
    changed = [f"{stored(load, name)} IS DISTINCT FROM s.{quoted(name)}" for name in others]
    changed += [f"tgt.{quoted(name)} IS DISTINCT FROM s.{quoted(name)}" for name in ("valid_to", "is_current")]
    return render(
        f"UPDATE {table_sql(load.target)} AS tgt SET {', '.join(sets)} FROM {quoted(DESIRED)} AS s "
        f"WHERE {_same_version(load, 'tgt', 's')} AND ({' OR '.join(changed)})",
        load.dialect,
        {HASH: _hash(load)},
    )


def _open_versions(load: Load) -> str:
    known = f"SELECT 1 FROM {table_sql(load.target)} AS tgt WHERE {_same_version(load, 'tgt', 's', retained=False)}"
    bounds = ", ".join(f"s.{quoted(name)}" for name in ("valid_from", "valid_to", "is_current"))
    return _insert_versions(load, DESIRED, bounds, f" WHERE s.{quoted('_flow_kept')} = 1 AND NOT EXISTS ({known})")


def _same_version(load: Load, target: str, desired: str, *, retained: bool = True) -> str:
    condition = (
        f"{same_key(load.keys, target, desired)} AND {target}.{quoted('valid_from')} = {desired}.{quoted('valid_from')}"
    )
    return f"{condition} AND {desired}.{quoted('_flow_kept')} = 1" if retained else condition


# Both


def _insert_versions(load: Load, relation: str, bounds: str, where: str) -> str:
    columns = listed((*load.names, "valid_from", "valid_to", "is_current", "row_hash", "_loaded_at", "_batch_id"))
    values = ", ".join(insert_value(load, name) for name in load.names)
    stamp = f"{instant(load.loaded_at, load.dialect)}, {identifier_value(load.batch_id, load.dialect)}"
    return render(
        f"INSERT INTO {table_sql(load.target)} ({columns}) SELECT {values}, {bounds}, {HASH}(), {stamp} "
        f"FROM {quoted(relation)} AS s{where}",
        load.dialect,
        {HASH: _hash(load)},
    )


def _hash(load: Load) -> str:
    by_name = {column.name: column for column in load.columns}
    return row_hash_sql([by_name[name] for name in load.compare], "s", load.dialect)


def _stamp_sets(load: Load) -> Sequence[str]:
    return (
        f"{quoted('_loaded_at')} = {instant(load.loaded_at, load.dialect)}",
        f"{quoted('_batch_id')} = {identifier_value(load.batch_id, load.dialect)}",
    )


def _closings(load: Load) -> list[Statement]:
    """Close events that no row of the source carries: absent keys and versions past their time to live."""
    now = instant(load.loaded_at, load.dialect)
    target, current = table_sql(load.target), quoted("is_current")
    # A version that begins later than this load cannot end with it.
    begun = f"tgt.{quoted('valid_from')} < {now}"
    close = (
        f"UPDATE {target} AS tgt SET {quoted('valid_to')} = {now}, {current} = FALSE WHERE tgt.{current} AND {begun}"
    )
    statements = []
    if load.delete_absent:
        absent = f'NOT EXISTS (SELECT 1 FROM "{STAGED}" AS s WHERE {same_key(load.keys, "tgt", "s")})'
        statements.append(Statement(render(f"{close} AND {absent}", load.dialect), "closed", "close absent keys"))
    if load.expire_before is not None:
        old = f"tgt.{quoted('valid_from')} < {instant(load.expire_before, load.dialect)}"
        statements.append(Statement(render(f"{close} AND {old}", load.dialect), "closed", "close expired versions"))
    return statements
