"""Kinesis streams as sources: sequence numbers per shard are positions; a shard that was split or merged ends before its children begin.

What lies ahead of a position is only known by reading it, so records are buffered until a target requests them.
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
    MessagePartition,
    StreamSource,
    from_text,
    parse_timestamp,
)
from ematix_flow.connect.kinesis.reader import (
    BEGIN,
    END,
    PER_CALL,
    SINCE,
    call_kinesis,
    get,
    iterator_at,
    read_range,
    table_of,
)
from ematix_flow.errors import RunError, StreamLostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.kinesis.reader import ClientSettings
    from ematix_flow.declare.connection.brokers import KinesisConnection

MAX_EMPTY_POLLS = 5
"""Empty answers in a row after which a shard is left for now; the service returns some before records come."""

_UNTIL = "until"


@dataclass
class _Ahead:
    """What was read of a shard after a position."""

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
        settings = connection
        self._settings: ClientSettings = (
            ("region", settings.region),
            ("endpoint", settings.endpoint),
            ("access_key_id", settings.access_key_id),
            ("secret_access_key", settings.secret_access_key),
        )
        self._ahead: dict[tuple[str, str], _Ahead] = {}

    @property
    def source_id(self) -> str:
        """Return the text under which positions are stored; the stream is named by the connection."""
        return f"{self.kind}:{self._stream}"

    def start(self, where: str) -> Position:
        """Return the oldest records, those from now on, those since an instant, or sequence numbers that are written out."""
        if where.lstrip().startswith("{"):
            return self._requested_position(from_text(where))
        created, shards = self._shards()
        if where == EARLIEST:
            return {"made": created, "shards": {}}
        now = int(time.time() * 1000)
        at = now if where == LATEST else int(parse_timestamp(where).timestamp() * 1000)
        return {"made": created, "shards": dict.fromkeys(shards, f"{SINCE}{at}"), _UNTIL: at}

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return how far records were read, and behind which shards there are none."""
        created, shards = self._shards()
        if position.get("made") not in (None, created):
            message = f"stream {self._stream!r} is not the one that was read before: it was deleted and made again"
            raise StreamLostError(message, hint=REWIND)
        at = {shard: sequence for shard, sequence in position["shards"].items() if shard in shards or sequence != END}
        for shard in at:
            if shard not in shards:
                raise StreamLostError(f"shard {shard} of {self._stream!r} is gone before it was read", hint=REWIND)
        to, left = dict(at), most
        readable = list(_readable(shards, at))
        for number, shard in enumerate(readable):
            share = max(1, left // (len(readable) - number))
            buffer = self._read_ahead(shard, at.get(shard, BEGIN), share, closed=shards[shard].closed)
            records = _within(buffer.records[:share], shard, end_offset)
            left -= len(records)
            if records:
                to[shard] = str(records[-1]["SequenceNumber"])
            elif buffer.closed and not buffer.records:
                to[shard] = END
            if left <= 0:
                break
        return {"made": created, "shards": dict(sorted(to.items()))}

    def gone_before(self, position: Position) -> str | None:
        """Return from when on there are records, where a position is an instant before that and the stream is older."""
        summary = self._summary()
        created, hours = summary.get("StreamCreationTimestamp"), int(summary.get("RetentionPeriodHours", 24))
        since = time.time() - 3600 * hours
        instants = [int(one[1:]) / 1000 for one in position["shards"].values() if one.startswith(SINCE)]
        begins_later = bool(position["shards"]) and min(instants, default=since) >= since
        if begins_later or (created is not None and created.timestamp() >= since):
            return None
        return (
            f"records of {self._stream!r} from before the last {hours} hours are gone: the stream kept them no longer"
        )

    def plan_partitions(
        self, begin: Position, end: Position, column_names: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Return the records between two positions, a shard each; what is still in memory is not read again."""
        return tuple(
            MessagePartition(
                f"{self._stream}/{shard}",
                len(self._buffered(shard, sequence_range)) or PER_CALL,
                self._reading(shard, sequence_range, tuple(column_names)),
            )
            for shard, sequence_range in self._ranges(begin, end)
        )

    def distance(self, begin: Position, end: Position) -> int:
        """Return the records between two positions, as far as they were read; the end of a stream is an instant."""
        if _UNTIL in end:
            return 0 if self._caught_up(begin, int(end[_UNTIL])) else 1
        records = sum(
            len(self._buffered(shard, sequence_range)) or 1 for shard, sequence_range in self._ranges(begin, end)
        )
        return records or int(begin["shards"] != end["shards"])

    def earlier(self, one: Position, other: Position) -> Position:
        """Return the earlier of the instants of each shard; what a sequence number is before is not known without reading it.

        A shard that either position does not know begins with its oldest record.
        """
        shards = {}
        for shard in sorted(one["shards"].keys() & other["shards"].keys()):
            pair = (one["shards"][shard], other["shards"][shard])
            instants = [at for at in pair if at.startswith(SINCE)]
            shards[shard] = min(instants, key=lambda at: int(at.removeprefix(SINCE)), default=pair[0])
        return {"made": one["made"], "shards": shards}

    def waiting(self, position: Position) -> Mapping[str, int]:
        """Return the records that were read and that no target has yet, by shard."""
        sequences = position["shards"]
        return {
            shard: len(buffer.records)
            for (shard, sequence), buffer in self._ahead.items()
            if sequences.get(shard, BEGIN) == sequence
        }

    def commit_offsets(self, positions: Sequence[Position]) -> None:
        """Forget what every target has."""
        in_use = {(s, sequence) for position in positions for s, sequence in position["shards"].items()}
        self._ahead = {key: buffer for key, buffer in self._ahead.items() if key in in_use or key[1] == BEGIN}

    def _caught_up(self, position: Position, until: int) -> bool:
        _, shards = self._shards()
        sequences = position["shards"]
        open_ = [(shard, sequences.get(shard, BEGIN)) for shard in shards if sequences.get(shard) != END]
        buffers = [self._ahead.get(key) for key in open_]
        return all(one is not None and one.is_behind(until) for one in buffers)

    def _read_ahead(self, shard: str, sequence: str, most: int, *, closed: bool) -> _Ahead:
        """Return what is known behind a position, after requesting more."""
        buffer = self._ahead.setdefault((shard, sequence), _Ahead())
        empty_polls = 0
        while len(buffer.records) < most and not buffer.closed and empty_polls < MAX_EMPTY_POLLS:
            if buffer.iterator is None:
                last = str(buffer.records[-1]["SequenceNumber"]) if buffer.records else sequence
                buffer.iterator = iterator_at(self._settings, self._stream, shard, last)
            begun = time.time()
            page = get(self._settings, buffer.iterator, most - len(buffer.records))
            buffer.iterator = None if page is None else page.iterator
            if page is None:
                continue
            buffer.records += page.records
            buffer.closed = page.iterator is None
            empty_polls = 0 if page.records else empty_polls + 1
            if not page.behind and not page.records:
                # A shard that was closed before it was read has nothing more, whatever comes next.
                buffer.reached, buffer.closed = begun, buffer.closed or closed
                break
        return buffer

    def _ranges(self, begin: Position, end: Position) -> list[tuple[str, tuple[str, str]]]:
        """Return shard, position before and last sequence number where there is something to read."""
        from_ = begin["shards"]
        ranges = [(shard, (str(from_.get(shard, BEGIN)), str(sequence))) for shard, sequence in end["shards"].items()]
        return [
            (shard, sequence_range)
            for shard, sequence_range in ranges
            if sequence_range[0] != sequence_range[1] and sequence_range[1][:1].isdigit()
        ]

    def _buffered(self, shard: str, sequence_range: tuple[str, str]) -> list[dict[str, Any]]:
        """Return the records of a span that are in memory: all of them, or none."""
        buffer = self._ahead.get((shard, sequence_range[0]))
        records = _up_to(buffer.records, sequence_range[1]) if buffer is not None else []
        return records if records and records[-1]["SequenceNumber"] == sequence_range[1] else []

    def _reading(self, shard: str, sequence_range: tuple[str, str], column_names: tuple[str, ...]) -> Any:
        records = self._buffered(shard, sequence_range)
        if records:
            return partial(_read_buffered, tuple(records), self._stream, shard, column_names)
        return partial(read_range, self._settings, self._stream, shard, sequence_range, column_names)

    def _requested_position(self, requested: Position) -> Position:
        created, shards = self._shards()
        sequences = requested.get("shards", requested)
        if not isinstance(sequences, dict) or not set(sequences) <= set(shards):
            message = f"{json.dumps(requested)[:200]} does not give sequence numbers for shards of {self._stream!r}"
            raise RunError(message, hint=f"its shards are {', '.join(shards)}.")
        return {"made": created, "shards": {shard: str(sequence) for shard, sequence in sorted(sequences.items())}}

    def _summary(self) -> dict[str, Any]:
        """Return what the service says of the stream as a whole."""
        response = call_kinesis(self._settings, "describe_stream_summary", StreamName=self._stream)
        return dict(response["StreamDescriptionSummary"])

    def _shards(self) -> tuple[str, dict[str, _Shard]]:
        """Return when the stream was made, and its shards with their parents."""
        created = str(self._summary().get("StreamCreationTimestamp", ""))
        shards: dict[str, _Shard] = {}
        more: dict[str, Any] = {"StreamName": self._stream}
        while more:
            page = call_kinesis(self._settings, "list_shards", **more)
            for shard in page["Shards"]:
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
                shards[shard["ShardId"]] = _Shard(tuple(parent for parent in parents if parent), closed)
            more = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
        return created, shards


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
    """Return the records that do not lie behind `end_offset`."""
    if end_offset is None:
        return list(records)
    if _UNTIL in end_offset:
        return list(takewhile(lambda record: _arrived(record) < int(end_offset[_UNTIL]), records))
    return _up_to(records, end_offset["shards"].get(shard))


def _arrived(record: Mapping[str, Any]) -> float:
    return float(record["ApproximateArrivalTimestamp"].timestamp() * 1000)


def _read_buffered(
    records: Sequence[dict[str, Any]], stream: str, shard: str, column_names: tuple[str, ...]
) -> Iterator[pa.Table]:
    """Return records that were read already."""
    yield table_of(records, stream, shard, column_names)
