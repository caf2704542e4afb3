"""Calls the user's function: the source of a run as a value, with the system it is in."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.files.source import Files
from ematix_flow.connect.lake.source import LakeSource
from ematix_flow.connect.registry import open_system, system_of
from ematix_flow.declare.pipeline.pipeline import arguments_of
from ematix_flow.declare.pipeline.warehouse import WAREHOUSES
from ematix_flow.engine.batch.joins import Side
from ematix_flow.engine.connection import Connection, PlaceholderConnection
from ematix_flow.engine.errors import containing_exits
from ematix_flow.engine.spark.session import OWN, readable, require
from ematix_flow.engine.warehouse.open import read_warehouse
from ematix_flow.errors import PlanError, UnsupportedError
from ematix_flow.plan.source import SourceValue, source_value
from ematix_flow.plan.sql.user.stream import spark_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.declare.connection.registry import Connection as Declared
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.plan.steps import FileChoice, OffsetRange
    from ematix_flow.run.read.message_ranges import MessageRange


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A source with the system behind it: one of `database`, `files`, `lake` and `stream`, none for rows in memory."""

    value: SourceValue
    name: str
    database: SqlSource | None = None
    files: Files | None = None
    lake: LakeSource | None = None
    sides: tuple[Side, ...] = ()
    """The connections of a query over several of them."""
    stream: MessageRange | None = None
    span: OffsetRange | None = None
    """The range of a stream that the rows are; the target stores its end."""
    rejects: pa.Table | DataFrame | None = None
    """Messages that could not be read before there were rows, as rejects are staged."""
    chosen: FileChoice | None = None
    """The files that rows in memory were read from; the target records them."""
    previously_loaded: bool = False
    """Whether earlier loads of a stream are in the target's table, so that it is not created when it is missing."""
    ordered: bool = False
    """Whether rows of files get their position, and rows in memory have it, because the last of a key counts."""
    positioned: bool = False
    """Whether rows in memory have the text of where each was read."""
    user_dialect: str = ""
    """What the user's expressions are written in, where that is not the dialect of the source."""
    functions: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())
    """Functions and aggregates of the user that the query can call."""

    @property
    def kind(self) -> str:
        """Return what the source is, for people and for rules."""
        if self.sides:
            return "several connections"
        if self.files is not None:
            return "files"
        if self.lake is not None:
            return "a lake"
        if self.stream is not None:
            return "a stream"
        return "a database" if self.database is not None else "rows in memory"

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return what of this machine's disk a task needs that reads the source."""
        if self.stream is not None:
            return self.stream.source.read_paths
        if self.sides:
            return tuple(path for side in self.sides for path in side.system.read_paths)
        system = self.database or self.files or self.lake
        return system.read_paths if system is not None else ()

    @property
    def dialect(self) -> str:
        """Return the SQL dialect of the source."""
        return self.database.dialect if self.database is not None else "spark"


def open_source(pipeline: Pipeline, *, spark: Callable[[], Any]) -> OpenSource:
    """Evaluate the pipeline's function and open the system that its source is in."""
    reference = pipeline.source_ref()
    kind, name = _kind_and_name(reference)
    returned = evaluate(pipeline, spark=spark)
    opened = attach(source_value(returned, reference, pipeline.source_table, kind), name)
    return _with_functions(opened, pipeline) if pipeline.udfs or pipeline.aggregate_udfs else opened


def _with_functions(source: OpenSource, pipeline: Pipeline) -> OpenSource:
    """Return the source with the functions of its pipeline; only a query that Spark runs can call them."""
    if not source.value.sql or (source.files is None and source.lake is None and not source.sides):
        message = f"udfs= and aggregate_udfs= are for SQL over files or lake tables, and the source is {source.kind}"
        raise PlanError(message, hint="a stream's transform_sql= can call them too.", origin=pipeline.origin)
    require(OWN)
    aggregates = frozenset(one.name for one in pipeline.aggregate_udfs)
    value = replace(source.value, sql=spark_sql(source.value.sql, "spark", aggregates))
    return replace(source, value=value, functions=(pipeline.udfs, pipeline.aggregate_udfs))


