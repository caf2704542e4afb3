"""Starts Spark early where a run will surely need it and ends it with the command; commands without Spark never load it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline import arguments_of
from ematix_flow.errors import FlowError
from ematix_flow.serve.cli.state import current

if TYPE_CHECKING:
    from ematix_flow.declare.connection import Connection
    from ematix_flow.declare.pipeline import Pipeline, TargetDeclaration


def start_spark_early(pipeline: Pipeline) -> None:
    """Let Java start while the plan is made; when it is not certain that the plan needs Spark, nothing starts."""
    stop_spark_at_end()
    try:
        if not needs_spark(pipeline):
            return
        from ematix_flow.engine.spark import spark_settings
        from ematix_flow.run.session import prestart

        prestart(spark_settings())
    except FlowError:
        # The run meets the same error where it can be told with the pipeline's place.
        return


def stop_spark_at_end() -> None:
    """End Spark after the command, if anything has started it."""

    def stop() -> None:
        session = sys.modules.get("ematix_flow.run.session")
        if session is not None:
            session.stop_session(last=True)

    current().at_end(stop)


def needs_spark(pipeline: Pipeline) -> bool:
    """Say whether a run of the pipeline certainly uses Spark: its function asks for it, or files or other databases are read."""
    if "spark" in arguments_of(pipeline.function) or pipeline.force_path == "cross_db":
        return True
    if pipeline.source_connection is None:
        return False
    source = _declared(pipeline.source_connection)
    return any(_apart(source, target) for target in pipeline.targets)


def _apart(source: Connection, target: TargetDeclaration) -> bool:
    from ematix_flow.connect.registry import DATABASES, FILES, open_database

    into = _declared(target.connection)
    if source.kind in FILES:
        return True
    if source.kind not in DATABASES or into.kind not in DATABASES or source == into:
        return False
    return source.kind != into.kind or open_database(source).identity() != open_database(into).identity()


def _declared(reference: str | Connection | None) -> Connection:
    from ematix_flow.connect.resolve import resolve_connection

    return resolve_connection("default" if reference is None else reference)
