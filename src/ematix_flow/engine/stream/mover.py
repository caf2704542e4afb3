"""Which engine moves the rows of a stream and why, known before it runs; the plan of every batch has it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.registry import LAKES
from ematix_flow.engine.spark.session import local_reason
from ematix_flow.engine.stream.sinks.broker import is_broker
from ematix_flow.plan.steps import IN_PROCESS, SPARK, Choice

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.options import StreamOptions


def mover_of(stream: Stream, options: StreamOptions) -> Choice:
    """Return the engine that moves the rows, with the reason."""
    if any(resolve_connection(source.connection).kind in LAKES for source in stream.sources):
        return Choice(SPARK, "it reads lake tables")
    reason = local_reason(options.load)
    if reason:
        return Choice(IN_PROCESS, reason)
    if stream.transform.sql is not None:
        return Choice(SPARK, "it runs the SQL of the stream")
    if all(map(is_broker, stream.targets)):
        return Choice(IN_PROCESS, "messages go from one broker to another")
    return Choice(SPARK, "rows move from one system to another")
