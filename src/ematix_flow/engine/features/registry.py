"""What is known of the declared feature views: where they are loaded, when, and whether that is recent enough."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.commit.feature_views import last_synced, materialize
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import FlowError, NotOnlineError, RunError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.declare.stream.stream import StreamTarget
    from ematix_flow.declare.table.schema import Table

OK, STALE, NEVER, UNREACHABLE = "ok", "stale", "never", "unreachable"
"""The states of a view in one target."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One declared view in one target."""

    view: Table
    pipelines: tuple[str, ...]
    connection: str
    state: str
    last_synced_at: datetime | None = None
    age: timedelta | None = None
    note: str = ""

    @property
    def failing(self) -> bool:
        """Return whether a check fails because of it: too old, or with a limit and never loaded or out of reach."""
        limit = self.view.features.freshness_sla if self.view.features else None
        return self.state != OK and limit is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the view as plain data."""
        features = self.view.features
        assert features is not None  # noqa: S101 - only views are loaded as such
        limit = features.freshness_sla
        return {
            "name": features.name,
            "table": self.view.qualified_name,
            "version": features.version,
            "entity_keys": list(self.view.primary_key),
            "features": [column.name for column in self.view.columns if not column.primary_key],
            "event_timestamp_column": features.event_timestamp_column,
            "ttl_seconds": _seconds(features.ttl),
            "freshness_sla_seconds": _seconds(limit),
            "online": features.online,
            "description": features.description,
            "owner": features.owner,
            "pipelines": list(self.pipelines),
            "connection": self.connection,
            "state": self.state,
            "last_synced_at": self.last_synced_at.isoformat() if self.last_synced_at else None,
            "age_seconds": _seconds(self.age),
            "note": self.note,
        }


def loaded_views(name: str | None = None, connection: str | None = None) -> list[Loaded]:
    """Return every declared view, or one, in every target that a pipeline of the module loads it into."""
    views = [PROJECT.feature_view(name)] if name else list(PROJECT.feature_views.values())
    return [one for view in views for one in _in_targets(view, connection)]


def materialize_view(name: str, connection: str | None = None) -> list[str]:
    """Build the online store of a view again, in every target that has it; return the names of their connections."""
    view = PROJECT.feature_view(name)
    if view.features is None or not view.features.online:
        message = f"feature view {view.qualified_name} has no online store"
        raise NotOnlineError(message, hint="declare it with online=True.", origin=view.origin)
    done = []
    for label, (reference, _) in _targets(view, connection).items():
        database = target_for(reference, view, session_for(Options()))
        try:
            with closing(database.session()) as session:
                materialize(database, session, view, SYSTEM_CLOCK.now())
        except database.errors as error:
            message = f"the online store of {view.qualified_name} in {label!r} could not be built: {safe_text(error)}"
            raise RunError(message, hint="the view has a table after its first load.") from None
        done.append(label)
    return done


def _targets(view: Table, connection: str | None) -> dict[str, tuple[str | Connection | None, list[str]]]:
    """Return the connections that a view is loaded into, each with its pipelines; the default one where none is."""
    targets: dict[str, tuple[str | Connection | None, list[str]]] = {}
    loads: list[tuple[str, TargetDeclaration | StreamTarget, Table | None]] = [
        *((one.name, into, into.table) for one in PROJECT.pipelines.values() for into in one.targets),
        *((one.name, into, into.declared_table) for one in PROJECT.streams.values() for into in one.targets),
    ]
    for name, target, table in loads:
        if table is not None and table.qualified_name == view.qualified_name:
            targets.setdefault(target.connection_name, (target.connection, []))[1].append(name)
    if connection is not None:
        return {connection: targets.get(connection, (connection, []))}
    return targets or {"default": (None, [])}


def _in_targets(view: Table, connection: str | None) -> list[Loaded]:
    return [
        _state(view, tuple(pipelines), label, reference)
        for label, (reference, pipelines) in _targets(view, connection).items()
    ]


def _state(view: Table, pipelines: tuple[str, ...], label: str, reference: str | Connection | None) -> Loaded:
    assert view.features is not None  # noqa: S101 - only views have a state
    try:
        database = target_for(reference, view, session_for(Options()))
    except FlowError as error:
        return Loaded(view, pipelines, label, UNREACHABLE, note=safe_text(error))
    failures: tuple[type[BaseException], ...] = (FlowError, *database.failures)
    try:
        last = _last_synced(database, view.features.name)
    except failures as error:
        return Loaded(view, pipelines, label, UNREACHABLE, note=safe_text(error))
    if last is None:
        return Loaded(view, pipelines, label, NEVER)
    age, limit = SYSTEM_CLOCK.now() - last, view.features.freshness_sla
    return Loaded(view, pipelines, label, STALE if limit is not None and age > limit else OK, last, age)


def _last_synced(database: TargetSystem, name: str) -> datetime | None:
    if not database.exists():
        return None
    with closing(database.session()) as session:
        return last_synced(database, session, name)


def _seconds(value: timedelta | None) -> int | None:
    return None if value is None else int(value.total_seconds())
