"""Reads ranges of Kafka partitions as Arrow tables; consumers stay open, because ranges follow each other."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ematix_flow.connect.base.event_time import FIRST_MS, LAST_MS
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, REWIND, VALUE
from ematix_flow.connect.kafka.settings import client_settings
from ematix_flow.errors import StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, Message

    from ematix_flow.declare.connection.brokers import KafkaConnection

PartitionRange: TypeAlias = tuple[int, int, int]
"""A partition, its first offset and the offset after its last."""

AT_ONCE = 20_000
"""Records that become one table."""

SILENCE = 60.0
"""Seconds without a record after which a range cannot be read now."""

_READING = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "group.id": "ematix-flow-reader",
    # Left to itself a consumer goes on at the end when its records are gone.
    "auto.offset.reset": "error",
}
# What a broker that is away would cause to be logged many times a second is logged once, by the waiting stream.
_QUIET = {"log_level": 0}
_TUNED = {"fetch.wait.max.ms": 50, "queued.min.messages": 200_000, "queued.max.messages.kbytes": 65_536}


@dataclass
class _PartitionReader:
    """A consumer of some partitions, its positions and the records it got too early."""

    consumer: Consumer
    at: dict[int, int]
    ends: dict[int, int] = field(default_factory=dict)
    """Offsets at which a partition was reported to end."""
    early: dict[int, deque[Message]] = field(default_factory=dict)
    """By partition, records behind the end of the last range; the next one begins with them."""
    paused: list[int] = field(default_factory=list)
    """Partitions that wait for the others of their range."""


MAX_IDLE_READERS = 8
"""Consumers of a topic that a process keeps open; the one that was not used for longest is given up for another."""

_lock = threading.Lock()
_idle: dict[tuple[Any, ...], _PartitionReader] = {}
"""Open consumers by process, connection, topic and partitions; a process that was forked has its own."""


def read_records(
    connection: KafkaConnection, topic: str, ranges: tuple[PartitionRange, ...], column_names: tuple[str, ...]
) -> Iterator[pa.Table]:
    """Return the records of some partitions between two offsets each."""
    key = (os.getpid(), connection, topic, tuple(partition_range[0] for partition_range in ranges))
    reader = _idle_reader(key)
    if reader is None or reader.at != {partition: begin for partition, begin, _ in ranges}:
        reader = _open_reader(client_settings(connection), topic, ranges, reader)
    try:
        for records in _range(reader, topic, ranges):
            yield _table(records, topic, column_names)
    except BaseException:
        reader.consumer.close()
        raise
    reader.at = {partition: end for partition, _, end in ranges}
    with _lock:
        other = _idle.pop(key, None)
        # The next range begins where the later of two ranges ended.
        behind, _idle[key] = (other, reader) if other is None or _at(other) <= _at(reader) else (reader, other)
    if behind is not None:
        behind.consumer.close()


def _at(reader: _PartitionReader) -> int:
    return sum(reader.at.values())


def _idle_reader(key: tuple[Any, ...]) -> _PartitionReader | None:
    """Return the consumer that read these partitions before, or the oldest of many that read others of their topic."""
    with _lock:
        others = _of_topic(key)
        if key not in _idle and len(others) >= MAX_IDLE_READERS:
            return _idle.pop(others[0])
        return _idle.pop(key, None)


def _of_topic(key: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the keys of all open consumers of a topic, the one that was used last at the end."""
    return [other for other in _idle if other[:3] == key[:3]]


def close_readers(connection: KafkaConnection, topic: str) -> None:
    """Close the consumers of a topic that this process keeps open."""
    with _lock:
        readers = [_idle.pop(key) for key in _of_topic((os.getpid(), connection, topic))]
    for reader in readers:
        reader.consumer.close()


def _open_reader(
    settings: dict[str, Any], topic: str, ranges: tuple[PartitionRange, ...], before: _PartitionReader | None
) -> _PartitionReader:
    from confluent_kafka import Consumer, TopicPartition

    if before is not None:
        _wake(before, topic)  # a paused partition stays paused when it is assigned again
    consumer = before.consumer if before is not None else Consumer(_QUIET | _TUNED | settings | _READING)
    consumer.assign([TopicPartition(topic, partition, begin) for partition, begin, _ in ranges])
    return _PartitionReader(consumer, {partition: begin for partition, begin, _ in ranges})


def _range(reader: _PartitionReader, topic: str, ranges: tuple[PartitionRange, ...]) -> Iterator[list[Message]]:
    """Return the records until every partition has reached its end."""
    ends = {partition: end for partition, _, end in ranges}
    open_ = {partition for partition, end in ends.items() if reader.ends.get(partition, -1) < end}
    _wake(reader, topic)
    heard = time.monotonic()
    early = _early(reader, ends, open_)
    while True:
        received = early or reader.consumer.consume(AT_ONCE, timeout=0.2 if open_ else 0)
        early = []
        records = _records_in_range(reader, received, ends, open_)
        if records:
            yield records
        if not open_:
            return
        _pause_finished(reader, topic, set(ends) - open_)
        if received:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE:
            message = f"no record of {topic!r} came for {SILENCE:.0f} seconds, though there are more"
            raise TransientError(message)


