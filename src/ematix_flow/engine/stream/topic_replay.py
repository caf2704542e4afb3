"""Dead letters that only a topic has, because the stream writes to brokers: sent through the stream again, once each.

How far a topic of dead letters was replayed is stored by the target, with the messages, as for the stream itself.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.sink import SinkCheckpointKey
from ematix_flow.connect.base.stream_source import EARLIEST, LATEST, VALUE
from ematix_flow.connect.kafka.dead_letters import PREFIX
from ematix_flow.connect.registry import open_stream
from ematix_flow.engine.stream.dead_letter_topic import has_dead_letter_topic, kafka_source_of, send_again
from ematix_flow.engine.stream.open import open_context
from ematix_flow.engine.stream.sinks.broker import BrokerSink, open_broker_sink
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.dead_letters import Selection
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext

_METADATA_COLUMNS = ("_headers", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class TopicDeadLetter:
    """A message of a dead-letter topic."""

    id: str
    attempt: int
    source_offset: str
    """The position of the message in the source of its stream."""
    payload: bytes
    is_row: bool
    """Whether the payload is a row that was made of the message, as JSON."""
    partition: str
    offset: int


def replay_topic(stream: Stream, chosen: Selection, options: StreamOptions, attempts: int) -> dict[str, int]:
    """Send dead letters of a topic through the stream again, the oldest first, and return what became of them."""
    if not has_dead_letter_topic(stream):
        message = (
            f"stream {stream.name!r} writes to no table and has no dead_letter_topic=, so it keeps no dead letters"
        )
        raise UnsupportedError(message)
    if chosen.ids is not None:
        message = f"dead letters of stream {stream.name!r} are in a topic, which is replayed in its order"
        raise UnsupportedError(message, hint="say --all or --first N.")
    done: Counter[str] = Counter()
    with ExitStack() as resources:
        context = open_context(stream, options, resources)
        topic = resources.enter_context(
            closing(open_stream(kafka_source_of(stream).connection, str(stream.dead_letter_topic)))
        )
        end = topic.start(LATEST)
        for target in stream.targets:
            with closing(open_broker_sink(context, target, BrokerSink, read_only=True)) as sink:
                done.update(_replayed(context, sink, topic, end, chosen.first, attempts))
    return dict(done)


def _replayed(
    context: StreamContext, sink: BrokerSink, topic: StreamSource, end: Position, first: int | None, attempts: int
) -> dict[str, int]:
    checkpoint_key = SinkCheckpointKey(f"{sink.checkpoint_key.name} dead letters", topic.source_id)
    begin = sink.sink.take_over(checkpoint_key) or topic.start(EARLIEST)
    everything = _read_dead_letters(topic, begin, end, context.stream.name)
    selected = everything[:first]
    after = end if len(selected) == len(everything) else _behind(begin, selected)
    retried = {dead_letter.id: dead_letter for dead_letter in selected if dead_letter.attempt < attempts}
    if not selected:
        return {}
    parts = [
        sink.reencode(payloads, checkpoint_key, are_rows=are_rows)
        for are_rows in (False, True)
        if (payloads := [(one.payload, one.source_offset) for one in retried.values() if one.is_row == are_rows])
    ]
    failed = [row for part in parts if part.rejects is not None for row in part.rejects.to_pylist()]
    tries = {dead_letter.source_offset: dead_letter.attempt + 1 for dead_letter in retried.values()}
    send_again(context.stream, failed, tries, context.options.clock.now())
    sink.sink.write(checkpoint_key, begin, after, [message for part in parts for message in part.messages])
    parked = sum(tries.get(row["source_position"], attempts) >= attempts for row in failed)
    return {
        "taken": len(retried),
        "succeeded": len(retried) - len(failed),
        "redeadlettered": len(failed) - parked,
        "parked": parked,
    }


def _read_dead_letters(topic: StreamSource, begin: Position, end: Position, stream: str) -> list[TopicDeadLetter]:
    """Return the dead letters of a stream between two positions, partition by partition."""
    dead_letters = [
        _parse_dead_letter(row)
        for partition in topic.plan_partitions(begin, end, _METADATA_COLUMNS)
        for table in partition.read()
        for row in table.to_pylist()
        if json.loads(row["_headers"] or "{}").get(f"{PREFIX}pipeline") == stream
    ]
    return sorted(dead_letters, key=lambda dead_letter: (dead_letter.partition, dead_letter.offset))


def _parse_dead_letter(row: dict[str, Any]) -> TopicDeadLetter:
    headers = {name.removeprefix(PREFIX): value for name, value in json.loads(row["_headers"]).items()}
    attempt, source_offset = int(headers.get("attempt", 1)), headers.get("offset-bytes", "")
    return TopicDeadLetter(
        str(headers.get("id")),
        attempt,
        source_offset,
        row[VALUE] or b"",
        "row" in headers,
        str(row["_partition"]),
        int(row["_offset"]),
    )


def _behind(begin: Position, selected: list[TopicDeadLetter]) -> Position:
    offsets = dict(begin["offsets"])
    for dead_letter in selected:
        offsets[dead_letter.partition] = dead_letter.offset + 1
    return {**begin, "offsets": offsets}
