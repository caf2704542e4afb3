"""Kinesis streams as sources: sequence numbers per shard are positions; a shard that was split or merged ends before its children begin.

What lies ahead of a position is only known by reading it, so records are kept until a target asks for them.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.stream_source import (
    EARLIEST,
    LATEST,
    REWIND,
    MessagePiece,
    StreamSource,
    from_text,
    moment_of,
)
from ematix_flow.connect.kinesis.reader import (
    BEGIN,
    END,
    PER_CALL,
    SINCE,
    asked,
    get,
    iterator_at,
    read_span,
    table_of,
)
from ematix_flow.errors import RunError, StreamLostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.kinesis.reader import Settings
    from ematix_flow.declare.connection.brokers import KinesisConnection

LOOKS = 5
"""Empty answers in a row after which a shard is left for now; the service gives some before records come."""

_UNTIL = "until"


@dataclass
class _Ahead:
    """What was read of a shard after a place."""

    records: list[dict[str, Any]] = field(default_factory=list)
    iterator: str | None = None
    closed: bool = False
    reached: float = 0.0
    """When nothing more was there, as seconds since 1970."""

    def is_behind(self, until: int) -> bool:
        """Return whether everything that came before an instant, in milliseconds, is before this."""
        return _arrived(self.records[0]) >= until if self.records else self.reached * 1000 >= until


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard as the service lists it."""

    parents: tuple[str, ...]
    closed: bool
    """No record comes into it any more."""


