"""Kafka topics as sources of streams: offsets per partition are positions, and records are read by librdkafka.

Tasks of Spark and threads of this process read the same way, so no setting of a login ever becomes one of Spark.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

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
from ematix_flow.connect.kafka.cluster import Kafka
from ematix_flow.connect.kafka.reader import close_readers, read_records
from ematix_flow.connect.schema_registry.base import SCHEMA_FORMATS
from ematix_flow.connect.schema_registry.open import registry_of
from ematix_flow.errors import RunError, StreamLostError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.kafka.cluster import Topic
    from ematix_flow.connect.kafka.reader import PartitionRange
    from ematix_flow.declare.connection.brokers import KafkaConnection

MAX_MESSAGE_PARTITIONS = 8
"""Into how many message partitions a range is cut at most; each reads several partitions of the topic."""

ENOUGH = 50_000
"""Records that are worth a part of their own: to begin one takes as long as to read some thousand of them."""

RANGE = 250_000
"""Records of one partition that are worth a consumer of their own, which fetches some thousand that are not its."""

RANGES = 64
"""Into how many ranges of offsets one read is cut at most."""


class KafkaSource(StreamSource):
    """One topic."""

    kind: ClassVar[str] = "kafka"
    line: ClassVar[str] = "_partition"
    columns: ClassVar[tuple[SourceColumn, ...]] = (
        SourceColumn("_key", "text"),
        SourceColumn("_headers", "text"),
        SourceColumn("_event_ts", "timestamp_tz"),
        SourceColumn("_topic", "text"),
        SourceColumn("_partition", "integer"),
        SourceColumn("_offset", "integer"),
    )

    def __init__(self, connection: KafkaConnection, query: str) -> None:
        super().__init__(connection.name, query)
        self.payload_format = connection.payload_format or "json"
        if self.payload_format in SCHEMA_FORMATS:
            self.registry = registry_of(connection)
        self._connection = connection
        self._cluster = Kafka(connection)

    @property
    def reads_ahead(self) -> bool:
        """Return True: records stay as they are."""
        return True

    def start(self, where: str) -> Position:
        """Return the offsets of the beginning, the end, an instant, or those that are written out."""
        if where.lstrip().startswith("{"):
            return self._requested_position(from_text(where))
        topic = self._cluster.topic(self.query)
        if where == EARLIEST:
            return self._position(topic, self._cluster.earliest(topic))
        if where == LATEST:
            return self._position(topic, self._cluster.latest(topic))
        return self._position(topic, self._cluster.since(topic, parse_timestamp(where)))

    def seek(self, position: Position | None, where: str) -> Position:
        """Return the offsets that are meant; partitions that are not mentioned stay where they are."""
        if position is None or not where.lstrip().startswith("{"):
            return self.start(where)
        return self._requested_position(from_text(where), position["offsets"])

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return the offsets up to which records can be read."""
        topic = self._cluster.topic(self.query)
        if position.get("id") not in (None, topic.id):
            message = f"topic {self.query!r} is not the one that was read before: it was deleted and made again"
            raise StreamLostError(message, hint=REWIND)
        last, first = self._cluster.latest(topic), self._cluster.earliest(topic)
        at = {partition: int(position["offsets"].get(str(partition), first[partition])) for partition in first}
        for partition, offset in at.items():
            self._refuse_lost(partition, offset, first[partition], last[partition])
        if end_offset is not None:
            last = {
                p: max(at[p], min(offset, int(end_offset["offsets"].get(str(p), at[p])))) for p, offset in last.items()
            }
        return self._position(topic, _limited(at, last, most))

    def gone_before(self, position: Position) -> str | None:
        """Return the records that a partition has had before its oldest one, where the position begins with that."""
        first, offsets = self._cluster.earliest(self._cluster.topic(self.query)), position["offsets"]
        missing = (p for p, offset in first.items() if offset > 0 and int(offsets.get(str(p), 0)) <= offset)
        partition = next(missing, None)
        return None if partition is None else self._gone(partition, 0, first[partition])

    def plan_partitions(
        self, begin: Position, end: Position, column_names: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Return the records between two positions, in parts.

        A partition stays in its part from range to range, so that its consumer goes on where it is.
        """
        return tuple(self._message_partition(group, column_names) for group in _grouped(self._ranges(begin, end)))

    def plan_split_partitions(
        self, begin: Position, end: Position, column_names: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Return the records in parts, of which a partition with very many is several.

        Offsets without a record, as compaction and transactions leave them, belong to a range like others; it is only shorter.
        """
        ranges = self._ranges(begin, end)
        enough = max(RANGE, _records(ranges) // RANGES + 1)
        whole = [partition_range for partition_range in ranges if _records([partition_range]) < 2 * enough]
        groups = [
            *_grouped(whole),
            *(
                [subrange]
                for partition_range in ranges
                if partition_range not in whole
                for subrange in _cut(partition_range, enough)
            ),
        ]
        return tuple(self._message_partition(group, column_names) for group in groups)

    def has_one_line(self, begin: Position, end: Position) -> bool:
        """Return whether there are records of one partition only."""
        return len(self._ranges(begin, end)) <= 1

    def _message_partition(self, ranges: Sequence[PartitionRange], column_names: Sequence[str]) -> MessagePartition:
        label = f"{self.query}/{','.join(str(partition_range[0]) for partition_range in ranges)}"
        read = partial(read_records, self._connection, self.query, tuple(ranges), tuple(column_names))
        return MessagePartition(label, _records(ranges), read)

    def distance(self, begin: Position, end: Position) -> int:
        """Return the difference of all offsets."""
        return _records(self._ranges(begin, end))

    def earlier(self, one: Position, other: Position) -> Position:
        """Return the lesser offset of each partition; one that either position does not know begins with its oldest record."""
        offsets = {p: min(int(o), int(other["offsets"][p])) for p, o in one["offsets"].items() if p in other["offsets"]}
        return one | {"offsets": offsets}

    def waiting(self, position: Position) -> Mapping[str, int]:
        """Return how many records wait in each partition."""
        ranges = {
            partition_range[0]: partition_range[2] - partition_range[1]
            for partition_range in self._ranges(position, self.start(LATEST))
        }
        return {partition: ranges.get(int(partition), 0) for partition in position["offsets"]}

    def commit_offsets(self, positions: Sequence[Position]) -> None:
        """Commit how far the group has come, for tools that show its lag; nothing depends on it."""
        if self._connection.group_id is None:
            return
        least: dict[int, int] = {}
        for position in positions:
            for partition, offset in position["offsets"].items():
                least[int(partition)] = min(int(offset), least.get(int(partition), int(offset)))
        # Other consumers may be members of the group, which then has offsets of its own.
        with suppress(RunError):
            self._cluster.publish_progress(self._connection.group_id, self.query, least)

    def close(self) -> None:
        """Let go of the connections to brokers."""
        close_readers(self._connection, self.query)
        self._cluster.close()

    def _ranges(self, begin: Position, end: Position) -> list[PartitionRange]:
        """Return partition, first and last offset (exclusive) where there is something to read."""
        from_, to = begin["offsets"], end["offsets"]
        ranges = [(int(p), int(from_.get(p, 0)), int(offset)) for p, offset in to.items()]
        return [partition_range for partition_range in ranges if partition_range[2] > partition_range[1]]

    def _position(self, topic: Topic, offsets: Mapping[int, int]) -> Position:
        return {"topic": self.query, "id": topic.id, "offsets": {str(p): o for p, o in sorted(offsets.items())}}

    def _requested_position(self, requested: Position, others: Mapping[str, int] | None = None) -> Position:
        """Return the offsets that are written out; `others` has those of partitions that are not mentioned."""
        offsets, topic = requested.get("offsets", requested), self._cluster.topic(self.query)
        known = {str(partition): partition for partition in topic.partitions}
        if (
            not isinstance(offsets, dict)
            or not all(map(_is_offset, offsets.values()))
            or not offsets.keys() <= known.keys()
        ):
            message = f"{json.dumps(requested)[:200]} does not give an offset for partitions of {self.query!r}"
            raise RunError(message, hint=f'for example {{"0": 120}}; its partitions are {", ".join(known)}.')
        given = {known[p]: int(o) for p, o in {**(others or {}), **offsets}.items() if p in known}
        return self._position(topic, self._cluster.earliest(topic) | given)

    def _refuse_lost(self, partition: int, offset: int, first: int, last: int) -> None:
        if offset < first:
            raise StreamLostError(self._gone(partition, offset, first), hint=REWIND)
        if offset > last:
            message = f"partition {partition} of {self.query!r} ends at {last}, but {offset - 1} was read before"
            raise StreamLostError(message, hint=REWIND)

    def _gone(self, partition: int, begin: int, end: int) -> str:
        lost = f"records {begin} to {end - 1} of partition {partition} of {self.query!r} are gone"
        return f"{lost}: the topic kept them no longer"


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _grouped(ranges: Sequence[PartitionRange]) -> list[list[PartitionRange]]:
    """Return whole partitions that are read together."""
    count = min(MAX_MESSAGE_PARTITIONS, max(1, _records(ranges) // ENOUGH))
    groups: dict[int, list[PartitionRange]] = {}
    for partition_range in sorted(ranges):
        groups.setdefault(partition_range[0] % count, []).append(partition_range)
    return list(groups.values())


def _cut(partition_range: PartitionRange, enough: int) -> list[PartitionRange]:
    """Return a span as ranges of about so many offsets, one behind the other."""
    partition, begin, end = partition_range
    count = (end - begin) // enough
    edges = [begin + (end - begin) * number // count for number in range(count + 1)]
    return [(partition, low, high) for low, high in pairwise(edges)]


def _records(ranges: Sequence[PartitionRange]) -> int:
    return sum(end - begin for _, begin, end in ranges)


def _limited(at: Mapping[int, int], last: Mapping[int, int], most: int) -> dict[int, int]:
    """Return offsets at most so many records on; every partition gets its share, and what one leaves others take."""
    result, left = dict(at), most
    waiting = [p for p in at if last[p] > at[p]]
    while waiting and left > 0:
        share = max(1, left // len(waiting))
        for partition in list(waiting):
            step = min(share, last[partition] - result[partition], left)
            result[partition] += step
            left -= step
            if result[partition] == last[partition]:
                waiting.remove(partition)
    return result
