"""Inspects source and target as far as possible without reading data, and notes what had to be assumed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ematix_flow.connect.config.lookup import find_connection, resolve_connection
from ematix_flow.connect.config.redact import redact, safe_text
from ematix_flow.connect.registry import system_of, target_of
from ematix_flow.declare.connection.registry import Connection, PostgresConnection
from ematix_flow.declare.pipeline.pipeline import arguments_of
from ematix_flow.declare.pipeline.warehouse import WAREHOUSES
from ematix_flow.engine.batch.inspect import (
    LoadInspection,
    inspect_now,
    inspect_source,
    source_query,
    try_inspect_target,
    with_optional_keys,
)
from ematix_flow.engine.batch.new_files import loaded_before
from ematix_flow.engine.batch.own_target import note_about, over_missing_target
from ematix_flow.engine.batch.planner import between, bounded_inspection, known_to_spark
from ematix_flow.engine.batch.source import OpenSource, evaluate, joining, source_in_system
from ematix_flow.errors import ConnectionMissingError, FlowError, MissingSecretError, PlanError, RunError
from ematix_flow.plan.assumed_columns import assumed_columns
from ematix_flow.plan.batch import Inspection
from ematix_flow.plan.bounds import check_comparable, lower_bound, watermark_column
from ematix_flow.plan.new_files import check_source, refused, warning
from ematix_flow.plan.source import SourceValue, source_value
from ematix_flow.plan.steps import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.files.source import Files
    from ematix_flow.connect.lake.source import LakeSource
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.new_files import LoadedFiles
    from ematix_flow.engine.batch.planner import LoadRequest

S = TypeVar("S")

NOWHERE = "postgresql://unresolved"
"""Address of a server that is never called."""

UNKNOWN = "not known before the function runs"

UNINSPECTED: Final = object()
"""Stands for rows that a function builds only when it runs."""


@dataclass(frozen=True, slots=True)
class PartialInspection(Generic[S]):
    """A system as far as its connection can be resolved, and a note when something had to be assumed."""

    system: S
    name: str
    notes: tuple[str, ...] = ()
    resolved: bool = True
    """False when the system may not be queried, because it is only assumed to be this one."""


@dataclass(frozen=True, slots=True)
class OfflineSource:
    """A source as far as it is known without running anything."""

    source: OpenSource
    notes: tuple[str, ...] = ()
    resolved: bool = True
    known: bool = True
    """False when only a run knows what the function returns, so that its path is unknown."""

    def unforced(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline to plan for: a path cannot be forced or refused before the source is known."""
        return pipeline if self.known else replace(pipeline, force_path=None)


def partial(reference: str | Connection | None, opened: Callable[[Connection], S]) -> PartialInspection[S]:
    """Return the system behind a connection; one that cannot be resolved is taken as it is written, or as PostgreSQL."""
    reference = "default" if reference is None else reference
    name = reference if isinstance(reference, str) else reference.name
    try:
        return PartialInspection(opened(resolve_connection(reference)), name)
    except (ConnectionMissingError, MissingSecretError, RunError) as error:
        note = redact(error.what)
    try:
        written = reference if isinstance(reference, Connection) else find_connection(reference).connection
    except FlowError:
        written, note = PostgresConnection(name, url=NOWHERE), f"{note}; its SQL is shown as for PostgreSQL"
    return PartialInspection(opened(_nowhere(written)), name, (note,), resolved=False)


def inspect_target_offline(target: TargetDeclaration) -> PartialInspection[TargetSystem]:
    """Return the system that a target is in, and how it was found."""
    return partial(
        target.connection, lambda connection: target_of(connection, (target.table.schema, target.table.name))
    )


def _nowhere(connection: Connection) -> Connection:
    """Return a connection that leads to no server, whose open references could not be read as an address."""
    scheme = {"postgres": "postgresql", "mysql": "mysql"}.get(connection.kind)
    return connection if scheme is None else replace(connection, url=f"{scheme}://unresolved/{connection.name}")  # type: ignore[call-arg]


