from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.base.sink import AT_LEAST_ONCE, ID_HEADER, OutgoingMessage, SinkCheckpointKey
from ematix_flow.connect.pubsub import sink as pubsub_sink
from ematix_flow.connect.pubsub.sink import PubSubSink
from ematix_flow.declare.connection.brokers import PubSubConnection
from ematix_flow.errors import RunError
from tests.services.pubsub import PROJECT

if TYPE_CHECKING:
    from tests.services.pubsub import PubSubServer

pytestmark = pytest.mark.service

CHECKPOINT_KEY = SinkCheckpointKey("jobs", "kafka:orders")
START, END = {"at": 0}, {"at": 1}


def sink_of(server: PubSubServer, topic: str) -> PubSubSink:
    connection = PubSubConnection(name="events", project_id=PROJECT, endpoint=server.endpoint, anonymous_auth=True)
    return PubSubSink(connection, topic, AT_LEAST_ONCE)


def pulled(server: PubSubServer, subscription: str, count: int) -> list[tuple[str, str, bytes]]:
    from google.pubsub_v1 import SubscriberClient
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
    from grpc import insecure_channel

    messages = []
    name = f"projects/{PROJECT}/subscriptions/{subscription}"
    with insecure_channel(server.endpoint) as channel:
        client = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        while len(messages) < count:
            answer = client.pull({"subscription": name, "max_messages": count}, timeout=30).received_messages
            messages += [
                (one.message.attributes[ID_HEADER], one.message.attributes["kind"], one.message.data) for one in answer
            ]
            client.acknowledge({"subscription": name, "ack_ids": [one.ack_id for one in answer]})
    return messages


def test_messages_have_their_ids_as_attributes_and_the_position_is_remembered(
    pubsub_server: PubSubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub_sink, "AT_ONCE", 4)
    topic, subscription = pubsub_server.create_topic()
    sink = sink_of(pubsub_server, topic)
    assert sink.take_over(CHECKPOINT_KEY) is None
    sink.write(
        CHECKPOINT_KEY,
        START,
        END,
        [OutgoingMessage(b"%d" % n, f"id-{n}", headers=(("kind", "test"),)) for n in range(10)],
    )
    assert sorted(pulled(pubsub_server, subscription, 10)) == [(f"id-{n}", "test", b"%d" % n) for n in range(10)]
    assert sink_of(pubsub_server, f"projects/{PROJECT}/topics/{topic}").take_over(CHECKPOINT_KEY) == END


def test_a_topic_that_is_not_there_is_named(pubsub_server: PubSubServer) -> None:
    with pytest.raises(RunError, match="nowhere"):
        sink_of(pubsub_server, "nowhere").take_over(CHECKPOINT_KEY)
