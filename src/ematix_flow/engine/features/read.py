"""Values of feature views: as of an instant, for every row of a spine, and the current ones; it changes nothing."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.feature_views import online_table
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.registry import LAKES, open_database
from ematix_flow.declare.table.types import Text, TimestampTZ
from ematix_flow.engine.api.references import declared_connection
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.connection import Connection
from ematix_flow.engine.features.spine import documents, instants_of, keys_of, spine_table
from ematix_flow.engine.features.values import check_key, feature_value, instant_of, key_value
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import DeclareError, DeclareTypeError, NotOnlineError, RunError, did_you_mean
from ematix_flow.plan.sql.point_in_time import current_sql, embedded, point_in_time_sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.table.schema import Column, Table
    from ematix_flow.declare.table.types import ColumnType

SNAPSHOTS = {
    "postgres": ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",),
    "mysql": ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"),
    "sqlite": ("BEGIN",),
    "duckdb": ("BEGIN TRANSACTION",),
}
"""What makes all queries that follow read one state of the database."""

READERS = 4
"""Connections at most that look up the rows of one spine."""

WORTH_COMPANIONS = 40_000
"""Lookups, rows of the spine times views, from which a second connection is worth opening."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A database or lake from which values are read."""

    database: TargetSystem
    session: Session | None
    """None for a lake, whose rows Spark reads."""
    in_transaction: bool = False
    """True inside a transaction of the caller, which decides what is read."""

    @property
    def dialect(self) -> str:
        """Return the dialect of the queries."""
        return self.database.dialect

    def type_of(self, column_type: ColumnType) -> str:
        """Return the type of a key; a text of any length is compared with whatever length the column has."""
        return self.database.ddl_type(Text() if column_type.kind in ("text", "string") else column_type)

    def place(self, view: Table) -> TableName:
        """Return where the versions of a view are."""
        return self.database.table_name(view.schema, view.name)

    def query(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return the rows of a query; Spark gets its one parameter as text."""
        if self.session is not None:
            return self.session.query(sql, parameters)
        return self.database.engine().query(embedded(sql, str(parameters[0])))  # type: ignore[attr-defined, no-any-return]


@contextmanager
def reading(conn: Any, view: Table) -> Iterator[Reader]:
    """Open what a connection leads to for this block; a handle of the caller stays open."""
    if isinstance(conn, Connection):
        with _translated(conn.database, view):
            yield Reader(conn.database, conn.session(), conn.in_transaction)
        return
    reference = declared_connection(conn)
    if reference.kind in LAKES:
        lake = target_for(reference, view, session_for(Options()))
        with _translated(lake, view):
            yield Reader(lake, None)
        return
    database = open_database(reference)
    with _translated(database, view):
        session = database.read_only_session()
        try:
            yield Reader(database, session)
        finally:
            session.close()


@contextmanager
def one_state(reader: Reader, lookups: int = 0) -> Iterator[tuple[Reader, ...]]:
    """Return readers that all see one state of a database: several where there are lookups enough for them.

    In a transaction of the caller there is only the reader itself.
    """
    session = reader.session
    if session is None or reader.in_transaction:
        yield (reader,)
        return
    for statement in SNAPSHOTS[reader.dialect]:
        session.execute(statement)
    with ExitStack() as opened:
        opened.callback(session.rollback)
        snapshot = session.export_snapshot() if lookups >= WORTH_COMPANIONS else ""
        others = min(os.cpu_count() or 1, READERS) - 1 if snapshot else 0
        yield (reader, *[_companion(opened, reader, snapshot) for _ in range(others)])


def _companion(opened: ExitStack, reader: Reader, snapshot: str) -> Reader:
    """Return another reader of the state that was exported; it is closed with the block."""
    session = opened.enter_context(closing(reader.database.read_only_session()))
    session.join_snapshot(snapshot)
    return Reader(reader.database, session)


@contextmanager
def _translated(database: TargetSystem, view: Table) -> Iterator[None]:
    try:
        yield
    except database.errors as error:
        message = f"feature view {view.qualified_name} could not be read: {safe_text(error)}"
        hint = "it has a table after its first load; flow features list shows what was loaded."
        raise RunError(message, hint=hint) from None


def point_in_time(
    view: Table, conn: Any, entity_keys: Mapping[str, Any], as_of: datetime, columns: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return the values that one entity had at an instant, or None where it had none."""
    check_entity_keys(view, entity_keys)
    chosen = chosen_columns(view, columns, view.columns)
    row = {**entity_keys, "as_of": instant_of(as_of, "point_in_time")}
    spine = spine_table([row], (view,))
    with reading(conn, view) as reader:
        rows = _by_row(versions_at((reader,), view, chosen, keys_of(spine, view), instants_of(spine)))
    return None if 0 not in rows else _as_dict(chosen, rows[0])


def historical_features(view: Table, conn: Any, spine: Any, columns: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the features for every row of the spine in its order; values are None where an entity had none."""
    chosen = chosen_columns(view, columns, features_of(view))
    table = spine_table(spine, (view,))
    if not table.num_rows:
        return []
    instants, nothing = instants_of(table), (None,) * len(chosen)
    with reading(conn, view) as reader, one_state(reader, len(instants)) as readers:
        rows = _by_row(versions_at(readers, view, chosen, keys_of(table, view), instants))
    return [_as_dict(chosen, rows.get(number, nothing)) for number in range(len(instants))]


def online_features(
    view: Table, conn: Any, entity_keys: Mapping[str, Any], columns: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return the current values of one entity from the online store, or None where it has none."""
    if view.features is None or not view.features.online:
        message = f"feature view {view.qualified_name} has no online store"
        raise NotOnlineError(message, hint="declare it with online=True and load it once.", origin=view.origin)
    check_entity_keys(view, entity_keys)
    chosen = chosen_columns(view, columns, view.columns)
    with reading(conn, view) as reader:
        place = online_table(reader.database, view)
        keys = tuple(column for column in view.columns if column.primary_key)
        types = tuple(reader.type_of(column.type) for column in keys)
        sql = _lookup(place, view.primary_key, tuple(c.name for c in chosen), types, reader.dialect)
        rows = reader.query(sql, _parameters(keys, entity_keys, reader.dialect, view))
    return _as_dict(chosen, rows[0]) if rows else None


_lookup = lru_cache(maxsize=256)(current_sql)


def versions_at(
    readers: Sequence[Reader],
    view: Table,
    columns: Sequence[Column],
    keys: Sequence[pa.ChunkedArray],
    instants: pa.Array,
) -> Iterator[list[tuple[Any, ...]]]:
    """Return the number of every row of a spine that has values, with the values as the driver gives them."""
    reader = readers[0]
    keyed = [column for column in view.columns if column.primary_key]
    types = [reader.database.ddl_type(TimestampTZ()), *(reader.type_of(column.type) for column in keyed)]
    names = [column.name for column in columns]
    sql = point_in_time_sql(reader.place(view), view.primary_key, names, types, reader.dialect)
    kinds = [column.type.kind for column in keyed]
    parts = documents(keys, kinds, instants, reader.dialect)
    if len(readers) == 1:
        yield from (reader.query(sql, (part,)) for part in parts)
    else:
        yield from _side_by_side(readers, sql, parts)


def _side_by_side(readers: Sequence[Reader], sql: str, parts: Iterator[str]) -> Iterator[list[tuple[Any, ...]]]:
    """Return the rows of every part in order; each reader works on one part at a time, and few parts wait."""
    free: SimpleQueue[Reader] = SimpleQueue()
    for reader in readers:
        free.put(reader)

    def rows_of(part: str) -> list[tuple[Any, ...]]:
        reader = free.get()
        try:
            return reader.query(sql, (part,))
        finally:
            free.put(reader)

    with ThreadPoolExecutor(len(readers), "features") as threads:
        waiting = deque(threads.submit(rows_of, part) for part in islice(parts, 2 * len(readers)))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(threads.submit(rows_of, part) for part in islice(parts, 1))


def _by_row(chunks: Iterator[list[tuple[Any, ...]]]) -> dict[int, tuple[Any, ...]]:
    return {int(row[0]): tuple(row[1:]) for rows in chunks for row in rows}


def features_of(view: Table) -> tuple[Column, ...]:
    """Return the columns of a view that are no keys."""
    return tuple(column for column in view.columns if not column.primary_key)


def chosen_columns(view: Table, names: Sequence[str] | None, usual: Sequence[Column]) -> tuple[Column, ...]:
    """Return the named columns of a view, or the usual ones; what loads add, such as valid_to, would leak the future."""
    if names is None:
        return tuple(usual)
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        message = f"columns={names!r} is no list of names"
        raise DeclareTypeError(message)
    known = {column.name: column for column in view.columns}
    for name in names:
        if name not in known:
            message = f"feature view {view.qualified_name} declares no column {name!r}"
            raise DeclareError(message, hint=did_you_mean(name, known), origin=view.origin)
    if not names:
        message = f"no column of feature view {view.qualified_name} is requested"
        raise DeclareError(message)
    return tuple(known[name] for name in dict.fromkeys(names))


def check_entity_keys(view: Table, entity_keys: Mapping[str, Any]) -> None:
    """Refuse anything but exactly the keys of a view."""
    for name in view.primary_key:
        if name not in entity_keys:
            message = f"entity_keys= lacks {name!r}, an entity key of feature view {view.qualified_name}"
            raise DeclareError(message, hint=f"give {', '.join(view.primary_key)}.")
    for name in entity_keys:
        if name not in view.primary_key:
            message = f"{name!r} is not an entity key of feature view {view.qualified_name}"
            raise DeclareError(message, hint=f"give {', '.join(view.primary_key)}.")


def _parameters(keys: Sequence[Column], given: Mapping[str, Any], dialect: str, view: Table) -> list[Any]:
    import pyarrow as pa

    from ematix_flow.connect.types.arrow import arrow_type

    values = []
    for column in keys:
        value, kind = given[column.name], column.type.kind
        if kind == "big_int" and type(value) is int and -(2**63) <= value < 2**63:
            values.append(value)
            continue
        check_key(column, view.qualified_name)
        try:
            typed = pa.scalar(str(value) if kind == "uuid" else value, arrow_type(column.type)).as_py()
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            message = f"{value!r} is no {kind}, the type of entity key {column.name!r}"
            raise DeclareError(message) from None
        values.append(key_value(typed, kind, dialect))
    return values


def _as_dict(columns: Sequence[Column], row: Sequence[Any]) -> dict[str, Any]:
    return {c.name: feature_value(value, c.type.kind) for c, value in zip(columns, row, strict=True)}
