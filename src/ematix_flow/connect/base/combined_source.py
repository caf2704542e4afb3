"""Several sources of one stream as one: every message of each of them, at positions that hold the position of each.

A position is `{"sources": {id: position}}`. What is stored beside `sources` belongs to others, and no part gets to see it.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.connect.base.stream_source import (
    EARLIEST,
    MESSAGE_OFFSET,
    REWIND,
    MessagePartition,
    StreamSource,
    from_text,
)
from ematix_flow.errors import RunError, StreamLostError, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stream_source import Position

LINE = "_flow_line"
"""Column of the number that a line has among those of all sources; no column can be declared under it."""

SOURCES = "sources"
"""Key of a position under which the positions of the parts are."""

SOURCE = "source"
"""Key of a message's location under which its source is."""

_LINES = 1 << 20
"""More lines than a source has, such as partitions of a topic."""


class CombinedSource(StreamSource):
    """The sources of a stream that reads several."""

    kind: ClassVar[str] = "several"
    line: ClassVar[str] = LINE

    def __init__(self, parts: Sequence[StreamSource], *, alike: bool = True) -> None:
        """Take sources whose messages are read together; where each is read by itself, they need not be alike."""
        queries = Counter(part.query for part in parts)
        self._labels = tuple(part.query if queries[part.query] == 1 else f"{part.query}@{part.name}" for part in parts)
        super().__init__(", ".join(dict.fromkeys(part.name for part in parts)), ", ".join(self._labels))
        if alike:
            _refuse_other_payloads(parts)
        self.payload_format, self.registry = parts[0].payload_format, parts[0].registry
        # What every other class of sources knows of all its sources depends on the parts here.
        self.columns = _shared_columns(parts)  # type: ignore[misc]
        ids = Counter(part.source_id for part in parts)
        self._parts = {
            part.source_id if ids[part.source_id] == 1 else f"{part.source_id}@{part.name}": part for part in parts
        }
        self._turn = 0

    @property
    def parts(self) -> tuple[StreamSource, ...]:
        """Return the sources, as they are declared."""
        return tuple(self._parts.values())

    @property
    def reads_ahead(self) -> bool:
        """Return whether that may be done with every source."""
        return all(part.reads_ahead for part in self.parts)

    def label_of(self, part: StreamSource) -> str:
        """Return the name under which a source is known among the others."""
        return self._labels[list(self._parts).index(self._id_of(part))]

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return what of this machine's disk a task needs that reads messages of any source."""
        return tuple(dict.fromkeys(path for part in self.parts for path in part.read_paths))

    @property
    def source_id(self) -> str:
        """Return the text under which positions are stored: which sources there are, each position says itself.

        So a source can be added to a stream that has run.
        """
        return SOURCES

    def part_position(self, position: Position, part: StreamSource) -> Position:
        """Return the position in one of the sources; one that was added since then begins with its oldest message."""
        at = _positions(position).get(self._id_of(part))
        return part.start(EARLIEST) if at is None else at

    def with_part_position(self, position: Position, part: StreamSource, at: Position) -> Position:
        """Return a position with another one in one of the sources."""
        return position | {SOURCES: {**_positions(position), self._id_of(part): at}}

    def begin(self) -> None:
        """Prepare every source to be read."""
        for part in self.parts:
            part.begin()

    def warnings(self) -> tuple[str, ...]:
        """Return what is to know of any source."""
        return tuple(message for part in self.parts for message in part.warnings())

    def start(self, where: str) -> Position:
        """Return where a word or an instant is in every source, or the positions that are written out."""
        return self._placed(where, lambda part, at: part.start(at))

    def first_position(self, where: str) -> Position:
        """Return where a target begins in every source."""
        return self._placed(where, lambda part, at: part.first_position(at))

    def seek(self, position: Position | None, where: str) -> Position:
        """Return the positions that are meant; sources that are not mentioned stay where they are."""
        if not where.lstrip().startswith("{"):
            return self.first_position(where)
        requested = self._requested(from_text(where))
        at = {} if position is None else _positions(position)
        return {
            SOURCES: {
                id_: part.seek(at.get(id_), requested[id_]) if id_ in requested else at.get(id_) or part.start(EARLIEST)
                for id_, part in self._parts.items()
            }
        }

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return how far the sources can be read; each gets its share, and what one leaves others take."""
        self._refuse_undeclared(position)
        begin = {id_: self.part_position(position, part) for id_, part in self._parts.items()}
        last = None if end_offset is None else _positions(end_offset)

        def offer(id_: str, many: int) -> tuple[Position, int]:
            part = self._parts[id_]
            end = part.ahead(begin[id_], many, None if last is None else last.get(id_, begin[id_]))
            return end, part.distance(begin[id_], end)

        share, left = max(1, most // len(begin)), most
        ends, hungry = dict(begin), {}
        for id_ in self._in_turn():
            # Also where nothing is left: a position whose messages are gone is refused.
            end, count = offer(id_, share)
            whole = not self._parts[id_].divisible
            if left >= count or whole:
                ends[id_], left = end, max(0, left - count)
                if count >= share and not whole:
                    hungry[id_] = count
        for number, (id_, count) in enumerate(hungry.items()):
            more = left // (len(hungry) - number)
            if more:
                ends[id_], offered = offer(id_, count + more)
                left -= offered - count
        return {SOURCES: ends}

    def gone_before(self, position: Position) -> str | None:
        """Return what is missing right before a position in the first source that lacks something."""
        missing = (part.gone_before(self.part_position(position, part)) for part in self.parts)
        return next((what for what in missing if what is not None), None)

    def plan_partitions(self, begin: Position, end: Position, requested: Sequence[str]) -> tuple[MessagePartition, ...]:
        """Return the messages of every source between two positions."""
        return self._planned(begin, end, requested, lambda part: part.plan_partitions)

    def plan_split_partitions(
        self, begin: Position, end: Position, requested: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Return the same messages in partitions that may be parts of a line."""
        return self._planned(begin, end, requested, lambda part: part.plan_split_partitions)

    def has_one_line(self, begin: Position, end: Position) -> bool:
        """Return False: between messages of two sources only their times decide."""
        del begin, end
        return False

    def distance(self, begin: Position, end: Position) -> int:
        """Return how many messages lie between two positions in all sources."""
        return sum(part.distance(*self._range(begin, end, part)) for part in self.parts)

    def earlier(self, one: Position, other: Position) -> Position:
        """Return the earlier position in each source."""
        each = {
            id_: part.earlier(self.part_position(one, part), self.part_position(other, part))
            for id_, part in self._parts.items()
        }
        return one | {SOURCES: each}

    def waiting(self, position: Position) -> Mapping[str, int]:
        """Return how many messages wait, by source and the part of it they are in."""
        return {
            label if name == part.query else f"{label}/{name}": count
            for label, part in zip(self._labels, self.parts, strict=True)
            for name, count in part.waiting(self.part_position(position, part)).items()
        }

    def details(self) -> Mapping[str, object]:
        """Return what is to know of every source, by its name."""
        return {
            f"{label}/{name}": value
            for label, part in zip(self._labels, self.parts, strict=True)
            for name, value in part.details().items()
        }

    def commit_offsets(self, positions: Sequence[Position]) -> None:
        """Tell every source how far each target has come in it."""
        for part in self.parts:
            part.commit_offsets([self.part_position(position, part) for position in positions])

    def close(self) -> None:
        """Close every source, whatever becomes of the others."""
        with ExitStack() as resources:
            for part in self.parts:
                resources.callback(part.close)

    def _id_of(self, part: StreamSource) -> str:
        return next(id_ for id_, one in self._parts.items() if one is part)

    def _range(self, begin: Position, end: Position, part: StreamSource) -> tuple[Position, Position]:
        """Return both positions in one source; one that the end does not have yet has nothing between them."""
        at = self.part_position(begin, part)
        return at, _positions(end).get(self._id_of(part), at)

    def _in_turn(self) -> list[str]:
        """Return the ids in an order that changes from call to call, so that no source waits for ever."""
        ids, self._turn = list(self._parts), (self._turn + 1) % len(self._parts)
        return ids[self._turn :] + ids[: self._turn]

    def _placed(self, where: str, place: Callable[[StreamSource, str], Position]) -> Position:
        """Return the positions that are meant; sources that are not mentioned begin with their oldest message."""
        if not where.lstrip().startswith("{"):
            return {SOURCES: {id_: place(part, where) for id_, part in self._parts.items()}}
        requested = self._requested(from_text(where))
        return {SOURCES: {id_: place(part, requested.get(id_, EARLIEST)) for id_, part in self._parts.items()}}

    def _refuse_undeclared(self, position: Position) -> None:
        for id_ in _positions(position):
            if id_ not in self._parts:
                message = f"the stream has read {id_} before, which is not among its sources now"
                hint = f"declare it again, or go on without it: flow stream rewind NAME --to '{{\"{SOURCES}\": {{}}}}'."
                raise StreamLostError(message, hint=hint)

    def _requested(self, requested: Position) -> dict[str, str]:
        """Return what an operator means, by the ids of the sources; a source can be named by its query too."""
        by_label = dict(zip(self._labels, self._parts, strict=True))
        named = requested.get(SOURCES, requested)
        positions: dict[str, str] = {}
        for name, where in named.items() if isinstance(named, dict) else ((str(named), None),):
            id_ = by_label.get(name, name)
            if id_ not in self._parts or not isinstance(where, dict | str):
                message = f"{json.dumps(requested)[:200]} gives no position for sources of this stream: {name!r}"
                hint = f'{did_you_mean(name, self._parts)} For example {{"{SOURCES}": {{"{next(iter(self._parts))}": "earliest"}}}}.'
                raise RunError(message, hint=hint)
            positions[id_] = where if isinstance(where, str) else json.dumps(where)
        return positions

    def _planned(
        self,
        begin: Position,
        end: Position,
        requested: Sequence[str],
        plan_of: Callable[[StreamSource], Callable[..., tuple[MessagePartition, ...]]],
    ) -> tuple[MessagePartition, ...]:
        planned: list[MessagePartition] = []
        own = [name for name in requested if name != LINE]
        for number, (label, part) in enumerate(zip(self._labels, self.parts, strict=True)):
            read = plan_of(part)(*self._range(begin, end, part), [*own, *_for_lines(part, requested)])
            partitions = _with_lines(read, part.line, number * _LINES) if LINE in requested else read
            planned += [replace(one, read=partial(_located, one.read, label)) for one in partitions]
        return tuple(planned)


