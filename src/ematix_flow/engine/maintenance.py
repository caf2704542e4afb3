"""Maintenance of targets: clears staging, metadata and old versions, compacts small files; it loads nothing.

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
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration

STAGING_SECONDS = 3600.0
"""Staging of runs that have ended goes when it is an hour old, that of runs which never ended after a day."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done about one unit, or would be: a lake table, or all tables of one metadata store."""

    target: str
    status: str
    """done, would_do, not_due, empty or failed."""
    steps: dict[str, Numbers] = field(default_factory=dict)
    last: datetime | None = None
    """When the last maintenance before this one succeeded."""
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        last = self.last.isoformat() if self.last is not None else None
        steps = {name: dict(numbers) for name, numbers in self.steps.items()}
        return {"target": self.target, "status": self.status, "steps": steps, "last": last, "error": self.error}


@dataclass(frozen=True, slots=True)
class _MaintenanceUnit:
    """What is maintained together."""

    database: TargetSystem
    display_name: str
    schema: str
    table: str
    rules: Maintenance


def maintain(
    name: str | None = None, options: Options | None = None, *, due: bool = False, dry_run: bool = False
) -> list[Maintained]:
    """Maintain the targets of a pipeline, a table, or everything, and return what was done about each."""
    return _maintain(targets_named(name), options or Options(), due=due, dry_run=dry_run)


def maintain_pipeline(
    pipeline: Pipeline, options: Options | None = None, *, due: bool = False, dry_run: bool = False
) -> list[Maintained]:
    """Maintain the targets of a pipeline and return what was done about each."""
    return _maintain(pipeline.targets, options or Options(), due=due, dry_run=dry_run)


def targets_named(name: str | None) -> list[TargetDeclaration]:
    """Return the targets of a pipeline or of a table by its name; without a name those of every pipeline."""
    everything = [target for pipeline in PROJECT.pipelines.values() for target in pipeline.targets]
    if name is None:
        return everything
    if name in PROJECT.pipelines:
        return list(PROJECT.pipelines[name].targets)
    matching = [target for target in everything if target.table.qualified_name == name]
    if not matching:
        known = [*PROJECT.pipelines, *(target.table.qualified_name for target in everything)]
        message = f"no pipeline and no target table is named {name!r}"
        raise UnknownNameError(message, hint=did_you_mean(name, dict.fromkeys(known)))
    return matching


def _maintain(targets: Iterable[TargetDeclaration], options: Options, *, due: bool, dry_run: bool) -> list[Maintained]:
    results = []
    for unit in _units(targets, options):
        expected: tuple[type[BaseException], ...] = (FlowError, *unit.database.failures)
        try:
            results.append(_one(unit, options, due=due, dry_run=dry_run))
        except expected as error:
            if not dry_run:
                _note_failure(unit, options, safe_text(error))
            results.append(Maintained(unit.display_name, "failed", error=safe_text(error)))
    return results


def _units(targets: Iterable[TargetDeclaration], options: Options) -> list[_MaintenanceUnit]:
    """Return every unit once, however many pipelines write there."""
    units: dict[tuple[str, ...], _MaintenanceUnit] = {}
    for target in targets:
        connection = resolve_connection("default" if target.connection is None else target.connection)
        table = target.table
        database = target_for(connection, table, session_for(options))
        per_table = database.metadata_per_table
        schema, name = (table.schema, table.name) if per_table else ("", "")
        display_name = f"{table.qualified_name} on {connection.name}" if per_table else connection.name
        unit = _MaintenanceUnit(database, display_name, schema, name, table.maintenance or Maintenance())
        known = units.setdefault((*database.identity(), schema, name), unit)
        if table.maintenance is not None and unit.rules.every < known.rules.every:
            # Tables of one unit are maintained as often as the one with the shortest interval.
            units[*database.identity(), schema, name] = unit
    return list(units.values())


def _one(unit: _MaintenanceUnit, options: Options, *, due: bool, dry_run: bool) -> Maintained:
    database, now = unit.database, options.clock.now()
    if not database.exists():
        return Maintained(unit.display_name, "empty")
    ledger = Ledger(database)
    session = database.read_only_session() if dry_run else database.session()
    try:
        if not ledger.exists(session):
            return Maintained(unit.display_name, "empty")
        last = metadata_cleanup.last_success(ledger, session, unit.schema, unit.table)
        if due and last is not None and now - last < unit.rules.every:
            return Maintained(unit.display_name, "not_due", last=last)
        if dry_run:
            return Maintained(unit.display_name, "would_do", _dry_run_steps(unit, session, now), last)
        return Maintained(unit.display_name, "done", _worked(unit, session, options), last)
    finally:
        session.close()


def _dry_run_steps(unit: _MaintenanceUnit, session: Session, now: datetime) -> dict[str, Numbers]:
    ledger = Ledger(unit.database)
    staging = {"removed": len(gc.stale(unit.database, session, STAGING_SECONDS))}
    maintenance_tasks = unit.database.maintenance_tasks(session, unit.rules, now)
    steps = {task.name: task.preview() for task in maintenance_tasks}
    return {"staging": staging, **steps, "ledger": metadata_cleanup.forgettable(ledger, session, now)}


def _worked(unit: _MaintenanceUnit, session: Session, options: Options) -> dict[str, Numbers]:
    """Do the work; staging first, because not every database can drop tables in a transaction."""
    database = unit.database
    staging = MaintenanceTask("staging", lambda: {"removed": gc.collect(database, STAGING_SECONDS)}, dict)
    cleared = _run_tasks(unit, options, [staging])
    for attempt in attempts(OVERTAKEN):
        with attempt:
            steps = _transacted(unit, session, options)
    return cleared | steps


def _transacted(unit: _MaintenanceUnit, session: Session, options: Options) -> dict[str, Numbers]:
    database, now = unit.database, options.clock.now()
    ledger = Ledger(database)
    forgetting = MaintenanceTask("ledger", lambda: metadata_cleanup.forget(ledger, session, now), dict)
    with transaction(session):
        steps = _run_tasks(unit, options, [*database.maintenance_tasks(session, unit.rules, now), forgetting])
        done = replace(_history(unit, now), finished_at=options.clock.now(), metrics=json.dumps(steps))
        ledger.record(session, done)
    return steps


def _run_tasks(
    unit: _MaintenanceUnit, options: Options, maintenance_tasks: Sequence[MaintenanceTask]
) -> dict[str, Numbers]:
    """Do maintenance tasks one after the other, each with an event before and after."""
    steps: dict[str, Numbers] = {}
    for task in maintenance_tasks:
        options.bus.emit(MaintenanceStep("", unit.display_name, task.name))
        steps[task.name] = task.work()
        options.bus.emit(MaintenanceStep("", unit.display_name, task.name, dict(steps[task.name])))
    return steps


def _history(unit: _MaintenanceUnit, at: datetime) -> HistoryRow:
    return HistoryRow(
        run_id=str(uuid.uuid4()),
        pipeline=metadata_cleanup.NAME,
        schema=unit.schema,
        table=unit.table,
        mode="maintain",
        path="maintain",
        started_at=at,
        status=metadata_cleanup.DONE,
    )


def _note_failure(unit: _MaintenanceUnit, options: Options, text: str) -> None:
    """Write the failure into the metadata tables, unless they cannot be reached or are missing."""
    database, now = unit.database, options.clock.now()
    row = replace(_history(unit, now), status=metadata_cleanup.FAILED, finished_at=now, error=text[:4000])
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
