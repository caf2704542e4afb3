"""Stretches of a topic give every record once, whoever reads which partitions and however small the stretches are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect import kafka_reader
from ematix_flow.connect.kafka_reader import KEPT, close_readers, read_records
from ematix_flow.connect.kafka_stream import ENOUGH, KafkaSource
from ematix_flow.connect.stream import PLACE, VALUE
from ematix_flow.declare.connection_streams import KafkaConnection

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
    pairs = [(t.column(VALUE).to_pylist(), t.column(PLACE).to_pylist()) for t in tables]
    return [
        (int(value), json.loads(place)) for values, places in pairs for value, place in zip(values, places, strict=True)
    ]


def test_small_stretches_give_every_record_once_and_in_order(topic: tuple[KafkaConnection, str]) -> None:
    connection, name = topic
    found = []
    for begin in range(0, RECORDS // 4, 7):
        end = min(begin + 7, RECORDS // 4)
        found += _read(connection, name, (0, begin, end), (1, begin, end))
    for partition in (0, 1):
        values = [value for value, place in found if place["partition"] == partition]
        assert values == list(range(partition, RECORDS, 4))
    assert all(place == {"topic": name, "partition": v % 4, "offset": v // 4} for v, place in found)


def test_a_stretch_that_does_not_follow_the_last_one_is_read_from_its_beginning(
    topic: tuple[KafkaConnection, str],
) -> None:
    connection, name = topic
    _read(connection, name, (2, 0, 10))
    again = _read(connection, name, (2, 5, 20))
    assert [value for value, _ in again] == list(range(22, 82, 4))


def test_consumers_of_a_topic_do_not_pile_up(topic: tuple[KafkaConnection, str]) -> None:
    connection, name = topic
    sets = [(a, b) for a in range(4) for b in range(a, 4)]
    assert len(sets) > KEPT
    for one, other in sets:
        spans = [(partition, 0, 3) for partition in sorted({one, other})]
        assert len(_read(connection, name, *spans)) == 3 * len(spans)
    assert len([key for key in kafka_reader._idle if key[2] == name]) == KEPT


def test_few_records_are_one_part_and_many_are_several(topic: tuple[KafkaConnection, str]) -> None:
    connection, name = topic
    source = KafkaSource(connection, name)
    begin = {"offsets": dict.fromkeys("0123", 0)}
    few, many, most = ({"offsets": dict.fromkeys("0123", count)} for count in (10, ENOUGH // 2, ENOUGH * 4))
    shown = [[piece.shown.rpartition("/")[2] for piece in source.pieces(begin, end, ())] for end in (few, many, most)]
    assert shown == [["0,1,2,3"], ["0,2", "1,3"], ["0", "1", "2", "3"]]
    source.close()
