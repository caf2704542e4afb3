"""Stretches of a topic give every record once, whoever reads which partitions and however small the stretches are."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE
from ematix_flow.connect.kafka import reader as kafka_reader
from ematix_flow.connect.kafka import source as kafka_stream
from ematix_flow.connect.kafka.reader import MAX_IDLE_READERS, close_readers, read_records
from ematix_flow.connect.kafka.source import ENOUGH, KafkaSource
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("brokers")]

RECORDS = 400


def _write(broker: KafkaBroker, topic: str, partitions: int, records: int = RECORDS) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(30) == 0


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> Iterator[tuple[KafkaConnection, str]]:
    name = kafka_broker.create_topic(4)
    _write(kafka_broker, name, 4)
    connection = KafkaConnection("events", bootstrap_servers=kafka_broker.address)
    yield connection, name
    close_readers(connection, name)


def _read(connection: KafkaConnection, topic: str, *spans: tuple[int, int, int]) -> list[tuple[int, dict[str, Any]]]:
    tables = read_records(connection, topic, spans, ())
    pairs = [(t.column(VALUE).to_pylist(), t.column(MESSAGE_OFFSET).to_pylist()) for t in tables]
    return [
        (int(value), json.loads(offset))
        for values, offsets in pairs
        for value, offset in zip(values, offsets, strict=True)
    ]


def test_small_stretches_give_every_record_once_and_in_order(topic: tuple[KafkaConnection, str]) -> None:
    connection, name = topic
    results = []
    for begin in range(0, RECORDS // 4, 7):
        end = min(begin + 7, RECORDS // 4)
        results += _read(connection, name, (0, begin, end), (1, begin, end))
    for partition in (0, 1):
        values = [value for value, offset in results if offset["partition"] == partition]
        assert values == list(range(partition, RECORDS, 4))
    assert all(offset == {"topic": name, "partition": v % 4, "offset": v // 4} for v, offset in results)


def test_a_stretch_that_does_not_follow_the_last_one_is_read_from_its_beginning(
    topic: tuple[KafkaConnection, str],
) -> None:
    connection, name = topic
    _read(connection, name, (2, 0, 10))
    again = _read(connection, name, (2, 5, 20))
    assert [value for value, _ in again] == list(range(22, 82, 4))


def test_partitions_that_waited_for_others_are_read_also_by_a_range_that_does_not_follow(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One partition is paused while the many records of the other are read, which take more than one call.
    monkeypatch.setattr(kafka_reader, "SILENCE", 5.0)
    monkeypatch.setattr(kafka_reader, "AT_ONCE", 50)
    name = kafka_broker.create_topic(2)
    _write(kafka_broker, name, 2, 2000)
    connection = KafkaConnection("events", bootstrap_servers=kafka_broker.address)
    try:
        assert len(_read(connection, name, (0, 0, 10), (1, 0, 900))) == 910
        assert len(_read(connection, name, (0, 500, 600), (1, 950, 1000))) == 150
    finally:
        close_readers(connection, name)


def test_consumers_of_a_topic_do_not_pile_up(topic: tuple[KafkaConnection, str]) -> None:
    connection, name = topic
    sets = [(a, b) for a in range(4) for b in range(a, 4)]
    assert len(sets) > MAX_IDLE_READERS
    for one, other in sets:
        spans = [(partition, 0, 3) for partition in sorted({one, other})]
        assert len(_read(connection, name, *spans)) == 3 * len(spans)
    assert len([key for key in kafka_reader._idle if key[2] == name]) == MAX_IDLE_READERS


def test_few_records_are_one_part_and_many_are_several(topic: tuple[KafkaConnection, str]) -> None:
    connection, name = topic
    source = KafkaSource(connection, name)
    begin = {"offsets": dict.fromkeys("0123", 0)}
    few, many, most = ({"offsets": dict.fromkeys("0123", count)} for count in (10, ENOUGH // 2, ENOUGH * 4))
    shown = [
        [partition.label.rpartition("/")[2] for partition in source.plan_partitions(begin, end, ())]
        for end in (few, many, most)
    ]
    assert shown == [["0,1,2,3"], ["0,2", "1,3"], ["0", "1", "2", "3"]]
    source.close()


@pytest.mark.parametrize(
    "given", ['{"4": 1}', '{"0": 1, "01": 2}', '{"0": -1}', '{"0": true}', '{"0": "1"}', '{"offsets": [1]}', '{"x": 1}']
)
def test_a_position_names_partitions_that_are_there(topic: tuple[KafkaConnection, str], given: str) -> None:
    source = KafkaSource(*topic)
    before = {"offsets": {"0": 7, "1": 8, "9": 5}}
    for position in (None, before):
        with pytest.raises(RunError, match="does not give an offset for partitions"):
            source.seek(position, given)
    assert source.seek(before, '{"1": 2}')["offsets"] == {"0": 7, "1": 2, "2": 0, "3": 0}
    source.close()


def _ranges(source: KafkaSource, begin: dict[str, int], end: dict[str, int]) -> list[list[tuple[int, int]]]:
    """Read all ranges at the same time and return partition and offset of their records."""
    partitions = source.plan_split_partitions({"offsets": begin}, {"offsets": end}, ())
    with ThreadPoolExecutor(len(partitions)) as pool:
        tables = pool.map(
            lambda partition: [row for table in partition.read() for row in table.to_pylist()], partitions
        )
        offsets = [[json.loads(row[MESSAGE_OFFSET]) for row in rows] for rows in tables]
    return [[(offset["partition"], offset["offset"]) for offset in some] for some in offsets]


def test_a_partition_with_many_records_is_cut_into_ranges(
    topic: tuple[KafkaConnection, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, name = topic
    monkeypatch.setattr(kafka_stream, "RANGE", 20)
    source = KafkaSource(connection, name)
    ranges = _ranges(source, {"0": 10, "1": 0, "2": 95}, {"0": 100, "1": 39, "2": 100})
    assert [sorted({partition for partition, _ in some}) for some in ranges] == [[1, 2], [0], [0], [0], [0]]
    assert [len(some) for some in ranges] == [44, 22, 23, 22, 23]
    assert [pair for some in ranges[1:] for pair in some] == [(0, offset) for offset in range(10, 100)]
    assert source.has_one_line({"offsets": {"0": 5, "1": 3}}, {"offsets": {"0": 9, "1": 3}})
    assert not source.has_one_line({"offsets": {"0": 5, "1": 3}}, {"offsets": {"0": 9, "1": 4}})
    monkeypatch.setattr(kafka_stream, "RANGES", 2)
    assert len(_ranges(source, {"0": 0}, {"0": 100})) == 1, "no more ranges than that, however many records"
    monkeypatch.setattr(kafka_stream, "RANGE", 250_000)
    assert len(source.plan_split_partitions({"offsets": {"0": 0}}, {"offsets": {"0": 1_000_000}}, ())) == 1
    source.close()


def test_ranges_end_where_offsets_have_no_record(kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka import Producer

    monkeypatch.setattr(kafka_stream, "RANGE", 10)
    name = kafka_broker.create_topic(1)
    producer = Producer({"bootstrap.servers": kafka_broker.address, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    for number in range(8):
        producer.begin_transaction()
        for value in range(12):
            producer.produce(name, str(value).encode())
        assert producer.flush(30) == 0
        # Offsets of a whole range, and the last ones of the topic, have no record that counts.
        (producer.abort_transaction if number in (3, 4, 7) else producer.commit_transaction)(30)
    connection = KafkaConnection("events", bootstrap_servers=kafka_broker.address)
    source = KafkaSource(connection, name)
    end = {"0": 8 * 13}
    deadline = time.monotonic() + 30
    while source.start("latest")["offsets"] != end:
        assert time.monotonic() < deadline, "the last transaction stays open"
    (whole,) = ([json.loads(row[MESSAGE_OFFSET])["offset"] for table in partition.read() for row in table.to_pylist()]
                for partition in source.plan_partitions({"offsets": {"0": 0}}, {"offsets": end}, ()))  # fmt: skip
    ranges = _ranges(source, {"0": 0}, end)
    assert len(ranges) == 10
    assert [offset for some in ranges for _, offset in some] == whole
    assert len(whole) == 5 * 12
    assert not all(ranges), "some ranges are empty"
    source.close()