def source_in(message_offset: str | None) -> str | None:
    """Return which of several sources a message came from, by its location; None where that does not say it."""
    try:
        location = json.loads(message_offset or "")
    except ValueError:
        return None
    return str(location[SOURCE]) if isinstance(location, dict) and SOURCE in location else None


def _positions(position: Position) -> dict[str, Position]:
    """Return the positions of the parts, by their ids."""
    positions = position.get(SOURCES)
    if not isinstance(positions, dict):
        message = f"{json.dumps(position)[:80]} is no position in several sources"
        raise StreamLostError(message, hint=REWIND)
    return positions


def _refuse_other_payloads(parts: Sequence[StreamSource]) -> None:
    """Refuse sources whose messages are not read alike."""
    first = parts[0]
    for part in parts[1:]:
        if part.payload_format != first.payload_format:
            message = f"source {first.query!r} has payloads of {first.payload_format}, and {part.query!r} of {part.payload_format}"
            raise UnsupportedError(
                message, hint="sources of one stream have one payload format; declare a stream each."
            )
        if _address(part) != _address(first):
            message = f"the schemas of {first.query!r} are at {_address(first)}, and those of {part.query!r} at {_address(part)}"
            raise UnsupportedError(message, hint="sources of one stream have one registry; declare a stream each.")


