"""The modes as Spark SQL for lake tables: whatever a mode does to a table is one statement, because that is its commit.

The rows that scd2 writes are computed first and cached; the last statement only carries them over. So they can be
counted before they are final.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.session import Statement
from ematix_flow.connect.base.stage import WorkTable
from ematix_flow.connect.lake.sql_session import POINTS_FOLDER
from ematix_flow.plan.sql.modes.append_truncate_merge import duplicate_checks
from ematix_flow.plan.sql.modes.change_rows import staged_tally
from ematix_flow.plan.sql.modes.row_hash import row_hash_sql
from ematix_flow.plan.sql.modes.scd2 import ended, marked, points_columns, rows_only
from ematix_flow.plan.sql.program import Program
from ematix_flow.plan.sql.render import STAGED, identifier_value, instant, listed, native_column, native_name, render
from ematix_flow.records import run_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.plan.sql.program import Load

DIALECT = "spark"
BOUNDS = ("valid_from", "valid_to", "is_current")


def append(load: Load, reason: str = "") -> Program:
    """Add every staged row; `reason` is why the engine writes it once more."""
    sql = f"INSERT INTO {_target(load)} ({_all(load)}) SELECT {_values(load)} FROM {_staged()} AS s"
    purpose = f"add every row, written again by Spark: {reason}" if reason else "add every row"
    return Program("INSERT", (Statement(sql, "", purpose, final=True),), tally=_inserted())


def add_files(load: Load) -> Program:
    """Make every staged file part of the table."""
    statement = Statement(f"ADD FILES TO {_target(load)}", "", "make every staged file part of the table", final=True)
    return Program("ADD FILES", (statement,), adds=True)


def truncate(load: Load) -> Program:
    """Replace all rows."""
    sql = f"INSERT OVERWRITE {_target(load)} ({_all(load)}) SELECT {_values(load)} FROM {_staged()} AS s"
    tally = f"{_inserted()} UNION ALL SELECT 'deleted', COUNT(*) FROM {_target(load)}"
    return Program("INSERT OVERWRITE", (Statement(sql, "", "replace all rows", final=True),), tally=tally)


def merge(load: Load, *, tells: bool) -> Program:
    """Update what changed, insert what is new and, if requested, delete what is absent."""
    same, differ = _same(load.keys), _differs(load)
    clauses = [f"WHEN NOT MATCHED THEN INSERT ({_all(load)}) VALUES ({_values(load)})"]
    if load.update:
        clauses.insert(0, f"WHEN MATCHED AND ({differ}) THEN UPDATE SET {_sets(load, load.update)}")
    if load.delete_absent:
        clauses.append("WHEN NOT MATCHED BY SOURCE THEN DELETE")
    sql = f"MERGE INTO {_target(load)} AS tgt USING {_staged()} AS s ON {same} {' '.join(clauses)}"
    return Program(
        "MERGE INTO",
        (Statement(sql, "", "update what differs, insert what is new", final=True),),
        duplicates=duplicate_checks(load),
        tally=_merge_tally(load, same, differ),
        tells=tells,
    )


def _merge_tally(load: Load, same: str, differ: str) -> str:
    new = f"tgt.{_name(load.keys[0])} IS NULL"
    kind = f"CASE WHEN {new} THEN 'inserted' ELSE 'updated' END"
    changed = f"{new} OR {differ}" if load.update else new
    tally = (
        f"SELECT {kind}, COUNT(*) FROM {_staged()} AS s LEFT JOIN {_target(load)} AS tgt ON {same} "
        f"WHERE {changed} GROUP BY {kind}"
    )
    if not load.delete_absent:
        return tally
    return f"{tally} UNION ALL SELECT 'deleted', COUNT(*) FROM {_target(load)} AS tgt LEFT ANTI JOIN {_staged()} AS s ON {same}"


# scd2


@dataclass(frozen=True, slots=True)
class _Scratch:
    """The relations that a load keeps in Spark's memory until it is over."""

    changes: str
    touched: str
    events: str
    desired: str
    actions: str


