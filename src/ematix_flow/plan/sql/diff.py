"""What a load would change, key by key, as queries over the staged rows and the target; written once for all dialects.

Every mode has one relation of pairs: the key, the old values, the new values and what happens to them. Totals,
columns and samples are queried from that relation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import TableName
from ematix_flow.plan.sql.modes.append_truncate_merge import differs, same_key, stored
from ematix_flow.plan.sql.modes.scd2 import POINT_AT, laid_out
from ematix_flow.plan.sql.render import STAGED, instant, listed, quoted, render, table_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.plan.sql.program import Load

KINDS = ("added", "changed", "removed", "unchanged")
ADDED, CHANGED, REMOVED, UNCHANGED = KINDS
TARGET = "_flow_target"
POINTS = "_flow_points"
TOUCHED = "_flow_touched"
DESIRED = "_flow_desired"
PAIRS = "_flow_pairs"
KIND = "_flow_kind"
_STAGED = f'"{STAGED}"'
_WITHOUT_ORDER = ("json", "jsonb", "bytes")
_SAMPLED_AS_TEXT = ("date", "timestamp", "timestamp_tz", "uuid", "json", "jsonb")
"""Kinds of columns whose values drivers return in different types, or not at all."""


@dataclass(frozen=True, slots=True)
class DiffQueries:
    """The queries of one load, each over the staged relation."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    """The columns that are compared and shown next to the keys."""
    totals: str
    """Query for kinds and how many keys each has."""
    changes: str
    """Query for one row: of how many changed keys each column changes."""
    samples: tuple[tuple[str, str], ...]
    """Kind and query for its first rows: keys, old values, new values."""
    opened: str = ""
    """Query for the versions that scd2 by event time would open and close in an empty table."""


def diff_queries(load: Load, mode: str, existing: Sequence[str] | None, sample: int) -> DiffQueries:
    """Return the queries; `existing` names the target's columns where it is yet to be created or widened, else None."""
    ctes: list[str] = []
    if existing is not None:
        load, ctes = _over_existing(load, existing, versions=mode == "scd2")
    # Modes without keys of their own identify rows by the primary key.
    keys = load.keys or tuple(column.name for column in load.columns if column.in_key)
    if load.event:
        ctes += _laid_out(load)
    compared = tuple(name for name in load.names if name not in keys)
    pairs = f"WITH {', '.join([*ctes, f'{PAIRS} AS ({_pairs(load, mode, keys, compared)})'])} "
    kinds = [kind for kind in KINDS if kind != UNCHANGED and sample]

    def native(sql: str) -> str:
        return render(sql, load.dialect)

    return DiffQueries(
        keys=keys,
        columns=compared,
        totals=native(f"{pairs}SELECT {KIND}, COUNT(*) FROM {PAIRS} GROUP BY {KIND}"),
        changes=native(pairs + _changes(len(compared))) if compared else "",
        samples=tuple((kind, native(pairs + _sample(load, kind, keys, compared, sample))) for kind in kinds),
        opened=native(f"WITH {', '.join(ctes)} {_opened_versions(load)}") if load.event else "",
    )


def repeated_keys(load: Load, keys: Sequence[str], *, staged: bool = False) -> str:
    """Return the query for a key that occurs more than once, in the target or among the staged rows."""
    source = _STAGED if staged else table_sql(load.target)
    return render(f"SELECT 1 FROM {source} AS r GROUP BY {listed(keys)} HAVING COUNT(*) > 1 LIMIT 1", load.dialect)


def _pairs(load: Load, mode: str, keys: tuple[str, ...], compared: tuple[str, ...]) -> str:
    match mode:
        case "append":
            return _staged_pairs(load, keys, compared, f"'{ADDED}'", "FALSE")
        case "truncate" if not keys:
            # Without a key nothing is compared: rows are counted.
            return _staged_pairs(load, keys, compared, f"'{ADDED}'", "FALSE")
        case "truncate":
            kind = _kind(keys, differs(load, compared, "tgt", "s"))
            remaining = _target_pairs(load, keys, compared, "")
            return f"{_staged_pairs(load, keys, compared, kind, same_key(keys, 'tgt', 's'))} UNION ALL {remaining}"
        case "merge":
            return _merge_pairs(load, keys, compared)
        case _:
            return _event_pairs(load, keys, compared) if load.event else _version_pairs(load, keys, compared)


def _merge_pairs(load: Load, keys: tuple[str, ...], compared: tuple[str, ...]) -> str:
    kind = _kind(keys, differs(load, load.compare, "tgt", "s") if load.update and load.compare else "FALSE")
    pairs = _staged_pairs(load, keys, compared, kind, same_key(keys, "tgt", "s"))
    return f"{pairs} UNION ALL {_target_pairs(load, keys, compared, '')}" if load.delete_absent else pairs