def _address(part: StreamSource) -> str:
    return "" if part.registry is None else part.registry.display_address


def _shared_columns(parts: Sequence[StreamSource]) -> tuple[SourceColumn, ...]:
    """Return the metadata columns that every source has, of the same family."""
    families = [{column.name: column.family for column in part.columns} for part in parts]
    return tuple(
        column for column in parts[0].columns if all(one.get(column.name) == column.family for one in families)
    )


def _for_lines(part: StreamSource, requested: Sequence[str]) -> list[str]:
    """Return the columns that are read of a source besides, because lines are numbered by them."""
    if LINE not in requested:
        return []
    known = [part.line, EVENT_TIME]
    return [column.name for column in part.columns if column.name in known and column.name not in requested]


def _with_lines(partitions: Sequence[MessagePartition], line: str, first: int) -> list[MessagePartition]:
    """Return partitions whose messages have the number of their line; numbers of a source begin at `first`."""
    if line:
        return [replace(one, read=partial(_lined, one.read, line, first, n)) for n, one in enumerate(partitions)]
    if not partitions:
        return []
    # All of them are one line, and the order in a line is only known where it is read from its beginning.
    reads = tuple(one.read for one in partitions)
    whole = MessagePartition(partitions[0].label, sum(one.size for one in partitions), partial(_one_by_one, reads))
    return [replace(whole, read=partial(_lined, whole.read, "", first, 0))]


def _one_by_one(reads: Sequence[Callable[[], Iterator[pa.Table]]]) -> Iterator[pa.Table]:
    for read in reads:
        yield from read()


def _lined(read: Callable[[], Iterator[pa.Table]], line: str, first: int, partition: int) -> Iterator[pa.Table]:
    """Return messages with the number of their line; a line that has a name is in a partition of its own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for messages in read():
        numbers: Any = pa.repeat(pa.scalar(first + partition, pa.int64()), messages.num_rows)
        if line and pa.types.is_integer(messages.schema.field(line).type):
            numbers = pc.add(pc.cast(messages.column(line), pa.int64()), first)
        timed = messages
        if EVENT_TIME not in messages.column_names:
            timed = messages.append_column(EVENT_TIME, pa.nulls(messages.num_rows, pa.timestamp("us", tz="UTC")))
        yield timed.append_column(LINE, numbers)


def _located(read: Callable[[], Iterator[pa.Table]], label: str) -> Iterator[pa.Table]:
    """Return messages whose locations name their source, which has the same ones as others may have."""
    import pyarrow.compute as pc

    head = json.dumps({SOURCE: label}, ensure_ascii=False)[:-1] + ", "
    for messages in read():
        at = messages.schema.get_field_index(MESSAGE_OFFSET)
        own = pc.utf8_slice_codeunits(messages.column(at), 1)
        yield messages.set_column(at, MESSAGE_OFFSET, pc.binary_join_element_wise(head, own, ""))