def evaluate(pipeline: Pipeline, *, spark: Callable[[], Any] | None, placeholder: bool = False) -> Any:
    """Return what the pipeline's function returns; with `placeholder` it gets connections that refuse to be used."""
    argument_names = arguments_of(pipeline.function)
    opened: list[Connection] = []
    try:
        arguments = [
            _argument(n, argument_names, pipeline, opened, spark, placeholder=placeholder) for n in argument_names
        ]
        return called(pipeline.function, *arguments)
    finally:
        for handle in opened:
            handle.close()


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the user's function returns, awaited where it is asynchronous."""
    with containing_exits():
        returned = function(*arguments)
        return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


async def _awaited(value: Any) -> Any:
    return await value


def attach(value: SourceValue, name: str) -> OpenSource:
    """Open the system that a source value names."""
    if value.frame is not None or value.result is not None:
        return OpenSource(value, name)
    if value.connections:
        return joining(value, {alias: open_system(reference) for alias, reference in value.connections.items()})
    if value.connection is not None and not isinstance(value.connection, str):
        name = value.connection.name
    connection = resolve_connection("default" if value.connection is None else value.connection)
    if connection.kind in WAREHOUSES:
        rows = read_warehouse(connection, value.sql)
        return OpenSource(replace(value, sql="", frame=rows), name)
    return source_in_system(system_of(connection), value, name)


def joining(value: SourceValue, systems: Mapping[str, SqlSource | Files | LakeSource]) -> OpenSource:
    """Return a query over several connections with their systems."""
    sides = []
    for alias, reference in value.connections.items():
        name = reference if isinstance(reference, str) else reference.name
        system = systems[alias]
        if isinstance(system, LakeSource):
            require(system.spark_requirements)
        sides.append(Side(alias, name, system))
    return OpenSource(value, ", ".join(dict.fromkeys(side.name for side in sides)), sides=tuple(sides))


def source_in_system(system: SqlSource | Files | LakeSource, value: SourceValue, name: str) -> OpenSource:
    """Return the source with the system it was found in."""
    if isinstance(system, Files):
        return OpenSource(value, name, files=system)
    if isinstance(system, LakeSource):
        require(system.spark_requirements)
        return OpenSource(value, name, lake=system)
    return OpenSource(value, name, database=system)


def source_for(pipeline: Pipeline, options: Options, spark: Callable[[], Any]) -> OpenSource:
    """Return the source of a run or a dry run: the declared one, or the rows that a test hands in."""
    if options.source_frame is not None:
        return provided_source(options)
    return replace(open_source(pipeline, spark=spark), user_dialect=options.user_dialect)


def provided_source(options: Options) -> OpenSource:
    """Return the source that a test hands in instead of the declared one: rows in memory."""
    value = SourceValue(None, frame=options.source_frame, shaped=options.shaped)
    return OpenSource(value, "given rows", user_dialect=options.user_dialect)


def _kind_and_name(reference: str | Declared | None) -> tuple[str, str]:
    if reference is not None and not isinstance(reference, str):
        return reference.kind, reference.name
    name = reference or "default"
    return resolve_connection(name).kind, name


def _argument(
    name: str,
    argument_names: tuple[str, ...],
    pipeline: Pipeline,
    opened: list[Connection],
    spark: Callable[[], Any] | None,
    *,
    placeholder: bool,
) -> Any:
    if name == "spark":
        if spark is None:
            message = f"pipeline {pipeline.name!r} builds its source with Spark, which a preview does not start"
            raise UnsupportedError(message, hint="use dry-run to see its counts.")
        require(OWN)
        return readable(spark(), *_inline_connections(pipeline))
    connections = [n for n in argument_names if n != "spark"]
    is_target = len(connections) == 2 and connections.index(name) == 1  # noqa: PLR2004 - (source, target)
    reference = pipeline.targets[0].connection if is_target else pipeline.source_ref()
    if placeholder:
        return PlaceholderConnection("default" if reference is None else reference)
    declared = resolve_connection("default" if reference is None else reference)
    system = open_system(declared)
    if isinstance(system, Files | LakeSource):
        return system
    opened.append(Connection(system, declared))
    return opened[-1]


def _inline_connections(pipeline: Pipeline) -> list[Declared]:
    """Return the connections that a pipeline names by themselves, without a registered name."""
    named = [pipeline.source_ref(), *(target.connection for target in pipeline.targets)]
    return [connection for connection in named if connection is not None and not isinstance(connection, str)]
