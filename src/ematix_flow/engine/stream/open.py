"""Opens a stream for a run or an inspection: its source, the rows of its messages, and the sink of each target."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

from ematix_flow.connect.base.combined_source import SOURCES
from ematix_flow.connect.base.stream_source import EARLIEST
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.files.stream_source import FileStream
from ematix_flow.connect.lake.stream_source import LakeStream
from ematix_flow.declare.stream.checks import check_stream
from ematix_flow.engine.spark.distributed import check_distribution
from ematix_flow.engine.stream.sinks.base import StreamContext
from ematix_flow.engine.stream.sinks.broker import BrokerSink, is_broker, open_broker_sink
from ematix_flow.engine.stream.sinks.broker_from_files import FileBrokerSink
from ematix_flow.engine.stream.sinks.changes import ChangeSink, refuse_rows
from ematix_flow.engine.stream.sinks.from_files import open_file_sink
from ematix_flow.engine.stream.sinks.from_lake import LakeTableSink
from ematix_flow.engine.stream.sinks.query import as_query
from ematix_flow.engine.stream.sinks.stateful import open_stateful_sink, refuse_stateless
from ematix_flow.engine.stream.sinks.table import TableSink, open_table_sink
from ematix_flow.engine.stream.sinks.table_schema import refuse_without_keys
from ematix_flow.engine.stream.sources import source_of
from ematix_flow.engine.stream.transform import StreamRows
from ematix_flow.errors import FlowError
from ematix_flow.plan.explain.guarantees import refuse_unguaranteed

if TYPE_CHECKING:
    from contextlib import ExitStack

    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamSink


def open_context(stream: Stream, options: StreamOptions, resources: ExitStack) -> StreamContext:
    """Open a stream; what has to be closed is put into `resources`."""
    source = resources.enter_context(closing(source_of(stream, options)))
    rows = StreamRows(stream, source, options, resources)
    return StreamContext(
        stream, source, rows, options.begin or _beginning(stream), options, offset_name(stream, options)
    )


def sink_for(context: StreamContext, target: StreamTarget, *, read_only: bool = False) -> StreamSink:
    """Return the sink of a target at its position; with `read_only` nothing is changed."""
    sink = _own_sink(context, target, read_only=read_only)
    return sink if read_only or context.stream.is_stateful else as_query(sink, context)


def _own_sink(context: StreamContext, target: StreamTarget, *, read_only: bool) -> StreamSink:
    source = context.source
    if context.stream.is_stateful:
        return open_stateful_sink(context, target, read_only=read_only)
    if is_broker(target):
        kind = FileBrokerSink if isinstance(source, FileStream) else BrokerSink
        return open_broker_sink(context, target, kind, read_only=read_only)
    if isinstance(source, FileStream) and context.stream.cdc is None:
        return open_file_sink(context, target, source)
    if context.stream.cdc is not None:
        return open_table_sink(context, target, ChangeSink, read_only=read_only)
    return open_table_sink(
        context, target, LakeTableSink if isinstance(source, LakeStream) else TableSink, read_only=read_only
    )


def offset_name(stream: Stream, options: StreamOptions) -> str:
    """Return the name under which targets store how far a run has come.

    A range has positions of its own, so that a run over it that was killed goes on and the stream is not moved.
    """
    return f"{stream.name}@{options.begin or ''}..{options.end or ''}" if options.ranged else stream.name


def refuse_impossible(stream: Stream, options: StreamOptions) -> None:
    """Refuse what no run could do, now that every connection is known, and a promise that a target cannot keep."""
    if stream.is_stateful:
        refuse_stateless(stream, options)
    if stream.cdc is not None:
        refuse_rows(stream)
    check_distribution(stream)
    try:
        check_stream(stream, resolve_connection)
    except FlowError as error:
        raise error.at(stream.origin) from None
    for target in stream.targets:
        refuse_without_keys(stream, target)
    sources = [resolve_connection(source.connection).kind for source in stream.sources]
    for target in stream.targets:
        refuse_unguaranteed(sources, resolve_connection(target.connection).kind, stream.delivery, stream.origin)


def _beginning(stream: Stream) -> str:
    """Return where a stream begins that was never run: with everything that is there, unless connections say otherwise."""
    starts = {
        one.id: getattr(resolve_connection(one.connection), "auto_offset_reset", None) or EARLIEST
        for one in stream.sources
    }
    return next(iter(starts.values())) if len(set(starts.values())) == 1 else json.dumps({SOURCES: starts})
