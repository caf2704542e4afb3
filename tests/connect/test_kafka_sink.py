from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Producer

from ematix_flow import failpoints
from ematix_flow.connect.base.sink import AT_LEAST_ONCE, EXACTLY_ONCE, ID_HEADER, OutgoingMessage, SinkCheckpointKey
from ematix_flow.connect.kafka.offsets import TOPIC, CommittedPosition, KafkaPositions
from ematix_flow.connect.kafka.sink import KafkaSink
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.errors import FencedError, RunError, StreamLostError, TransientError
from ematix_flow.failpoints import FailpointError
from tests.services.topics import committed, payloads_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.kafka import KafkaBroker

pytestmark = pytest.mark.service

START, MIDDLE, END = {"at": 0}, {"at": 1}, {"at": 2}


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> str:
    return kafka_broker.create_topic(2)


@pytest.fixture
def checkpoint_key(topic: str) -> SinkCheckpointKey:
    return SinkCheckpointKey(f"stream-{topic}", "kafka:orders")


def sink_of(broker: KafkaBroker, topic: str, guarantee: str = EXACTLY_ONCE) -> KafkaSink:
    return KafkaSink(KafkaConnection(name="events", bootstrap_servers=broker.address), topic, guarantee)


def messages(*texts: str) -> list[OutgoingMessage]:
    return [OutgoingMessage(text.encode(), f"id-{text}", text.encode()) for text in texts]


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_messages_and_position_are_there_after_a_write(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey, guarantee: str
) -> None:
    sink = sink_of(kafka_broker, topic, guarantee)
    assert sink.take_over(checkpoint_key) is None
    sink.write(checkpoint_key, START, MIDDLE, messages("a", "b"))
    sink.write(checkpoint_key, MIDDLE, END, [OutgoingMessage(None, "gone", b"a")])
    sink.close()
    assert sink_of(kafka_broker, topic, guarantee).take_over(checkpoint_key) == END
    received = committed(kafka_broker.address, topic)
    assert sorted((one.key(), one.value() or b"-") for one in received) == [(b"a", b"-"), (b"a", b"a"), (b"b", b"b")]
    ids = {one.value(): dict(one.headers() or ()).get(ID_HEADER) for one in received}
    assert ids.get(b"a") == (None if guarantee == EXACTLY_ONCE else b"id-a")


def test_positions_of_other_streams_and_other_topics_are_their_own(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey
) -> None:
    sink = sink_of(kafka_broker, topic)
    sink.take_over(checkpoint_key)
    sink.write(checkpoint_key, START, END, messages("a"))
    assert sink_of(kafka_broker, topic).take_over(SinkCheckpointKey("another", checkpoint_key.source)) is None
    assert sink_of(kafka_broker, kafka_broker.create_topic()).take_over(checkpoint_key) is None


def test_a_position_of_another_source_is_refused(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey
) -> None:
    sink = sink_of(kafka_broker, topic)
    sink.take_over(checkpoint_key)
    sink.write(checkpoint_key, START, END, messages("a"))
    with pytest.raises(StreamLostError, match="read kafka:orders before, and reads kafka:payments now"):
        sink_of(kafka_broker, topic).take_over(SinkCheckpointKey(checkpoint_key.name, "kafka:payments"))


def test_an_aborted_transaction_is_not_seen(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey
) -> None:
    sink = sink_of(kafka_broker, topic)
    sink.take_over(checkpoint_key)
    failpoints.arm("sink.before_commit=raise@1")
    with pytest.raises(FailpointError):
        sink.write(checkpoint_key, START, MIDDLE, messages("a", "b"))
    assert payloads_of(kafka_broker.address, topic) == []
    assert len(committed(kafka_broker.address, topic, "read_uncommitted")) == 2
    sink.write(checkpoint_key, START, MIDDLE, messages("a", "b"))
    assert sorted(payloads_of(kafka_broker.address, topic)) == [b"a", b"b"]


def test_an_older_run_may_not_write_any_more(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey
) -> None:
    older, newer = sink_of(kafka_broker, topic), sink_of(kafka_broker, topic)
    older.take_over(checkpoint_key)
    assert newer.take_over(checkpoint_key) is None
    with pytest.raises(FencedError, match="a newer run of stream"):
        older.write(checkpoint_key, START, MIDDLE, messages("old"))
    newer.write(checkpoint_key, START, MIDDLE, messages("new"))
    assert payloads_of(kafka_broker.address, topic) == [b"new"]


