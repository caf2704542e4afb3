"""A Pub/Sub server for tests; it keeps topics and subscriptions in memory."""

from __future__ import annotations

import signal
import socket
import uuid

from tests.services.built import pubsub_program
from tests.services.programs import MissingServerError
from tests.services.server import Server

PROJECT = "flow-tests"


class PubSubServer(Server):
    """Google's own server for tests; it knows no passwords."""

    name = "pubsub"
    account = "root"
    stop_signal = signal.SIGTERM

    @property
    def endpoint(self) -> str:
        """Return the address of the server."""
        return f"127.0.0.1:{self.port}"

    def create_topic(self) -> tuple[str, str]:
        """Make a topic with one subscription and return the names of both."""
        from google.pubsub_v1 import PublisherClient, SubscriberClient
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
        from grpc import insecure_channel

        suffix = uuid.uuid4().hex[:16]
        topic, subscription = f"projects/{PROJECT}/topics/t-{suffix}", f"projects/{PROJECT}/subscriptions/s-{suffix}"
        with insecure_channel(self.endpoint) as channel:
            PublisherClient(transport=PublisherGrpcTransport(channel=channel)).create_topic(name=topic)
            subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
            subscriber.create_subscription(name=subscription, topic=topic, ack_deadline_seconds=10)
        return f"t-{suffix}", f"s-{suffix}"

    def check(self) -> None:
        """Ask whether the server answers."""
        socket.create_connection(("127.0.0.1", self.port), 5).close()

    def initialise(self) -> None:
        """Make sure that the server is there."""
        if not pubsub_program().is_file():
            raise MissingServerError("Pub/Sub")
        self.data.mkdir()

    def command(self) -> list[str]:
        """Return the command line."""
        return [str(pubsub_program()), str(self.port)]