class KinesisSource(StreamSource):
    """One stream."""

    kind: ClassVar[str] = "kinesis"
    line: ClassVar[str] = "_shard"
    columns: ClassVar[tuple[SourceColumn, ...]] = (
        SourceColumn("_key", "text"),
        SourceColumn("_event_ts", "timestamp_tz"),
        SourceColumn("_stream", "text"),
        SourceColumn("_shard", "text"),
        SourceColumn("_sequence", "text"),
    )

    def __init__(self, connection: KinesisConnection, query: str) -> None:
        super().__init__(connection.name, query or connection.stream_name)
        self._stream = connection.stream_name
        given = connection
        self._settings: Settings = (
            ("region", given.region),
            ("endpoint", given.endpoint),
            ("access_key_id", given.access_key_id),
            ("secret_access_key", given.secret_access_key),
        )
        self._ahead: dict[tuple[str, str], _Ahead] = {}

    @property
    def source_id(self) -> str:
        """Return the text under which positions are kept; the stream is named by the connection."""
        return f"{self.kind}:{self._stream}"

    def start(self, where: str) -> Position:
        """Return the oldest records, those from now on, those since an instant, or sequence numbers that are written out."""
        if where.lstrip().startswith("{"):
            return self._written(from_text(where))
        made, shards = self._shards()
        if where == EARLIEST:
            return {"made": made, "shards": {}}
        now = int(time.time() * 1000)
        at = now if where == LATEST else int(moment_of(where).timestamp() * 1000)
        return {"made": made, "shards": dict.fromkeys(shards, f"{SINCE}{at}"), _UNTIL: at}

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return how far records were read, and behind which shards there are none."""
        made, shards = self._shards()
        if position.get("made") not in (None, made):
            message = f"stream {self._stream!r} is not the one that was read before: it was deleted and made again"
            raise StreamLostError(message, hint=REWIND)
        at = {shard: place for shard, place in position["shards"].items() if shard in shards or place != END}
        for shard in at:
            if shard not in shards:
                raise StreamLostError(f"shard {shard} of {self._stream!r} is gone before it was read", hint=REWIND)
        to, left = dict(at), most
        readable = list(_readable(shards, at))
        for number, shard in enumerate(readable):
            share = max(1, left // (len(readable) - number))
            found = self._looked(shard, at.get(shard, BEGIN), share, closed=shards[shard].closed)
            records = _within(found.records[:share], shard, end_offset)
            left -= len(records)
            if records:
                to[shard] = str(records[-1]["SequenceNumber"])
            elif found.closed and not found.records:
                to[shard] = END
            if left <= 0:
                break
        return {"made": made, "shards": dict(sorted(to.items()))}

    def pieces(self, begin: Position, end: Position, wanted: Sequence[str]) -> tuple[MessagePiece, ...]:
        """Return the records between two positions, a shard each; what is still in memory is not read again."""
        return tuple(
            MessagePiece(
                f"{self._stream}/{shard}",
                len(self._kept(shard, span)) or PER_CALL,
                self._reading(shard, span, tuple(wanted)),
            )
            for shard, span in self._spans(begin, end)
        )

    def distance(self, begin: Position, end: Position) -> int:
        """Return the records between two positions, as far as they were read; the end of a stream is an instant."""
        if _UNTIL in end:
            return 0 if self._caught_up(begin, int(end[_UNTIL])) else 1
        records = sum(len(self._kept(shard, span)) or 1 for shard, span in self._spans(begin, end))
        return records or int(begin["shards"] != end["shards"])

    def waiting(self, position: Position) -> Mapping[str, int]:
        """Return the records that were read and that no target has yet, by shard."""
        places = position["shards"]
        return {
            shard: len(found.records)
            for (shard, place), found in self._ahead.items()
            if places.get(shard, BEGIN) == place
        }

    def settled(self, positions: Sequence[Position]) -> None:
        """Forget what every target has."""
        needed = {(s, place) for position in positions for s, place in position["shards"].items()}
        self._ahead = {key: found for key, found in self._ahead.items() if key in needed or key[1] == BEGIN}

    def _caught_up(self, position: Position, until: int) -> bool:
        _, shards = self._shards()
        places = position["shards"]
        open_ = [(shard, places.get(shard, BEGIN)) for shard in shards if places.get(shard) != END]
        found = [self._ahead.get(key) for key in open_]
        return all(one is not None and one.is_behind(until) for one in found)

    def _looked(self, shard: str, place: str, most: int, *, closed: bool) -> _Ahead:
        """Return what is known behind a place, after asking for more."""
        found = self._ahead.setdefault((shard, place), _Ahead())
        looks = 0
        while len(found.records) < most and not found.closed and looks < LOOKS:
            if found.iterator is None:
                last = str(found.records[-1]["SequenceNumber"]) if found.records else place
                found.iterator = iterator_at(self._settings, self._stream, shard, last)
            begun = time.time()
            got = get(self._settings, found.iterator, most - len(found.records))
            found.iterator = None if got is None else got.iterator
            if got is None:
                continue
            found.records += got.records
            found.closed = got.iterator is None
            looks = 0 if got.records else looks + 1
            if not got.behind and not got.records:
                # A shard that was closed before it was asked has nothing more, whatever comes next.
                found.reached, found.closed = begun, found.closed or closed
                break
        return found

    def _spans(self, begin: Position, end: Position) -> list[tuple[str, tuple[str, str]]]:
        """Return shard, place before and last sequence number where there is something to read."""
        from_ = begin["shards"]
        spans = [(shard, (str(from_.get(shard, BEGIN)), str(place))) for shard, place in end["shards"].items()]
        return [(shard, span) for shard, span in spans if span[0] != span[1] and span[1][:1].isdigit()]

    def _kept(self, shard: str, span: tuple[str, str]) -> list[dict[str, Any]]:
        """Return the records of a span that are in memory: all of them, or none."""
        found = self._ahead.get((shard, span[0]))
        records = _up_to(found.records, span[1]) if found is not None else []
        return records if records and records[-1]["SequenceNumber"] == span[1] else []

    def _reading(self, shard: str, span: tuple[str, str], wanted: tuple[str, ...]) -> Any:
        records = self._kept(shard, span)
        if records:
            return partial(_given, tuple(records), self._stream, shard, wanted)
        return partial(read_span, self._settings, self._stream, shard, span, wanted)

    def _written(self, given: Position) -> Position:
        made, shards = self._shards()
        places = given.get("shards", given)
        if not isinstance(places, dict) or not set(places) <= set(shards):
            message = f"{json.dumps(given)[:200]} does not give sequence numbers for shards of {self._stream!r}"
            raise RunError(message, hint=f"its shards are {', '.join(shards)}.")
        return {"made": made, "shards": {shard: str(place) for shard, place in sorted(places.items())}}

    def _shards(self) -> tuple[str, dict[str, _Shard]]:
        """Return when the stream was made, and its shards with their parents."""
        told = asked(self._settings, "describe_stream_summary", StreamName=self._stream)
        made = str(told["StreamDescriptionSummary"].get("StreamCreationTimestamp", ""))
        shards: dict[str, _Shard] = {}
        more: dict[str, Any] = {"StreamName": self._stream}
        while more:
            found = asked(self._settings, "list_shards", **more)
            for shard in found["Shards"]:
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
                shards[shard["ShardId"]] = _Shard(tuple(parent for parent in parents if parent), closed)
            more = {"NextToken": found["NextToken"]} if found.get("NextToken") else {}
        return made, shards


def _readable(shards: Mapping[str, _Shard], at: Mapping[str, str]) -> Iterator[str]:
    """Return the shards that are not through and whose parents are, or are not there any more."""
    for name, shard in sorted(shards.items()):
        if at.get(name) != END and all(at.get(parent) == END or parent not in shards for parent in shard.parents):
            yield name


def _up_to(records: Sequence[dict[str, Any]], last: str | None) -> list[dict[str, Any]]:
    """Return the records up to and with a sequence number."""
    if last is None or not last.isdigit():
        return list(records)
    return [record for record in records if int(record["SequenceNumber"]) <= int(last)]


def _within(records: Sequence[dict[str, Any]], shard: str, end_offset: Position | None) -> list[dict[str, Any]]:
    """Return the records that do not lie behind a goal."""
    if end_offset is None:
        return list(records)
    if _UNTIL in end_offset:
        return list(takewhile(lambda record: _arrived(record) < int(end_offset[_UNTIL]), records))
    return _up_to(records, end_offset["shards"].get(shard))


def _arrived(record: Mapping[str, Any]) -> float:
    return float(record["ApproximateArrivalTimestamp"].timestamp() * 1000)


def _given(records: Sequence[dict[str, Any]], stream: str, shard: str, wanted: tuple[str, ...]) -> Iterator[pa.Table]:
    """Return records that were read already."""
    yield table_of(records, stream, shard, wanted)