def _early(reader: _PartitionReader, ends: dict[int, int], open_: set[int]) -> list[Message]:
    """Return the records that came with those of the range before; what lies behind this one stays."""
    records: list[Message] = []
    for partition, waiting in reader.early.items():
        while waiting and (waiting[0].offset() or 0) < ends[partition]:
            records.append(waiting.popleft())
        if waiting:
            open_.discard(partition)
    return records


def _pause_finished(reader: _PartitionReader, topic: str, finished: set[int]) -> None:
    """Have no more records of partitions that are through, or they would fill the memory while others are read."""
    from confluent_kafka import TopicPartition

    for partition in finished.difference(reader.paused):
        reader.consumer.pause([TopicPartition(topic, partition)])
        reader.paused.append(partition)


def _wake(reader: _PartitionReader, topic: str) -> None:
    from confluent_kafka import TopicPartition

    if reader.paused:
        reader.consumer.resume([TopicPartition(topic, partition) for partition in reader.paused])
        reader.paused = []


def _records_in_range(
    reader: _PartitionReader, received: list[Message], ends: dict[int, int], open_: set[int]
) -> list[Message]:
    """Return the records that belong to the range, and note where partitions end."""
    records: list[Message] = []
    for record in received:
        partition, offset, error = record.partition() or 0, record.offset() or 0, record.error()
        if error is not None:
            if _is_end(error):
                reader.ends[partition] = offset
                if offset >= ends[partition]:
                    open_.discard(partition)
            else:
                _refuse(error, record.topic())
            continue
        if offset >= ends[partition] - 1:
            open_.discard(partition)
        if offset < ends[partition]:
            records.append(record)
        else:
            reader.early.setdefault(partition, deque()).append(record)
    return records


def _is_end(error: KafkaError) -> bool:
    """Return whether an error only reports that a partition ends."""
    from confluent_kafka import KafkaError

    return error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name


def _refuse(error: KafkaError, topic: str | None) -> None:
    """Raise for an error that will not pass while this range is read."""
    from confluent_kafka import KafkaError

    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001 - its public name
        message = f"records of {topic!r} that were not read yet are gone"
        raise StreamLostError(message, hint=REWIND)
    if error.fatal() or (error.code() > 0 and not error.retriable()):
        message = f"Kafka cannot be read: {error.str()}"
        raise TransientError(message)


def _table(records: Sequence[Message], topic: str, column_names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    columns = {VALUE: pa.array([record.value() for record in records], pa.binary())}
    columns |= {name: _COLUMNS[name](records, topic) for name in column_names}
    return pa.table(columns | {MESSAGE_OFFSET: _message_offsets(records, topic)})


def _message_offsets(records: Sequence[Message], topic: str) -> pa.Array:
    """Return the texts by which records are found again."""
    import pyarrow as pa
    import pyarrow.compute as pc

    head = json.dumps({"topic": topic})[:-1] + ', "partition": '
    partitions, offsets = (pc.cast(of(records, topic), pa.string()) for of in (_partitions, _offsets))
    return pc.binary_join_element_wise(head, partitions, ', "offset": ', offsets, "}", "")


def _keys(records: Sequence[Message], _: str) -> pa.Array:
    import pyarrow as pa

    keys = [record.key() for record in records]
    return pa.array([None if key is None else _decoded(key) for key in keys], pa.string())


def _headers(records: Sequence[Message], _: str) -> pa.Array:
    import pyarrow as pa

    return pa.array([_header(record.headers()) for record in records], pa.string())


def _header(headers: Any) -> str | None:
    if not headers:
        return None
    return json.dumps({name: None if value is None else _decoded(value) for name, value in headers}, ensure_ascii=False)


def _times(records: Sequence[Message], _: str) -> pa.Array:
    import pyarrow as pa

    times = [record.timestamp() for record in records]
    known = [at * 1000 if kind and FIRST_MS <= at <= LAST_MS else None for kind, at in times]
    return pa.array(known, pa.timestamp("us", tz="UTC"))


def _topics(records: Sequence[Message], topic: str) -> pa.Array:
    import pyarrow as pa

    return pa.array([topic] * len(records), pa.string())


def _partitions(records: Sequence[Message], _: str) -> pa.Array:
    import pyarrow as pa

    return pa.array([record.partition() for record in records], pa.int32())


def _offsets(records: Sequence[Message], _: str) -> pa.Array:
    import pyarrow as pa

    return pa.array([record.offset() for record in records], pa.int64())


_COLUMNS: dict[str, Callable[[Sequence[Message], str], pa.Array]] = {
    "_key": _keys,
    "_headers": _headers,
    "_event_ts": _times,
    "_topic": _topics,
    "_partition": _partitions,
    "_offset": _offsets,
}


def _decoded(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="backslashreplace")