def _version_pairs(load: Load, keys: tuple[str, ...], compared: tuple[str, ...]) -> str:
    """scd2 by load time: what is staged is compared with the current versions."""
    current = f"tgt.{quoted('is_current')}"
    kind = _kind(keys, differs(load, load.compare, "tgt", "s"), _expired(load, "tgt"))
    pairs = _staged_pairs(load, keys, compared, kind, f"{same_key(keys, 'tgt', 's')} AND {current}")
    ended = _ended(load)
    return f"{pairs} UNION ALL {_target_pairs(load, keys, compared, f'AND {current} AND {ended}')}" if ended else pairs


def _event_pairs(load: Load, keys: tuple[str, ...], compared: tuple[str, ...]) -> str:
    """scd2 by event time: a key is changed when any of its versions is; the current ones are shown."""
    first, target = quoted(keys[0]), table_sql(load.target)
    kind = (
        f"CASE WHEN o.{first} IS NULL THEN '{ADDED}' WHEN NOT c.{first} IS NULL THEN '{CHANGED}' "
        f"WHEN {_expired(load, 'd') or 'FALSE'} THEN '{REMOVED}' ELSE '{UNCHANGED}' END"
    )
    new = [f"d.{quoted(name)}" for name in compared]
    pairs = (
        f"SELECT {kind} AS {KIND}, {_columns(load, keys, compared, 'k', new)} FROM {TOUCHED} AS k "
        f"LEFT JOIN (SELECT DISTINCT {listed(keys)} FROM {target} AS t) AS o ON {same_key(keys, 'o', 'k')} "
        f"LEFT JOIN ({_changed_keys(load, keys)}) AS c ON {same_key(keys, 'c', 'k')} "
        f"LEFT JOIN {target} AS tgt ON {same_key(keys, 'tgt', 'k')} AND tgt.{quoted('is_current')} "
        f"LEFT JOIN {DESIRED} AS d ON {same_key(keys, 'd', 'k')} AND d.is_current AND d._flow_kept = 1"
    )
    ended = _ended(load)
    remaining = _target_pairs(load, keys, compared, f"AND tgt.{quoted('is_current')} AND {ended}") if ended else ""
    return f"{pairs} UNION ALL {remaining}" if remaining else pairs


def _changed_keys(load: Load, keys: tuple[str, ...]) -> str:
    """Return the touched keys with a version that is new, other than it was, or gone."""
    first, target = quoted(keys[0]), table_sql(load.target)
    same = f"{same_key(keys, 'tgt', 'd')} AND tgt.{quoted('valid_from')} = d.valid_from AND d._flow_kept = 1"
    remaining = [name for name in load.names if name not in keys]
    other = [f"{stored(load, name)} IS DISTINCT FROM d.{quoted(name)}" for name in remaining]
    other += [f"tgt.{quoted(name)} IS DISTINCT FROM d.{quoted(name)}" for name in ("valid_to", "is_current")]
    return (
        f"SELECT {listed(keys, 'd')} FROM {DESIRED} AS d LEFT JOIN {target} AS tgt ON {same} "
        f"WHERE d._flow_kept = 1 AND (tgt.{first} IS NULL OR {' OR '.join(other)}) "
        f"UNION SELECT {listed(keys, 'tgt')} FROM {target} AS tgt JOIN {TOUCHED} AS k ON {same_key(keys, 'tgt', 'k')} "
        f"LEFT JOIN {DESIRED} AS d ON {same} WHERE d.{first} IS NULL"
    )


def _staged_pairs(load: Load, keys: tuple[str, ...], compared: tuple[str, ...], kind: str, on: str) -> str:
    """Return a pair for every staged row."""
    new = [_new(load, name, keys) for name in compared]
    columns = _columns(load, keys, compared, "s", new)
    return f"SELECT {kind} AS {KIND}, {columns} FROM {_STAGED} AS s LEFT JOIN {table_sql(load.target)} AS tgt ON {on}"


def _new(load: Load, name: str, keys: tuple[str, ...]) -> str:
    """Return what a column holds afterwards: a merge leaves columns alone that it does not update."""
    staged = f"s.{quoted(name)}"
    if not load.update or name in load.update:
        return staged
    return f"CASE WHEN tgt.{quoted(keys[0])} IS NULL THEN {staged} ELSE {stored(load, name)} END"


def _target_pairs(load: Load, keys: tuple[str, ...], compared: tuple[str, ...], where: str) -> str:
    """Return a pair for every row of the target whose key is not staged."""
    nothing = [f"CASE WHEN FALSE THEN {stored(load, name)} END" for name in compared]
    return (
        f"SELECT '{REMOVED}', {_columns(load, keys, compared, 'tgt', nothing)} FROM {table_sql(load.target)} AS tgt "
        f"LEFT JOIN (SELECT DISTINCT {listed(keys)} FROM {_STAGED} AS r) AS s ON {same_key(keys, 'tgt', 's')} "
        f"WHERE s.{quoted(keys[0])} IS NULL {where}"
    )