def inspect_source_offline(pipeline: Pipeline) -> OfflineSource:
    """Evaluate the pipeline's function with connections that refuse to be used."""
    inspection = partial(pipeline.source_ref(), system_of)
    if "spark" in arguments_of(pipeline.function):
        note = "the function builds its rows with Spark, which a preview does not start; a dry run does"
        return _uninspected(inspection, note)
    try:
        returned = evaluate(pipeline, spark=None, placeholder=True)
    except RunError as error:
        return replace(_uninspected(inspection, f"the source is {UNKNOWN}: {error.what}"), known=False)
    value = source_value(returned, pipeline.source_ref(), pipeline.source_table, inspection.system.kind)
    if value.frame is not None or value.result is not None:
        return OfflineSource(OpenSource(value, inspection.name))
    if value.connections:
        return _inspect_sides_offline(value)
    if _is_warehouse(value.connection):
        note = "rows of a warehouse are read by a run, not by a preview; the declared columns are assumed"
        return _uninspected(inspection, note)
    if value.connection not in (None, pipeline.source_ref()):
        inspection = partial(value.connection, system_of)
    return OfflineSource(
        source_in_system(inspection.system, value, inspection.name), inspection.notes, inspection.resolved
    )


def _is_warehouse(reference: str | Connection | None) -> bool:
    with suppress(FlowError):
        return reference is not None and resolve_connection(reference).kind in WAREHOUSES
    return False


def _inspect_sides_offline(value: SourceValue) -> OfflineSource:
    """Return a query over several connections, as far as these can be resolved."""
    inspections = {alias: partial(reference, system_of) for alias, reference in value.connections.items()}
    notes = tuple(dict.fromkeys(note for one in inspections.values() for note in one.notes))
    source = joining(value, {alias: one.system for alias, one in inspections.items()})
    return OfflineSource(source, notes, all(one.resolved for one in inspections.values()))


def _uninspected(inspection: PartialInspection[Database | Files | LakeSource], note: str) -> OfflineSource:
    return OfflineSource(OpenSource(SourceValue(None, frame=UNINSPECTED), inspection.name), (*inspection.notes, note))


def inspecting_offline(
    *, source_resolved: bool, target_resolved: bool, spark: Callable[[], Any] | None = None
) -> Callable[[LoadRequest], LoadInspection]:
    """Return the inspector of a preview: no data is read, no lock is waited for, failures become notes.

    With `spark` columns that only Spark knows are not assumed.
    """

    def inspect_load(load_request: LoadRequest) -> LoadInspection:
        loaded, notes = _loaded_or_note(load_request, known=target_resolved)
        load_inspection = (
            _source_or_stand_in(load_request, loaded) if source_resolved else LoadInspection(_blank(load_request))
        )
        if spark is not None:
            load_inspection = known_to_spark(
                load_request, replace(load_inspection, inspection=replace(load_inspection.inspection, notes=())), spark
            )
        load_inspection = replace(
            load_inspection,
            inspection=replace(load_inspection.inspection, notes=(*load_inspection.inspection.notes, *notes)),
        )
        inspection = between(load_request, load_inspection.inspection)
        if not inspection.source_columns:
            inspection = replace(inspection, source_columns=assumed_columns(load_request.target))
        if target_resolved:
            inspection = try_inspect_target(
                load_request.pipeline, load_request.target, load_request.database, inspection
            )
        inspection = _with_open_bounds(load_request, inspection)
        load_inspection = (
            load_inspection
            if inspection.bounds is None
            else bounded_inspection(load_request, load_inspection, inspection, inspection.bounds)
        )
        return replace(load_inspection, inspection=replace(inspection, tables=load_inspection.inspection.tables))

    return inspect_load


def _loaded_or_note(load_request: LoadRequest, *, known: bool) -> tuple[LoadedFiles | None, tuple[str, ...]]:
    """Return the files that were loaded before, or a note that they are unknown."""
    if load_request.target.write.incremental is None:
        return None, ()
    failures: Any = (FlowError, *load_request.database.failures)
    with suppress(failures):
        if known:
            return loaded_before(load_request.pipeline, load_request.target, load_request.database, inspect_now), ()
    return None, ("which files are new is not known: the target could not be queried",)


