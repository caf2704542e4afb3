"""Maintenance of targets: clears staging, books and old versions, puts small files together; loads are the engine's others.

Where tables are locked for loads, the lock is held meanwhile: nothing is removed while a change of a load is undecided.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit import cleanup as gc
from ematix_flow.commit import metadata_cleanup
from ematix_flow.commit.ledger import HistoryRow, Ledger, transaction
from ematix_flow.connect.base.maintenance import MaintenanceTask
from ematix_flow.connect.base.retry import OVERTAKEN, attempts
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.maintenance import Maintenance
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import FlowError, UnknownNameError, did_you_mean
from ematix_flow.events import MaintenanceStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.maintenance import Numbers
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import Target
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration

STAGING_SECONDS = 3600.0
"""Staging of runs that have ended goes when it is an hour old, that of runs which never ended after a day."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done about one place, or would be: a lake table, or all tables of a connection that keeps one book."""

    target: str
    status: str
    """done, would_do, not_due, empty or failed."""
    steps: dict[str, Numbers] = field(default_factory=dict)
    last: datetime | None = None
    """When the last maintenance before this one succeeded."""
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data."""
        last = self.last.isoformat() if self.last is not None else None
        steps = {name: dict(numbers) for name, numbers in self.steps.items()}
        return {"target": self.target, "status": self.status, "steps": steps, "last": last, "error": self.error}


@dataclass(frozen=True, slots=True)
class _Place:
    """What is maintained together."""

    database: Target
    shown: str
    schema: str
    table: str
    rules: Maintenance


def maintain(
    name: str | None = None, options: Options | None = None, *, due: bool = False, dry_run: bool = False
) -> list[Maintained]:
    """Maintain the targets of a pipeline, a table, or everything, and give what was done about each."""
    return _maintain(targets_named(name), options or Options(), due=due, dry_run=dry_run)


def maintain_pipeline(
    pipeline: Pipeline, options: Options | None = None, *, due: bool = False, dry_run: bool = False
) -> list[Maintained]:
    """Maintain the targets of a pipeline and give what was done about each."""
    return _maintain(pipeline.targets, options or Options(), due=due, dry_run=dry_run)


def targets_named(name: str | None) -> list[TargetDeclaration]:
    """Return the targets of a pipeline or of a table by its name; without a name those of every pipeline."""
    everything = [target for pipeline in PROJECT.pipelines.values() for target in pipeline.targets]
    if name is None:
        return everything
    if name in PROJECT.pipelines:
        return list(PROJECT.pipelines[name].targets)
    found = [target for target in everything if target.table.qualified_name == name]
    if not found:
        known = [*PROJECT.pipelines, *(target.table.qualified_name for target in everything)]
        message = f"no pipeline and no target table is named {name!r}"
        raise UnknownNameError(message, hint=did_you_mean(name, dict.fromkeys(known)))
    return found


def _maintain(targets: Iterable[TargetDeclaration], options: Options, *, due: bool, dry_run: bool) -> list[Maintained]:
    results = []
    for place in _places(targets, options):
        expected: tuple[type[BaseException], ...] = (FlowError, *place.database.failures)
        try:
            results.append(_one(place, options, due=due, dry_run=dry_run))
        except expected as error:
            if not dry_run:
                _note_failure(place, options, safe_text(error))
            results.append(Maintained(place.shown, "failed", error=safe_text(error)))
    return results


def _places(targets: Iterable[TargetDeclaration], options: Options) -> list[_Place]:
    """Return every place once, however many pipelines write there."""
    places: dict[tuple[str, ...], _Place] = {}
    for target in targets:
        connection = resolve_connection("default" if target.connection is None else target.connection)
        table = target.table
        database = target_for(connection, table, session_for(options))
        own = database.books_per_table
        schema, name = (table.schema, table.name) if own else ("", "")
        shown = f"{table.qualified_name} on {connection.name}" if own else connection.name
        place = _Place(database, shown, schema, name, table.maintenance or Maintenance())
        known = places.setdefault((*database.identity(), schema, name), place)
        if table.maintenance is not None and place.rules.every < known.rules.every:
            # What is kept together is taken up as often as the table that asks for it most often.
            places[*database.identity(), schema, name] = place
    return list(places.values())


def _one(place: _Place, options: Options, *, due: bool, dry_run: bool) -> Maintained:
    database, now = place.database, options.clock.now()
    if not database.exists():
        return Maintained(place.shown, "empty")
    ledger = Ledger(database)
    session = database.look() if dry_run else database.session()
    try:
        if not ledger.exists(session):
            return Maintained(place.shown, "empty")
        last = metadata_cleanup.last_success(ledger, session, place.schema, place.table)
        if due and last is not None and now - last < place.rules.every:
            return Maintained(place.shown, "not_due", last=last)
        if dry_run:
            return Maintained(place.shown, "would_do", _looked(place, session, now), last)
        return Maintained(place.shown, "done", _worked(place, session, options), last)
    finally:
        session.close()


def _looked(place: _Place, session: Session, now: datetime) -> dict[str, Numbers]:
    ledger = Ledger(place.database)
    staging = {"removed": len(gc.stale(place.database, session, STAGING_SECONDS))}
    maintenance_tasks = place.database.maintenance_tasks(session, place.rules, now)
    steps = {task.name: task.look() for task in maintenance_tasks}
    return {"staging": staging, **steps, "ledger": metadata_cleanup.forgettable(ledger, session, now)}


def _worked(place: _Place, session: Session, options: Options) -> dict[str, Numbers]:
    """Do the work; staging first, because not every database can drop tables in a transaction."""
    database = place.database
    staging = MaintenanceTask("staging", lambda: {"removed": gc.collect(database, STAGING_SECONDS)}, dict)
    cleared = _told(place, options, [staging])
    for attempt in attempts(OVERTAKEN):
        with attempt:
            steps = _transacted(place, session, options)
    return cleared | steps


def _transacted(place: _Place, session: Session, options: Options) -> dict[str, Numbers]:
    database, now = place.database, options.clock.now()
    ledger = Ledger(database)
    forgetting = MaintenanceTask("ledger", lambda: metadata_cleanup.forget(ledger, session, now), dict)
    with transaction(session):
        steps = _told(place, options, [*database.maintenance_tasks(session, place.rules, now), forgetting])
        done = replace(_history(place, now), finished_at=options.clock.now(), metrics=json.dumps(steps))
        ledger.record(session, done)
    return steps


def _told(place: _Place, options: Options, maintenance_tasks: Sequence[MaintenanceTask]) -> dict[str, Numbers]:
    """Do chores one after the other, each told before and after."""
    steps: dict[str, Numbers] = {}
    for task in maintenance_tasks:
        options.bus.emit(MaintenanceStep("", place.shown, task.name))
        steps[task.name] = task.work()
        options.bus.emit(MaintenanceStep("", place.shown, task.name, dict(steps[task.name])))
    return steps


def _history(place: _Place, at: datetime) -> HistoryRow:
    return HistoryRow(
        run_id=str(uuid.uuid4()),
        pipeline=metadata_cleanup.NAME,
        schema=place.schema,
        table=place.table,
        mode="maintain",
        path="maintain",
        started_at=at,
        status=metadata_cleanup.DONE,
    )


def _note_failure(place: _Place, options: Options, text: str) -> None:
    """Write the failure into the books, unless they cannot be reached or are not there."""
    database, now = place.database, options.clock.now()
    row = replace(_history(place, now), status=metadata_cleanup.FAILED, finished_at=now, error=text[:4000])
    try:
        session = database.session()
    except database.failures:
        return
    try:
        ledger = Ledger(database)
        if ledger.exists(session):
            for attempt in attempts(OVERTAKEN):
                with attempt:
                    _record(ledger, session, row)
    except database.failures:
        return
    finally:
        session.close()


def _record(ledger: Ledger, session: Session, row: HistoryRow) -> None:
    with transaction(session):
        ledger.record(session, row)
