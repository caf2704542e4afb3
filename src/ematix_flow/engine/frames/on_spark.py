"""What systems hold as frames of Spark; tasks read it, and no driver of Java is needed."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.types.frames import arrow_table, is_spark_frame
from ematix_flow.engine.batch.inspect import inspect_source
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.errors import translating_errors
from ematix_flow.engine.frames.read import opened_source, query_value, spark_frame
from ematix_flow.engine.spark.session import OWN, readable, require, session_for

if TYPE_CHECKING:
    from ematix_flow.plan.source import SourceValue

FORMAT = "ematix"


def read_on_spark(connection: Any, spark: Any, query: str) -> Any:
    """Return a query as a frame of Spark, which reads it whenever the frame is evaluated."""
    return value_on_spark(query_value(connection, query), spark)


def value_on_spark(value: SourceValue, spark: Any = None) -> Any:
    """Return a source as a frame of Spark, on the caller's session or on the one of this process."""
    with translating_errors(None):
        session = own_session(spark)
        source = opened_source(value)
        if source.database is not None or (source.files is not None and not value.sql):
            return _through_format(value, session)
        resources = ExitStack()
        frame = spark_frame(source, inspect_source(source), lambda: session, resources)
        if "connect" not in type(session).__module__.split("."):
            resources.close()  # a Connect server looks up the views of a query when its frame is evaluated
        return frame


def _through_format(value: SourceValue, session: Any) -> Any:
    """Return what tasks of ours read: a query or a table of a database, or files."""
    declared = resolve_connection(value.connection or "default")
    reader = readable(session, declared).read.format(FORMAT).option("connection", declared.name)
    if value.columns:
        reader = reader.option("columns", json.dumps(value.columns))
    if value.table is not None:
        return reader.option("table", ".".join(part for part in value.table if part)).load()
    return (reader.option("query", value.sql) if value.sql else reader.option("path", value.path)).load()


def frame_on_spark(frame: Any, spark: Any = None) -> Any:
    """Return a frame of any library as one of Spark."""
    from ematix_flow.run.read.frames import user_frame

    return frame if is_spark_frame(frame) else user_frame(own_session(spark), arrow_table(frame))


def own_session(spark: Any) -> Any:
    """Return the caller's session, or the one of this process, which ships code to tasks."""
    if spark is None:
        require(OWN)
    return session_for(Options(spark=spark))()