def _blank(load_request: LoadRequest) -> Inspection:
    source = load_request.source
    return Inspection(
        source.name,
        "",
        source.dialect,
        user_dialect=source.user_dialect,
        source_sql=source_query(source),
        source_path=source.value.path,
        source_format=str(getattr(source.files, "format", "")),
        rows_in_spark=source.value.frame is UNINSPECTED,
        connections=tuple(side.alias for side in source.sides),
    )


def _source_or_stand_in(load_request: LoadRequest, loaded: LoadedFiles | None) -> LoadInspection:
    """Inspect the source; where it reads a target that a run creates first, as the run will find it."""
    stand_in = over_missing_target(load_request, inspect_now)
    if stand_in is None:
        return _source_or_note(load_request, loaded)
    load_inspection = _source_or_note(stand_in, loaded)
    inspection = load_inspection.inspection
    sql = load_request.source.value.sql if inspection.source_sql == stand_in.source.value.sql else inspection.source_sql
    return replace(
        load_inspection,
        inspection=replace(inspection, source_sql=sql, notes=(*inspection.notes, note_about(load_request))),
    )


def _source_or_note(load_request: LoadRequest, loaded: LoadedFiles | None) -> LoadInspection:
    source = load_request.source
    if source.value.frame is UNINSPECTED:
        return LoadInspection(_blank(load_request))
    check_source(load_request.target.write, source.kind, source.value.sql)
    if source.lake is not None:
        note = "rows of lake tables are read by Spark, which a preview does not start; the declared columns are assumed"
        return LoadInspection(replace(_blank(load_request), notes=(note,)))
    failures: Any = FlowError if source.database is None else (FlowError, *source.database.failures)
    try:
        load_inspection = inspect_source(source, inspect_now, loaded)
    except failures as error:
        if source.sides and isinstance(error, PlanError):
            raise
        error_text = error.what if isinstance(error, FlowError) else safe_text(error)
        note = f"source {source.name!r} could not be queried ({redact(error_text)}); it is assumed to have the declared columns"
        return LoadInspection(replace(_blank(load_request), notes=(note,)))
    if source.sides:
        note = "the query over several connections is not evaluated; it is assumed to give the declared columns"
        return replace(load_inspection, inspection=replace(load_inspection.inspection, notes=(note,)))
    if load_inspection.files is not None and source.value.sql:
        note = "the query over files is not evaluated; it is assumed to give the declared columns"
        return replace(load_inspection, inspection=replace(load_inspection.inspection, notes=(note,)))
    with_keys = with_optional_keys(load_request.target, load_inspection)
    inspection = with_keys.inspection
    left_out = [column.name for column in inspection.source_columns[len(load_inspection.inspection.source_columns) :]]
    keys = (f"no line was found to have {', '.join(left_out)}: NULL where that is so",) if left_out else ()
    notes = (*inspection.notes, *_about_files(load_inspection), *keys)
    return replace(with_keys, inspection=replace(inspection, notes=notes))


def _about_files(load_inspection: LoadInspection) -> tuple[str, ...]:
    """Return what a run would report about files that have changed."""
    choice = load_inspection.inspection.files
    error = refused(choice) if choice is not None else None
    if error is not None:
        return (f"a run would be refused: {error.what}",)
    text = warning(choice) if choice is not None else ""
    return (text,) if text else ()


def _with_open_bounds(load_request: LoadRequest, inspection: Inspection) -> Inspection:
    """Return the inspection with its lower bound; the upper one would have to be read from the data."""
    write = load_request.target.write
    if write.incremental_column is None:
        return inspection
    if load_request.source.database is not None:
        check_comparable(watermark_column(write, inspection.source_columns), inspection.source_dialect)
    lo = lower_bound(inspection.watermark, write)
    return replace(inspection, bounds=Bounds(write.incremental_column, lo, None, fixed=False))
