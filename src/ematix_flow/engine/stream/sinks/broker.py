"""Topics and queues as targets of streams: rows become messages, and the position moves with them or right behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.event_time import timed_pieces
from ematix_flow.connect.base.sink import Way
from ematix_flow.connect.base.stream_source import EARLIEST, PLACE, as_text
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.formats.encoders import JSON, RAW, encoder_for
from ematix_flow.connect.registry import SINKS, open_sink
from ematix_flow.engine.stream.dead_letter_topic import send_rejects, wants_topic
from ematix_flow.engine.stream.sinks.base import StreamSink
from ematix_flow.engine.stream.transform import reader_for
from ematix_flow.errors import BadRowsError, PlanError, did_you_mean
from ematix_flow.plan.explain.guarantees import sent_as
from ematix_flow.plan.steps import Span
from ematix_flow.records import Counts
from ematix_flow.run.read.infer_messages import piece_of, typed_rows
from ematix_flow.run.send.messages import Ids, encoded, passed_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.sink import Sink
    from ematix_flow.connect.base.stream_source import MessagePiece, Position, StreamSource
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
    way: Way
    encoder: Encoder

    @staticmethod
    def start(source: StreamSource, begin: str) -> Position:
        """Return the position of a target that begins somewhere in a source."""
        return source.start(begin)

    def load(self, end: Position) -> Counts:
        """Send what the messages up to a position become, and stand there."""
        return self.send(self.messages(end), end)

    def send(self, made: Outgoing, after: Position) -> Counts:
        """Send messages and stand at a position."""
        rejects = 0
        if made.rejects is not None:
            rejects = made.rejects.num_rows
            rejected(self.context, made.rejects)
        self.sink.write(self.way, self.position, after, made.messages)
        self.position = after
        return Counts(staged=len(made.messages), inserted=len(made.messages), rejected=rejects)

    def close(self) -> None:
        """Let go of the connection."""
        self.sink.close()

    def messages(self, end: Position) -> Outgoing:
        """Return what the messages up to a position become."""
        source, rows = self.context.source, self.context.rows
        key, ids = self.target.message_key_column, Ids(f"{self.way.name}\x1f{self.way.source}")
        if rows.reads_rows:
            span = Span(self.way.source, as_text(self.position), as_text(end), known=True)
            return encoded(rows.rows(span), self.encoder, key, ids, f"{span.begin}\x1f{span.end}")
        beside = [column.name for column in source.columns if column.name == key]
        return self._sent_as(timed_pieces(source, self.position, end, beside), ids, beside)

    def again(self, payloads: Sequence[tuple[bytes, str]], way: Way) -> Outgoing:
        """Return what payloads become that the stream has read before, each with the place it came from."""
        ids = Ids(f"{way.name}\x1f{way.source}")
        if self.context.rows.transforms:
            found = self.context.rows.of_payloads(payloads, transform=True)
            return encoded(found, self.encoder, self.target.message_key_column, ids, payloads[0][1] if payloads else "")
        return self._sent_as((piece_of(payloads),), ids, ())

    def _sent_as(self, pieces: Sequence[MessagePiece], ids: Ids, beside: Sequence[str]) -> Outgoing:
        source, key = self.context.source, self.target.message_key_column
        if _passes_on(source, self.encoder):
            return passed_on(pieces, key, ids, objects=self.encoder.format == JSON)
        found = typed_rows(pieces, reader_for(source), [PLACE, *beside])
        return encoded(found, self.encoder, key, ids, hidden=beside)


def open_broker_sink(
    context: StreamContext, target: StreamTarget, kind: type[BrokerSink], *, looks: bool = False
) -> BrokerSink:
    """Return a target where it stands; one that stands nowhere begins where the stream begins.

    Whoever only `looks` disturbs nobody and leaves everything as it is.
    """
    source, stream = context.source, context.stream
    raw = source.payload_format == RAW and not context.rows.transforms
    encoder = encoder_for(resolve_connection(target.connection), target.place, RAW if raw else JSON)
    if not context.rows.transforms:
        _refuse_key(stream, target, source, encoder)
    if stream.transform.on_error == "dlq" and not wants_topic(stream):
        message = f"dead letters of stream {stream.name!r} have no place: {target.place!r} keeps none"
        hint = "name a dead_letter_topic=, or say transform_on_error='drop'."
        raise PlanError(message, hint=hint, origin=stream.origin)
    sink, way = sink_of(stream, target), Way(context.name, source.source_id)
    try:
        found = sink.position(way) if looks else sink.take_over(way)
        position = kind.start(source, context.begin) if found is None else found
        if found is None and context.begin != EARLIEST and not looks:
            # The end of a topic is another one a second later.
            sink.remember(way, position)
    except BaseException:
        sink.close()
        raise
    return kind(stream.key_of(target), position, context, target, sink, way, encoder)


def is_broker(target: StreamTarget) -> bool:
    """Return whether a target takes messages, and no rows."""
    return resolve_connection(target.connection).kind in SINKS


def sink_of(stream: Stream, target: StreamTarget) -> Sink:
    """Return the topic or queue of a target; no connection is made yet."""
    connection = resolve_connection(target.connection)
    return open_sink(connection, target.place, sent_as(connection.kind, stream.delivery))


def rejected(context: StreamContext, rejects: pa.Table) -> None:
    """Do what a stream wants done with messages that cannot be read."""
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
    """Return whether payloads can be passed on without being taken apart."""
    return encoder.format == RAW or (encoder.format == JSON and source.payload_format == JSON)


def _refuse_key(stream: Stream, target: StreamTarget, source: StreamSource, encoder: Encoder) -> None:
    """Refuse a key that payloads which nobody reads cannot have."""
    key, names = target.message_key_column, [column.name for column in source.columns]
    if key is None or key in names or encoder.format != RAW:
        return
    message = f"target {target.place!r} has message_key_column={key!r}, but its payloads are passed on unread"
    raise PlanError(message, hint=did_you_mean(key, names), origin=stream.origin)
