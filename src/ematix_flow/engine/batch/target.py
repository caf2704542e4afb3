"""Opens the target of a load with everything it works with; it knows no kind of target."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.lake.table import LakeTable
from ematix_flow.connect.registry import LAKES, open_target, target_of
from ematix_flow.engine.spark.session import require, session_runs
from ematix_flow.errors import FlowError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.declare.table.schema import Table

_REWRITES = ("merge", "scd2")
"""The modes that read the table and write parts of it anew."""


def target_for(connection: str | Connection | None, table: Table, spark: Callable[..., Any]) -> TargetSystem:
    """Return the system that a table is in; `spark` is called if that system works with Spark."""
    database = open_target(connection, (table.schema, table.name))
    if database.spark_requirements.packages:
        require(database.spark_requirements)
    if isinstance(database, LakeTable):
        database.use(lambda: engine_on(spark))
    return database


def expect_lakes(pipeline: Pipeline) -> bool:
    """Require for the session what lake tables of a pipeline need, and return whether a run certainly uses them."""
    if not pipeline.targets:
        return False
    source = resolve_connection(pipeline.source_ref() or "default")
    surely = source.kind in LAKES
    if surely:
        require(target_of(source).spark_requirements)
    for target in pipeline.targets:
        database = open_target(target.connection, (target.table.schema, target.table.name))
        if isinstance(database, LakeTable):
            require(database.spark_requirements)
            expect_work(database, target)
            surely |= not _may_take_files(database, target)
    return surely


def _may_take_files(database: LakeTable, target: TargetDeclaration) -> bool:
    """Return whether the table may take staged files as they are; the plan knows for certain."""
    divided = target.partition_by or target.table.partition_columns
    return (
        database.capabilities.adds_files
        and target.write.mode == "append"
        and not (divided or target.quality.expectations)
    )


def expect_work(database: TargetSystem, target: TargetDeclaration) -> None:
    """Require sessions for long work from now on, where a load is going to rewrite a large lake table.

    The table is not inspected while a session runs: that one stays as it is, and every batch of a stream is a load.
    """
    if not isinstance(database, LakeTable) or target.write.mode not in _REWRITES or session_runs():
        return
    if database.is_large():
        require(replace(database.spark_requirements, heavy=True))


def refuse_duplicate_targets(pipeline: Pipeline) -> None:
    """Refuse two targets that are one table under two names: they would share the metadata of their loads."""
    known_tables: set[tuple[str, ...]] = set()
    for target in pipeline.targets if pipeline.fan_out else ():
        name = target.table.qualified_name
        try:
            table_identity = (
                *open_target(target.connection, (target.table.schema, target.table.name)).identity(),
                name,
            )
        except FlowError:
            continue  # a target that cannot be opened fails when it is loaded
        if table_identity in known_tables:
            message = f"two targets of pipeline {pipeline.name!r} are the same table {name}"
            raise PlanError(message, hint="their connections lead to the same place; give each a table of its own.")
        known_tables.add(table_identity)


def engine_on(spark: Callable[..., Any]) -> LakeEngine:
    """Return the engine for lake tables on a Spark session."""
    from ematix_flow.run.spark.lake_engine import LakeSparkEngine

    return LakeSparkEngine(spark)
