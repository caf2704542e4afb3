"""The registry of feature views and their online stores, kept up to date by the commit of every load."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger, parse_instant, transaction
from ematix_flow.errors import UnsupportedError
from ematix_flow.plan.metadata_tables import FEATURE_VIEWS, feature_views_sql
from ematix_flow.plan.sql.online import DIALECTS, online_name, online_store
from ematix_flow.plan.sql.render import native_column, native_name

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.plan.sql.online import OnlineStore


def prepare_view(database: TargetSystem, session: Session, table: Table, now: datetime) -> None:
    """Create what the commit of a view writes to: the registry with a row for the view, and its online store."""
    assert table.features is not None  # noqa: S101 - only views are prepared
    registry = _Registry(database)
    registry.ensure(session)
    registry.insert(session, table, now)
    if table.features.online:
        _ensure_online(database, session, table)


def sync_view(database: TargetSystem, session: Session, table: Table, now: datetime) -> None:
    """Write that a view was loaded, and bring its online store up to date; inside the transaction of the load."""
    _Registry(database).update(session, table, now)
    if table.features is not None and table.features.online:
        for statement in online_of(database, table).refresh:
            session.execute(statement)


def materialize(database: TargetSystem, session: Session, table: Table, now: datetime) -> None:
    """Build the online store of a view again from its versions; nothing is loaded."""
    prepare_view(database, session, table, now)
    with transaction(session):
        for statement in online_of(database, table).refresh:
            session.execute(statement)


def drop_online(database: TargetSystem, session: Session, table: Table) -> None:
    """Drop the online store of a view whose table is about to change; `prepare_view` creates it again."""
    for statement in online_of(database, table).drop:
        session.execute(statement)


def online_of(database: TargetSystem, table: Table) -> OnlineStore:
    """Return the online store of a view in this target, or refuse a target that has none."""
    check_online(database, table)
    return online_store(table, database.table_name(table.schema, table.name), database.dialect)


def online_table(database: TargetSystem, table: Table) -> TableName:
    """Return where the current values of a view are in this target; a lookup needs no statement of the store."""
    check_online(database, table)
    return online_name(database.table_name(table.schema, table.name))


def check_online(database: TargetSystem, table: Table) -> None:
    """Refuse an online view in a system that cannot look rows up by key."""
    if table.features is not None and table.features.online and database.dialect not in DIALECTS:
        message = f"feature view {table.features.name} is online, and {database.kind} has no online store"
        hint = f"leave online=True out, or load it into a database: {', '.join(DIALECTS)}."
        raise UnsupportedError(message, hint=hint, origin=table.origin)


def last_synced(database: TargetSystem, session: Session, name: str) -> datetime | None:
    """Return when a view was loaded last, or None where the registry of a target knows of no load."""
    return _Registry(database).last_synced(session, name)


def _ensure_online(database: TargetSystem, session: Session, table: Table) -> None:
    store = online_of(database, table)
    for statement in store.index:
        session.execute(statement)
    if _columns_of(database, session, store) == store.columns:
        return
    try:
        for statement in (*store.drop, *store.create):
            session.execute(statement)
    except database.errors:
        # A concurrent run may have created the same store between our check and our statement.
        if _columns_of(database, session, store) != store.columns:
            raise


def _columns_of(database: TargetSystem, session: Session, store: OnlineStore) -> tuple[str, ...] | None:
    """Return the columns of the online store, or None where it does not exist."""
    sql = f"SELECT * FROM {native_name(store.place, database.dialect)}"
    try:
        return tuple(column.name for column in database.describe(session, sql))  # type: ignore[attr-defined]
    except database.errors:
        return None


class _Registry:
    """The table `feature_views` among our own tables of one target."""

    def __init__(self, database: TargetSystem) -> None:
        self.ledger = Ledger(database)
        self.store = self.ledger.database
        self.name = self.ledger.name(FEATURE_VIEWS)

    def ensure(self, session: Session) -> None:
        if self.ledger.exists(session, FEATURE_VIEWS):
            return
        try:
            session.execute(feature_views_sql(self.store))
        except self.store.errors:
            if not self.ledger.exists(session, FEATURE_VIEWS):
                raise

    def insert(self, session: Session, table: Table, now: datetime) -> None:
        """Add the row of a view that is loaded for the first time; a concurrent run may do so at the same time."""
        values = self._values(table)
        if session.query(f"SELECT 1 FROM {self.name} WHERE name = ?", (values["name"],)):
            return
        columns = [native_column(column, self.ledger.dialect) for column in values]
        placeholders = ", ".join(self._placeholder(column) for column in values)
        try:
            with transaction(session):
                session.execute(
                    f"INSERT INTO {self.name} ({', '.join(columns)}, registered_at) "
                    f"VALUES ({placeholders}, {self.ledger.at(now)})",
                    tuple(values.values()),
                )
        except self.store.errors as error:
            if not self.store.is_duplicate_key(error):
                raise

    def update(self, session: Session, table: Table, now: datetime) -> None:
        """Write the declaration of a view and the instant of its load."""
        values = self._values(table)
        name = values.pop("name")
        sets = [f"{native_column(column, self.ledger.dialect)} = {self._placeholder(column)}" for column in values]
        session.execute(
            f"UPDATE {self.name} SET {', '.join(sets)}, last_synced_at = {self.ledger.at(now)} WHERE name = ?",
            (*values.values(), name),
        )

    def last_synced(self, session: Session, name: str) -> datetime | None:
        if not self.ledger.exists(session, FEATURE_VIEWS):
            return None
        at = self.ledger.as_text("last_synced_at")
        rows = session.query(f"SELECT {at} FROM {self.name} WHERE name = ?", (name,))
        return parse_instant(rows[0][0]) if rows and rows[0][0] is not None else None

    def _values(self, table: Table) -> dict[str, object]:
        view = table.features
        assert view is not None  # noqa: S101 - only views are registered
        return {
            "name": view.name,
            "schema_name": table.schema,
            "table_name": table.name,
            "feature_version": view.version,
            "entity_keys": list(table.primary_key) if self._has_lists else json.dumps(table.primary_key),
            "event_timestamp_column": view.event_timestamp_column,
            "ttl_seconds": _seconds(view.ttl),
            "description": view.description,
            "owner": view.owner,
            "freshness_sla_seconds": _seconds(view.freshness_sla),
        }

    @property
    def _has_lists(self) -> bool:
        return self.ledger.dialect == "postgres"

    def _placeholder(self, column: str) -> str:
        if self.ledger.dialect != "postgres":
            return "?"
        kind = {"entity_keys": "TEXT[]", "ttl_seconds": "BIGINT", "freshness_sla_seconds": "BIGINT"}.get(column, "TEXT")
        return f"CAST(? AS {kind})"


def _seconds(value: timedelta | None) -> int | None:
    return None if value is None else int(value / timedelta(seconds=1))
