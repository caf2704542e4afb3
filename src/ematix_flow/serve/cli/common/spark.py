"""Starts Spark early where a run certainly needs it and ends it with the command; others never load it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline.pipeline import arguments_of
from ematix_flow.errors import FlowError
from ematix_flow.serve.cli.common.state import current

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration


def start_spark_early(pipeline: Pipeline) -> None:
    """Start Java while the plan is built; when it is not certain that the plan needs Spark, nothing starts."""
    stop_spark_at_end()
    try:
        from ematix_flow.engine.batch.target import expect_lakes
        from ematix_flow.engine.spark.session import session_settings

        lakes = expect_lakes(pipeline)
        settings = session_settings()
        if not lakes and not requires_spark(pipeline, moves_rows=settings.spark_moves_rows):
            return
        from ematix_flow.run.spark.session import prestart

        prestart(settings)
    except FlowError:
        # The run has the same error where it can be reported with the pipeline's location.
        return


def stop_spark_at_end() -> None:
    """Let the command share the warm engine, and end after it whatever else of Spark it has started."""
    from ematix_flow.engine.spark.session import share_engine

    share_engine()

    def stop() -> None:
        session = sys.modules.get("ematix_flow.run.spark.session")
        if session is not None:
            session.stop_session(last=True)

    current().at_end(stop)


def requires_spark(pipeline: Pipeline, *, moves_rows: bool) -> bool:
    """Return whether a run of the pipeline certainly uses Spark.

    It does when its function takes Spark, when files are read whose shape needs it, and when rows leave their system
    while Spark moves them (`moves_rows`).
    """
    if "spark" in arguments_of(pipeline.function):
        return True
    source = None if pipeline.source_connection is None else _declared(pipeline.source_connection)
    if source is not None and _is_files(source):
        from ematix_flow.plan.shape.spark_reasons import declared_spark_reason

        return moves_rows or any(declared_spark_reason(pipeline, target) for target in pipeline.targets)
    if not moves_rows:
        return False
    if pipeline.force_path == "cross_db":
        return True
    return source is not None and any(_apart(source, target) for target in pipeline.targets)


def _is_files(source: Connection) -> bool:
    from ematix_flow.connect.registry import FILES

    return source.kind in FILES


def _apart(source: Connection, target: TargetDeclaration) -> bool:
    from ematix_flow.connect.registry import DATABASES, open_database

    into = _declared(target.connection)
    if source.kind not in DATABASES or into.kind not in DATABASES or source == into:
        return False
    return source.kind != into.kind or open_database(source).identity() != open_database(into).identity()


def _declared(reference: str | Connection | None) -> Connection:
    from ematix_flow.connect.config.lookup import resolve_connection

    return resolve_connection("default" if reference is None else reference)