def _scratch(load: Load) -> _Scratch:
    tag = run_tag(load.batch_id)
    return _Scratch(*(f"_flow_{name}_{tag}" for name in ("changes", "touched", "events", "desired", "actions")))


def scd2_by_load_time(load: Load) -> Program:
    """Every changed row opens a version at the load's instant and closes the one before it."""
    views, now = _scratch(load), _instant(load.loaded_at)
    changes = (
        f"SELECT {_listed(load.names, 's')} FROM {_staged()} AS s LEFT JOIN {_target(load)} AS tgt "
        f"ON {_same(load.keys)} AND tgt.is_current WHERE tgt.{_name(load.keys[0])} IS NULL OR {_differs(load)}"
    )
    opened = (
        f"SELECT {_listed(load.names, 'c')}, {now} AS valid_from, CAST(NULL AS TIMESTAMP) AS valid_to, "
        f"TRUE AS is_current, {_hash(load, 'c')} AS row_hash, TRUE AS _flow_stamp, {_flags(inserted='1')} "
        f"FROM {views.changes} AS c"
    )
    ended = f"(tgt.valid_from < {now} AND ({_ended(load, f's.{_name(load.keys[0])} IS NULL')}))"
    closed = (
        f"SELECT {_listed(load.names, 'tgt')}, tgt.valid_from, {now}, FALSE, tgt.row_hash, FALSE, {_flags(closed='1')} "
        f"FROM {_target(load)} AS tgt LEFT JOIN {views.changes} AS c ON {_same(load.keys, 'tgt', 'c')} "
        f"LEFT JOIN {_staged()} AS s ON {_same(load.keys)} "
        f"WHERE tgt.is_current AND (c.{_name(load.keys[0])} IS NOT NULL OR {ended})"
    )
    statements = (
        _materialized(views.changes, changes, "collect the rows that differ from the current version"),
        _materialized(views.actions, f"{opened} UNION ALL {closed}", "work out which versions open and which close"),
        _carry(load, views),
    )
    return Program("MERGE INTO (versions)", statements, duplicates=duplicate_checks(load), tally=_tally(views))


def scd2_by_event_time(load: Load) -> Program:
    """Rebuild the versions of every touched key from all its known events."""
    views = _scratch(load)
    touched = render(f'SELECT DISTINCT {listed(load.keys)} FROM "{STAGED}" AS s{rows_only(load)}', DIALECT)
    statements = [
        _materialized(views.touched, touched, "collect the keys of this load"),
        _materialized(
            views.events,
            render(marked(load, views.touched), DIALECT),
            "lay out all events of these keys in time order and fold equal neighbours",
        ),
        _materialized(
            views.desired, render(ended(load, views.events), DIALECT), "end each version where the next one begins"
        ),
        _materialized(views.actions, _actions(load, views), "work out which versions open, close, change and go"),
    ]
    if load.points is not None:
        statements.append(Statement(_remember(load, views), "", "remember the folded events", fills_points=True))
    statements.append(_carry(load, views))
    known = (WorkTable(load.points.name, points_columns(load)),) if load.points is not None else ()
    tally = _tally(views)
    if load.changes is not None:
        tally = f"{render(staged_tally(), DIALECT)} UNION ALL {tally}"
    return Program("MERGE INTO (versions)", tuple(statements), known, tally=tally)


