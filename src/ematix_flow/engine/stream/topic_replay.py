"""Dead letters that only a topic has, because the stream writes to brokers: sent through the stream again, once each.

How far a topic of dead letters was replayed is remembered by the target, with the messages, as for the stream itself.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.sink import Way
from ematix_flow.connect.base.stream_source import EARLIEST, LATEST, VALUE
from ematix_flow.connect.kafka.dead_letters import PREFIX
from ematix_flow.connect.registry import open_stream
from ematix_flow.engine.stream.dead_letter_topic import send_again, wants_topic
from ematix_flow.engine.stream.open import open_context
from ematix_flow.engine.stream.sinks.broker import BrokerSink, open_broker_sink
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.dead_letters import Selection
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext

_BESIDE = ("_headers", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class Letter:
    """A message of a dead-letter topic."""

    id: str
    attempt: int
    place: str
    """Where the message stood in the source of its stream."""
    payload: bytes
    partition: str
    offset: int


def replay_topic(stream: Stream, chosen: Selection, options: StreamOptions, attempts: int) -> dict[str, int]:
    """Send dead letters of a topic through the stream again, the oldest first, and return what became of them."""
    if not wants_topic(stream):
        message = (
            f"stream {stream.name!r} writes to no table and has no dead_letter_topic=, so it keeps no dead letters"
        )
        raise UnsupportedError(message)
    if chosen.ids:
        message = f"dead letters of stream {stream.name!r} are in a topic, which is replayed in its order"
        raise UnsupportedError(message, hint="say --all or --first N.")
    done: Counter[str] = Counter()
    with ExitStack() as kept:
        context = open_context(stream, options, kept)
        topic = kept.enter_context(closing(open_stream(stream.sources[0].connection, str(stream.dead_letter_topic))))
        end = topic.start(LATEST)
        for target in stream.targets:
            with closing(open_broker_sink(context, target, BrokerSink, looks=True)) as sink:
                done.update(_replayed(context, sink, topic, end, chosen.first, attempts))
    return dict(done)


def _replayed(
    context: StreamContext, sink: BrokerSink, topic: StreamSource, end: Position, first: int | None, attempts: int
) -> dict[str, int]:
    way = Way(f"{sink.way.name} dead letters", topic.source_id)
    begin = sink.sink.take_over(way) or topic.start(EARLIEST)
    everything = _letters(topic, begin, end, context.stream.name)
    taken = everything[:first]
    after = end if len(taken) == len(everything) else _behind(begin, taken)
    once = {letter.id: letter for letter in taken if letter.attempt < attempts}
    if not taken:
        return {}
    made = sink.again([(letter.payload, letter.place) for letter in once.values()], way)
    failed = [] if made.rejects is None else made.rejects.to_pylist()
    tries = {letter.place: letter.attempt + 1 for letter in once.values()}
    send_again(context.stream, failed, tries, context.options.clock.now())
    sink.sink.write(way, begin, after, made.messages)
    parked = sum(tries.get(row["source_position"], attempts) >= attempts for row in failed)
    return {
        "taken": len(once),
        "succeeded": len(once) - len(failed),
        "redeadlettered": len(failed) - parked,
        "parked": parked,
    }


def _letters(topic: StreamSource, begin: Position, end: Position, stream: str) -> list[Letter]:
    """Return the dead letters of a stream between two positions, partition by partition."""
    found = [
        _letter(row)
        for piece in topic.pieces(begin, end, _BESIDE)
        for table in piece.read()
        for row in table.to_pylist()
        if json.loads(row["_headers"] or "{}").get(f"{PREFIX}pipeline") == stream
    ]
    return sorted(found, key=lambda letter: (letter.partition, letter.offset))


def _letter(row: dict[str, Any]) -> Letter:
    said = {name.removeprefix(PREFIX): value for name, value in json.loads(row["_headers"]).items()}
    attempt, place = int(said.get("attempt", 1)), said.get("offset-bytes", "")
    return Letter(str(said.get("id")), attempt, place, row[VALUE] or b"", str(row["_partition"]), int(row["_offset"]))


def _behind(begin: Position, taken: list[Letter]) -> Position:
    offsets = dict(begin["offsets"])
    for letter in taken:
        offsets[letter.partition] = letter.offset + 1
    return {**begin, "offsets": offsets}
