from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow import failpoints
from ematix_flow.connect.base.sink import AT_LEAST_ONCE, OutgoingMessage, SinkCheckpointKey
from ematix_flow.connect.rabbitmq.sink import RabbitMQSink
from ematix_flow.declare.connection.brokers import RabbitMQConnection
from ematix_flow.errors import FencedError, RunError, TransientError
from ematix_flow.failpoints import FailpointError
from tests.services.rabbitmq import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.service

CHECKPOINT_KEY = SinkCheckpointKey("jobs", "kafka:orders")
START, MIDDLE, END = {"at": 0}, {"at": 1}, {"at": 2}


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def sink_of(url: str, queue: str) -> RabbitMQSink:
    return RabbitMQSink(RabbitMQConnection(name="jobs", amqp_url=url), queue, AT_LEAST_ONCE)


def messages(*texts: str) -> list[OutgoingMessage]:
    return [OutgoingMessage(text.encode(), f"id-{text}", headers=(("kind", "test"),)) for text in texts]


def delivered(server: RabbitMQServer, queue: str) -> list[tuple[str, bytes, int, object]]:
    """Take everything from a queue."""
    channel, received = server.channel(), []
    while True:
        frame, properties, body = channel.basic_get(queue, auto_ack=True)
        if frame is None:
            channel.connection.close()
            return received
        received.append((properties.message_id, body, properties.delivery_mode, properties.headers))


def test_messages_are_kept_by_the_queue_and_the_position_by_this_machine(rabbitmq_server: RabbitMQServer) -> None:
    queue = rabbitmq_server.create_queue()
    sink = sink_of(rabbitmq_server.url, queue)
    assert sink.take_over(CHECKPOINT_KEY) is None
    sink.write(CHECKPOINT_KEY, START, MIDDLE, messages("a", "b"))
    sink.write(CHECKPOINT_KEY, MIDDLE, END, [])
    sink.close()
    assert sink_of(rabbitmq_server.url, queue).take_over(CHECKPOINT_KEY) == END
    assert sink_of(rabbitmq_server.url, rabbitmq_server.create_queue()).take_over(CHECKPOINT_KEY) is None
    assert delivered(rabbitmq_server, queue) == [
        ("id-a", b"a", 2, {"kind": "test"}),
        ("id-b", b"b", 2, {"kind": "test"}),
    ]


def test_what_is_sent_again_after_a_crash_has_the_same_id(rabbitmq_server: RabbitMQServer) -> None:
    queue = rabbitmq_server.create_queue()
    sink = sink_of(rabbitmq_server.url, queue)
    failpoints.arm("sink.before_position=raise@1")
    with pytest.raises(FailpointError):
        sink.write(CHECKPOINT_KEY, START, MIDDLE, messages("a"))
    again = sink_of(rabbitmq_server.url, queue)
    assert again.take_over(CHECKPOINT_KEY) is None
    again.write(CHECKPOINT_KEY, START, MIDDLE, messages("a"))
    assert [one[0] for one in delivered(rabbitmq_server, queue)] == ["id-a", "id-a"]


def test_a_position_that_another_run_moved_is_not_moved_back(rabbitmq_server: RabbitMQServer) -> None:
    queue = rabbitmq_server.create_queue()
    older, newer = sink_of(rabbitmq_server.url, queue), sink_of(rabbitmq_server.url, queue)
    older.write(CHECKPOINT_KEY, START, MIDDLE, messages("a"))
    newer.write(CHECKPOINT_KEY, MIDDLE, END, messages("b"))
    with pytest.raises(FencedError, match="carry the same ids"):
        older.write(CHECKPOINT_KEY, MIDDLE, END, messages("b"))
    newer.remember(CHECKPOINT_KEY, START)
    assert older.take_over(CHECKPOINT_KEY) == START


def test_a_queue_that_is_not_there_or_not_there_any_more_is_an_error(rabbitmq_server: RabbitMQServer) -> None:
    with pytest.raises(RunError, match="there is no queue 'nowhere'"):
        sink_of(rabbitmq_server.url, "nowhere").take_over(CHECKPOINT_KEY)
    queue = rabbitmq_server.create_queue()
    sink = sink_of(rabbitmq_server.url, queue)
    sink.take_over(CHECKPOINT_KEY)
    channel = rabbitmq_server.channel()
    channel.queue_delete(queue)
    channel.connection.close()
    with pytest.raises(RunError, match="there is no queue") as error:
        sink.write(CHECKPOINT_KEY, START, MIDDLE, messages("a"))
    assert not error.value.transient
    assert sink.position(CHECKPOINT_KEY) is None


def test_a_queue_that_is_full_can_be_tried_again(rabbitmq_server: RabbitMQServer) -> None:
    queue = rabbitmq_server.create_queue(**{"x-max-length": 1, "x-overflow": "reject-publish"})
    sink = sink_of(rabbitmq_server.url, queue)
    with pytest.raises(TransientError, match="refused a message"):
        sink.write(CHECKPOINT_KEY, START, MIDDLE, messages("a", "b"))
    assert [one[0] for one in delivered(rabbitmq_server, queue)] == ["id-a"]
    sink.write(CHECKPOINT_KEY, START, MIDDLE, messages("b"))
    assert [one[0] for one in delivered(rabbitmq_server, queue)] == ["id-b"]


def test_a_broker_that_is_away_is_told_without_its_password(rabbitmq_server: RabbitMQServer) -> None:
    away = rabbitmq_server.url.replace(f":{rabbitmq_server.port}", ":1")
    with pytest.raises(TransientError, match="RabbitMQ is away") as error:
        sink_of(away, "q").take_over(CHECKPOINT_KEY)
    assert PASSWORD not in str(error.value)
    wrong = rabbitmq_server.url.replace(PASSWORD, "wrong-password")
    with pytest.raises(RunError) as refused:
        sink_of(wrong, "q").take_over(CHECKPOINT_KEY)
    assert "wrong-password" not in str(refused.value)