def _actions(load: Load, views: _Scratch) -> str:
    """Return the versions that are written, with what is done to each: opened, changed, closed, removed."""
    now, names = _instant(load.loaded_at), load.names
    same = f"{_same(load.keys, 'tgt', 'd')} AND tgt.valid_from = d.valid_from"
    there = f"tgt.{_name(load.keys[0])} IS NOT NULL"
    old = _ended(load, "FALSE").replace("tgt.", "d.")
    expires = f"(d.is_current AND d.valid_from < {now} AND ({old}))"
    closes = f"({there} AND tgt.is_current AND NOT d.is_current)"
    others = [name for name in names if name not in load.keys]
    bounds = f"(NOT {closes} AND (NOT tgt.valid_to <=> d.valid_to OR NOT tgt.is_current <=> d.is_current))"
    differs = " OR ".join([*(f"NOT tgt.{_name(n)} <=> d.{_name(n)}" for n in others), bounds])
    changes = f"({there} AND ({differs}))"
    flags = _flags(
        inserted=f"CASE WHEN {there} THEN 0 ELSE 1 END",
        updated=f"CASE WHEN {changes} THEN 1 ELSE 0 END",
        closed=f"CASE WHEN {closes} THEN 1 ELSE 0 END + CASE WHEN {expires} THEN 1 ELSE 0 END",
    )
    written = (
        f"SELECT {_listed(names, 'd')}, d.valid_from, CASE WHEN {expires} THEN {now} ELSE d.valid_to END AS valid_to, "
        f"d.is_current AND NOT {expires} AS is_current, {_hash(load, 'd')} AS row_hash, "
        f"NOT {there} OR {changes} AS _flow_stamp, {flags} "
        f"FROM {views.desired} AS d LEFT JOIN {_target(load)} AS tgt ON {same} "
        f"WHERE d._flow_kept = 1 AND (NOT {there} OR {changes} OR {closes} OR {expires})"
    )
    removed = (
        f"SELECT {_listed(names, 'tgt')}, tgt.valid_from, tgt.valid_to, tgt.is_current, tgt.row_hash, FALSE, "
        f"{_flags(deleted='1')} "
        f"FROM {_target(load)} AS tgt JOIN {views.touched} AS k ON {_same(load.keys, 'tgt', 'k')} "
        f"LEFT JOIN {views.desired} AS d ON {same} AND d._flow_kept = 1 WHERE d.{_name(load.keys[0])} IS NULL"
    )
    parts = [written, removed]
    if load.delete_absent or load.expire_before is not None:
        ended = _ended(load, "TRUE")
        parts.append(
            f"SELECT {_listed(names, 'tgt')}, tgt.valid_from, {now}, FALSE, tgt.row_hash, FALSE, {_flags(closed='1')} "
            f"FROM {_target(load)} AS tgt LEFT ANTI JOIN {views.touched} AS k ON {_same(load.keys, 'tgt', 'k')} "
            f"WHERE tgt.is_current AND tgt.valid_from < {now} AND ({ended})"
        )
    return " UNION ALL ".join(parts)


def _ended(load: Load, absent: str) -> str:
    """Return the condition that a current version ends with this load because its key is absent or its time is over."""
    terms = [absent] if load.delete_absent else []
    if load.expire_before is not None:
        terms.append(f"tgt.valid_from < {_instant(load.expire_before)}")
    return " OR ".join(terms) or "FALSE"


def _remember(load: Load, views: _Scratch) -> str:
    points = native_name(load.points, DIALECT) if load.points is not None else ""
    retention = f"WHERE p._loaded_at >= {_instant(load.forget_before)} " if load.forget_before is not None else ""
    return (
        f"INSERT OVERWRITE DIRECTORY '{POINTS_FOLDER}' USING parquet "
        f"SELECT {_listed(load.names, 'p')}, p._at, p._loaded_at FROM {points} AS p "
        f"LEFT ANTI JOIN {views.touched} AS k ON {_same(load.keys, 'p', 'k')} {retention}"
        f"UNION ALL SELECT {_listed(load.names, 'd')}, d.valid_from, {_instant(load.loaded_at)} "
        f"FROM {views.desired} AS d WHERE d._flow_kept = 0"
    )


