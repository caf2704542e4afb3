"""Topics and queues as targets of streams: rows become messages, and the position moves with them or right behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.event_time import timed_partitions
from ematix_flow.connect.base.sink import SinkCheckpointKey
from ematix_flow.connect.base.stream_source import EARLIEST, MESSAGE_OFFSET, as_text
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.formats.encoders import JSON, RAW, encoder_for
from ematix_flow.connect.registry import SINKS, open_sink
from ematix_flow.engine.stream.dead_letter_topic import has_dead_letter_topic, send_rejects
from ematix_flow.engine.stream.sinks.base import StreamSink
from ematix_flow.engine.stream.transform import reader_for
from ematix_flow.errors import BadRowsError, PlanError, did_you_mean
from ematix_flow.plan.explain.guarantees import sent_as
from ematix_flow.plan.steps import OffsetRange
from ematix_flow.records import Counts
from ematix_flow.run.read.infer_messages import partition_of, typed_rows
from ematix_flow.run.send.messages import Ids, encoded, passed_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.sink import Sink
    from ematix_flow.connect.base.stream_source import MessagePartition, Position, StreamSource
    from ematix_flow.connect.formats.encoders import Encoder
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.run.send.messages import Outgoing


@dataclass
class BrokerSink(StreamSink):
    """A topic or a queue."""

    key: str
    position: Position
    context: StreamContext
    target: StreamTarget
    sink: Sink
    checkpoint_key: SinkCheckpointKey
    encoder: Encoder

    @staticmethod
    def start(source: StreamSource, begin: str, *, read_only: bool) -> Position:
        """Return the position of a target that begins somewhere in a source, or would."""
        return source.start(begin) if read_only else source.first_position(begin)

    def load(self, end: Position) -> Counts:
        """Send what the messages up to a position become, and move the position there."""
        return self.send(self.messages(end), end)

    def send(self, outgoing: Outgoing, after: Position) -> Counts:
        """Send messages and move the position."""
        rejects = 0
        if outgoing.rejects is not None:
            rejects = outgoing.rejects.num_rows
            rejected(self.context, outgoing.rejects)
        self.sink.write(self.checkpoint_key, self.position, after, outgoing.messages)
        self.position = after
        return Counts(staged=len(outgoing.messages), inserted=len(outgoing.messages), rejected=rejects)

    def close(self) -> None:
        """Close the connection."""
        self.sink.close()

    def messages(self, end: Position) -> Outgoing:
        """Return what the messages up to a position become."""
        source, rows = self.context.source, self.context.rows
        key, ids = self.target.message_key_column, Ids(f"{self.checkpoint_key.name}\x1f{self.checkpoint_key.source}")
        if rows.reads_rows:
            offset_range = OffsetRange(self.checkpoint_key.source, as_text(self.position), as_text(end), known=True)
            return encoded(
                rows.rows(offset_range), self.encoder, key, ids, f"{offset_range.begin}\x1f{offset_range.end}"
            )
        metadata = [column.name for column in source.columns if column.name == key]
        return self._sent_as(timed_partitions(source, self.position, end, metadata), ids, metadata)

    def reencode(
        self, payloads: Sequence[tuple[bytes, str]], checkpoint_key: SinkCheckpointKey, *, are_rows: bool
    ) -> Outgoing:
        """Return what payloads become that the stream has read before, each with the location it came from.

        What `are_rows` is what the SQL of the stream failed at.
        """
        ids = Ids(f"{checkpoint_key.name}\x1f{checkpoint_key.source}")
        if self.context.rows.transforms:
            typed = self.context.rows.of_payloads(payloads, transform=True, are_rows=are_rows)
            return encoded(typed, self.encoder, self.target.message_key_column, ids, payloads[0][1] if payloads else "")
        return self._sent_as((partition_of(payloads),), ids, ())

    def _sent_as(self, partitions: Sequence[MessagePartition], ids: Ids, metadata: Sequence[str]) -> Outgoing:
        source, key = self.context.source, self.target.message_key_column
        if _passes_on(source, self.encoder):
            return passed_on(partitions, key, ids, objects=self.encoder.format == JSON)
        typed = typed_rows(partitions, reader_for(source), [MESSAGE_OFFSET, *metadata])
        return encoded(typed, self.encoder, key, ids, hidden=metadata)


def open_broker_sink(
    context: StreamContext, target: StreamTarget, kind: type[BrokerSink], *, read_only: bool = False
) -> BrokerSink:
    """Return a target at its position; one without a position begins where the stream begins.

    With `read_only` no other process is disturbed and nothing is changed.
    """
    source, stream = context.source, context.stream
    # What a state gives out are rows, whatever the messages were.
    creates_rows = context.rows.transforms or stream.is_stateful
    raw = source.payload_format == RAW and not creates_rows
    encoder = encoder_for(resolve_connection(target.connection), target.destination, RAW if raw else JSON)
    if not creates_rows:
        _refuse_key(stream, target, source, encoder)
    if stream.transform.on_error == "dlq" and not has_dead_letter_topic(stream):
        message = (
            f"dead letters of stream {stream.name!r} cannot be stored: {target.destination!r} has no table for them"
        )
        hint = "name a dead_letter_topic=, or say transform_on_error='drop'."
        raise PlanError(message, hint=hint, origin=stream.origin)
    sink, checkpoint_key = sink_of(stream, target), SinkCheckpointKey(context.name, source.source_id)
    try:
        stored = sink.position(checkpoint_key) if read_only else sink.take_over(checkpoint_key)
        position = kind.start(source, context.begin, read_only=read_only) if stored is None else stored
        if stored is None and context.begin != EARLIEST and not read_only:
            # The end of a topic is another one a second later.
            sink.remember(checkpoint_key, position)
    except BaseException:
        sink.close()
        raise
    return kind(stream.key_of(target), position, context, target, sink, checkpoint_key, encoder)


def is_broker(target: StreamTarget) -> bool:
    """Return whether a target takes messages, and no rows."""
    return resolve_connection(target.connection).kind in SINKS


def sink_of(stream: Stream, target: StreamTarget) -> Sink:
    """Return the topic or queue of a target; no connection is opened yet."""
    connection = resolve_connection(target.connection)
    return open_sink(connection, target.destination, sent_as(connection.kind, stream.delivery))


def rejected(context: StreamContext, rejects: pa.Table) -> None:
    """Handle messages that cannot be read as the stream declares."""
    stream = context.stream
    match stream.transform.on_error:
        case "drop":
            return
        case "fail":
            first = rejects.slice(0, 1).to_pylist()[0]
            count = rejects.num_rows
            what = "message cannot be read" if count == 1 else "messages cannot be read"
            message = f"{count} {what}: {first['reason'][:200]} at {first['source_position']}"
            hint = "transform_on_error= may drop them, or send them to a dead_letter_topic=."
            raise BadRowsError(message, hint=hint, origin=stream.origin)
        case _:
            send_rejects(stream, rejects, context.options.clock.now())


def _passes_on(source: StreamSource, encoder: Encoder) -> bool:
    """Return whether payloads can be passed on without being decoded."""
    return encoder.format == RAW or (encoder.format == JSON and source.payload_format == JSON)


def _refuse_key(stream: Stream, target: StreamTarget, source: StreamSource, encoder: Encoder) -> None:
    """Refuse a key where payloads are passed on without being read."""
    key, names = target.message_key_column, [column.name for column in source.columns]
    if key is None or key in names or encoder.format != RAW:
        return
    message = f"target {target.destination!r} has message_key_column={key!r}, but its payloads are passed on unread"
    raise PlanError(message, hint=did_you_mean(key, names), origin=stream.origin)