def _columns(load: Load, keys: tuple[str, ...], compared: tuple[str, ...], keyed: str, new: Sequence[str]) -> str:
    parts = [f"{keyed}.{quoted(name)} AS {_at('key', i)}" for i, name in enumerate(keys)]
    parts += [f"{stored(load, name)} AS {_at('old', i)}" for i, name in enumerate(compared)]
    return ", ".join([*parts, *(f"{value} AS {_at('new', i)}" for i, value in enumerate(new))])


def _kind(keys: tuple[str, ...], differ: str, expired: str = "") -> str:
    gone = f"WHEN {expired} THEN '{REMOVED}' " if expired else ""
    changed = f"WHEN {differ} THEN '{CHANGED}' " if differ else ""
    return f"CASE WHEN tgt.{quoted(keys[0])} IS NULL THEN '{ADDED}' {changed}{gone}ELSE '{UNCHANGED}' END"


def _expired(load: Load, alias: str) -> str:
    """Return the condition that a current version is past its time to live; empty where there is none."""
    if load.expire_before is None:
        return ""
    begins = f"{alias}.{quoted('valid_from')}"
    now, limit = (instant(at, load.dialect) for at in (load.loaded_at, load.expire_before))
    return f"{begins} < {now} AND {begins} < {limit}"


def _ended(load: Load) -> str:
    """Return the condition that a version ends although no row of its key is staged; empty where none does."""
    begun = f"tgt.{quoted('valid_from')} < {instant(load.loaded_at, load.dialect)}"
    return begun if load.delete_absent else _expired(load, "tgt")


def _changes(width: int) -> str:
    differing = (f"CASE WHEN {_at('old', i)} IS DISTINCT FROM {_at('new', i)} THEN 1 ELSE 0 END" for i in range(width))
    return f"SELECT {', '.join(f'SUM({one})' for one in differing)} FROM {PAIRS} WHERE {KIND} = '{CHANGED}'"


def _sample(load: Load, kind: str, keys: tuple[str, ...], compared: tuple[str, ...], limit: int) -> str:
    kinds = {column.name: column.type.kind for column in load.columns}
    named = [(name, _at("key", i)) for i, name in enumerate(keys)]
    named += [(name, _at(side, i)) for side in ("old", "new") for i, name in enumerate(compared)]
    values = [f"CAST({at} AS TEXT)" if kinds[name] in _SAMPLED_AS_TEXT else at for name, at in named]
    sortable = [_at("new", i) for i, name in enumerate(compared) if kinds[name] not in _WITHOUT_ORDER]
    order = ", ".join([_at("key", i) for i in range(len(keys))] or sortable)
    by = f" ORDER BY {order}" if order else ""
    return f"SELECT {', '.join(values)} FROM {PAIRS} WHERE {KIND} = '{kind}'{by} LIMIT {int(limit)}"


def _laid_out(load: Load) -> list[str]:
    """Return the touched keys and all their versions as they will be."""
    touched = f"SELECT DISTINCT {listed(load.keys)} FROM {_STAGED} AS s"
    return [f"{TOUCHED} AS ({touched})", f"{DESIRED} AS ({laid_out(load, TOUCHED)})"]


def _opened_versions(load: Load) -> str:
    expired = _expired(load, "d")
    closed = f"COALESCE(SUM(CASE WHEN d.is_current AND {expired} THEN 1 ELSE 0 END), 0)" if expired else "0"
    return f"SELECT COUNT(*), {closed} FROM {DESIRED} AS d WHERE d._flow_kept = 1"


def _over_existing(load: Load, existing: Sequence[str], *, versions: bool) -> tuple[Load, list[str]]:
    """Return the load over relations that show its tables as they will be: new columns are NULL, new tables empty."""
    names = [*load.names, *(("valid_from", "valid_to", "is_current") if versions else ())]
    values = [f"{_value(load, name, existing)} AS {quoted(name)}" for name in names]
    real = f"FROM {table_sql(load.target)} AS tgt LEFT JOIN {_STAGED} AS s ON FALSE" if existing else ""
    target = f"SELECT {', '.join(values)} {real or f'FROM {_STAGED} AS s WHERE FALSE'}"
    ctes = [f"{TARGET} AS ({target})"]
    moved = replace(load, target=TableName("", TARGET))
    if load.points is not None and not existing:
        at = f"{_no_instant(load)} AS {quoted(POINT_AT)}"
        ctes.append(f"{POINTS} AS (SELECT {listed(load.names, 's')}, {at} FROM {_STAGED} AS s WHERE FALSE)")
        moved = replace(moved, points=TableName("", POINTS))
    return moved, ctes


def _value(load: Load, name: str, existing: Sequence[str]) -> str:
    if name in existing:
        return f"tgt.{quoted(name)}"
    if name in load.names:
        return f"s.{quoted(name)}"
    return "FALSE" if name == "is_current" else _no_instant(load)


def _no_instant(load: Load) -> str:
    # MySQL has no such type to cast to, and requires none.
    return "NULL" if load.dialect == "mysql" else "CAST(NULL AS TIMESTAMPTZ)"


def _at(side: str, index: int) -> str:
    return f"_flow_{side}_{index}"