def _carry(load: Load, views: _Scratch) -> Statement:
    """Return the statement that carries the actions over."""
    everything = (*load.names, *BOUNDS, "row_hash")
    sets = ", ".join(f"tgt.{_name(n)} = s.{_name(n)}" for n in (*load.names, "valid_to", "is_current", "row_hash"))
    stamp = _stamp(load)
    sql = (
        f"MERGE INTO {_target(load)} AS tgt USING {views.actions} AS s "
        f"ON {_same(load.keys)} AND tgt.valid_from = s.valid_from "
        f"WHEN MATCHED AND s._flow_deleted = 1 THEN DELETE "
        f"WHEN MATCHED AND s._flow_stamp THEN UPDATE SET {sets}, "
        f"tgt._loaded_at = {stamp[0]}, tgt._batch_id = {stamp[1]} "
        f"WHEN MATCHED THEN UPDATE SET tgt.valid_to = s.valid_to, tgt.is_current = s.is_current "
        f"WHEN NOT MATCHED THEN INSERT ({_listed((*everything, '_loaded_at', '_batch_id'))}) "
        f"VALUES ({_listed(everything, 's')}, {', '.join(stamp)})"
    )
    return Statement(sql, "", "write the versions", final=True)


def _hash(load: Load, alias: str) -> str:
    by_name = {column.name: column for column in load.columns}
    return row_hash_sql([by_name[name] for name in load.compare], alias, DIALECT)


def _tally(views: _Scratch) -> str:
    kinds = ("inserted", "updated", "closed", "deleted")
    sums = ", ".join(f"COALESCE(SUM(_flow_{kind}), 0) AS {kind}" for kind in kinds)
    named = ", ".join(f"'{kind}', {kind}" for kind in kinds)
    return f"SELECT stack({len(kinds)}, {named}) FROM (SELECT {sums} FROM {views.actions})"


def _flags(inserted: str = "0", updated: str = "0", closed: str = "0", deleted: str = "0") -> str:
    flags = {"inserted": inserted, "updated": updated, "closed": closed, "deleted": deleted}
    return ", ".join(f"{sql} AS _flow_{name}" for name, sql in flags.items())


# Words of Spark SQL


def _materialized(view: str, query: str, purpose: str) -> Statement:
    return Statement(query, "", purpose, cache_as=view)


def _inserted() -> str:
    return f"SELECT 'inserted', COUNT(*) FROM {_staged()} AS s"


def _staged() -> str:
    return _name(STAGED)


def _target(load: Load) -> str:
    return native_name(load.target, DIALECT)


def _name(name: str) -> str:
    return native_column(name, DIALECT)


def _listed(names: Sequence[str], alias: str = "") -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + _name(name) for name in names)


def _same(keys: Sequence[str], left: str = "tgt", right: str = "s") -> str:
    return " AND ".join(f"{left}.{_name(key)} = {right}.{_name(key)}" for key in keys)


def _differs(load: Load) -> str:
    """Return the condition that a staged row changes the one of the table; a struct with NULL is less than one without."""
    differ = " OR ".join(f"NOT tgt.{_name(name)} <=> s.{_name(name)}" for name in load.compare) or "FALSE"
    if not load.order_by:
        return differ
    older = " < ".join(f"struct({_listed(load.order_by, side)})" for side in ("s", "tgt"))
    return f"({differ}) AND NOT {older}"


def _instant(at: object) -> str:
    return render(f"SELECT {instant(at, DIALECT)}", DIALECT).removeprefix("SELECT ")  # type: ignore[arg-type]


def _stamp(load: Load) -> tuple[str, ...]:
    return (_instant(load.loaded_at), identifier_value(load.batch_id, DIALECT)) if load.stamped else ()


def _all(load: Load) -> str:
    return _listed((*load.names, *load.stamps))


def _values(load: Load) -> str:
    return ", ".join([_listed(load.names, "s"), *_stamp(load)])


def _sets(load: Load, names: Sequence[str]) -> str:
    stamp = zip(load.stamps, _stamp(load), strict=True)
    return ", ".join(
        [*(f"tgt.{_name(n)} = s.{_name(n)}" for n in names), *(f"tgt.{name} = {value}" for name, value in stamp)]
    )