def test_a_position_that_an_operator_moved_stops_who_runs(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey
) -> None:
    running = sink_of(kafka_broker, topic)
    running.take_over(checkpoint_key)
    running.write(checkpoint_key, START, END, messages("a"))
    sink_of(kafka_broker, topic).remember(checkpoint_key, START)
    with pytest.raises(FencedError):
        running.write(checkpoint_key, END, {"at": 3}, messages("b"))
    assert sink_of(kafka_broker, topic).take_over(checkpoint_key) == START


def test_a_transaction_that_the_brokers_ended_can_be_tried_again(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey
) -> None:
    sink = sink_of(kafka_broker, topic)
    sink.take_over(checkpoint_key)
    # What brokers do with a transaction that takes too long: its producer is shut out, and nobody else comes.
    settings = {
        "bootstrap.servers": kafka_broker.address,
        "transactional.id": f"ematix-flow/{checkpoint_key.name}/{topic}",
    }
    Producer(settings | {"log_level": 0}).init_transactions(30)
    with pytest.raises(TransientError):
        sink.write(checkpoint_key, START, MIDDLE, messages("a"))
    sink.write(checkpoint_key, START, MIDDLE, messages("a"))
    assert payloads_of(kafka_broker.address, topic) == [b"a"]


def test_the_position_tells_what_became_of_a_commit(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey
) -> None:
    sink = sink_of(kafka_broker, topic)
    sink.take_over(checkpoint_key)
    sink.write(checkpoint_key, START, MIDDLE, messages("a"))
    timeout = KafkaError(KafkaError._TIMED_OUT)
    sink._judge(checkpoint_key, CommittedPosition(checkpoint_key.source, MIDDLE, START, sink._owner), timeout)
    with pytest.raises(TransientError):
        sink._judge(checkpoint_key, CommittedPosition(checkpoint_key.source, END, MIDDLE, sink._owner), timeout)
    sink.write(checkpoint_key, MIDDLE, END, messages("b"))
    assert sorted(payloads_of(kafka_broker.address, topic)) == [b"a", b"b"]


def test_a_message_that_is_too_large_is_refused_with_its_batch(
    kafka_broker: KafkaBroker, checkpoint_key: SinkCheckpointKey
) -> None:
    topic = kafka_broker.create_topic(**{"max.message.bytes": "2000"})
    sink = sink_of(kafka_broker, topic)
    sink.take_over(checkpoint_key)
    with pytest.raises(RunError, match="too large") as error:
        sink.write(checkpoint_key, START, MIDDLE, [*messages("a"), OutgoingMessage(b"x" * 5000, "large")])
    assert not error.value.transient
    assert payloads_of(kafka_broker.address, topic) == []
    sink.write(checkpoint_key, START, MIDDLE, messages("b"))
    assert payloads_of(kafka_broker.address, topic) == [b"b"]


def test_a_topic_that_is_not_there_is_named(kafka_broker: KafkaBroker, checkpoint_key: SinkCheckpointKey) -> None:
    with pytest.raises(RunError, match="there is no topic 'nowhere'"):
        sink_of(kafka_broker, "nowhere").take_over(checkpoint_key)


def test_a_committed_position_behind_an_open_transaction_is_waited_for(
    kafka_broker: KafkaBroker, topic: str, checkpoint_key: SinkCheckpointKey
) -> None:
    sink_of(kafka_broker, topic).take_over(checkpoint_key)
    open_ = Producer({"bootstrap.servers": kafka_broker.address, "transactional.id": f"open-{topic}", "log_level": 0})
    open_.init_transactions(30)
    open_.begin_transaction()
    open_.produce(TOPIC, b"{}", b"of somebody else", 0)
    open_.flush(30)
    sink = sink_of(kafka_broker, topic)
    committed_position = CommittedPosition(checkpoint_key.source, END, START, sink._owner)
    sink.guarantee = AT_LEAST_ONCE  # reads nothing, so it does not wait itself
    sink._producer = Producer({"bootstrap.servers": kafka_broker.address, "log_level": 0})
    sink._sent(checkpoint_key, committed_position, ())
    # Only the end of the transaction makes the record behind it visible.
    waiting = _InBackground(KafkaPositions(sink._settings), f"{checkpoint_key.name}/{topic}")
    assert waiting.positions(0.5) == []
    open_.abort_transaction(30)
    assert waiting.positions(30.0) == [committed_position]


class _InBackground:
    """Asks for a position in a thread."""

    def __init__(self, positions: KafkaPositions, key: str) -> None:
        from threading import Thread

        self._positions: list[CommittedPosition | None] = []
        self._thread = Thread(target=lambda: self._positions.append(positions.last(key)), daemon=True)
        self._thread.start()

    def positions(self, seconds: float) -> list[CommittedPosition | None]:
        self._thread.join(seconds)
        return self._positions
