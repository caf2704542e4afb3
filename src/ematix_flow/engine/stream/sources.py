"""Opens the source of a stream with everything it is read with; which kind of source it is, the registry knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.combined_source import CombinedSource
from ematix_flow.connect.base.stream_source import from_text
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.files.stream_source import FileStream
from ematix_flow.connect.lake.stream_source import LakeStream
from ematix_flow.connect.registry import LAKES, open_stream, target_of
from ematix_flow.engine.batch.target import engine_on
from ematix_flow.engine.spark.session import require, session_for
from ematix_flow.errors import FlowError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.plan.steps import OffsetRange


def source_of(stream: Stream, options: StreamOptions) -> StreamSource:
    """Return the source of a stream, of several one for all; no connection is opened and no Spark is started yet."""
    opened = [open_stream(one.connection, one.query, stream.name) for one in stream.sources]
    for source in opened:
        if isinstance(source, LakeStream):
            _use_spark(stream, source, options)
        if isinstance(source, FileStream):
            source.states_position = stream.is_stateful
    return opened[0] if len(opened) == 1 else _combined(stream, opened)


def _use_spark(stream: Stream, source: LakeStream, options: StreamOptions) -> None:
    require(source.spark_requirements)
    _expect_lakes(stream)
    spark = session_for(options.load)
    source.use(lambda: engine_on(spark))


def _combined(stream: Stream, parts: Sequence[StreamSource]) -> CombinedSource:
    """Return several sources as one; those that have no messages are refused, unless each is read by itself for a state."""
    for part in parts:
        if isinstance(part, FileStream | LakeStream) and not stream.is_stateful:
            what = "files" if isinstance(part, FileStream) else "a lake table"
            message = f"stream {stream.name!r} has several sources, and {part.query!r} is {what}"
            hint = "only brokers can be read together; declare a stream of its own for it."
            raise UnsupportedError(message, hint=hint, origin=stream.origin)
    try:
        return CombinedSource(parts, alike=not stream.is_stateful)
    except FlowError as error:
        raise error.at(stream.origin) from None


def lake_frame(source: LakeStream, offset_range: OffsetRange, spark: Callable[[], Any]) -> Any:
    """Return the rows that a lake table got in a range, as a frame of Spark."""
    from ematix_flow.run.read.lake_frames import added_frame

    source.engine()  # registers the location of the table in the session
    return added_frame(spark(), source.added(from_text(offset_range.begin), from_text(offset_range.end)))


def _expect_lakes(stream: Stream) -> None:
    """Require for the session what the targets need: the source starts it before they are opened."""
    for target in stream.targets:
        connection = resolve_connection(target.connection)
        if connection.kind in LAKES:
            require(target_of(connection).spark_requirements)
