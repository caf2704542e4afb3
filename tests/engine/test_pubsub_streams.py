"""Subscriptions of Pub/Sub as streams: pulled, made safe, let go."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.spool.log import ROOT
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import RunError
from tests.services.pubsub import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.pubsub import PubSubServer

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("pubsub")]


class Flow:
    """A topic with a subscription, and a table that takes it."""

    def __init__(self, server: PubSubServer, folder: Path) -> None:
        self.server = server
        self.topic, self.subscription = server.create_topic()
        self.database = folder / "there.db"

    def publish(self, *numbers: int) -> None:
        from google.pubsub_v1 import PublisherClient
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
        from grpc import insecure_channel

        messages = [{"data": json.dumps({"id": n}).encode(), "attributes": {"n": str(n)}} for n in numbers]
        with insecure_channel(self.server.endpoint) as channel:
            client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
            client.publish(topic=f"projects/{PROJECT}/topics/{self.topic}", messages=messages)

    def drain(self, subscription: str = "") -> dict[str, Any]:
        fields = {"project_id": PROJECT, "endpoint": self.server.endpoint, "anonymous_auth": True}
        source = connection_from_fields("p", {"kind": "pubsub", **fields})
        there = connection_from_fields("there", {"kind": "sqlite", "path": str(self.database)})
        columns = (
            Column(BigInt(), primary_key=True, name="id"),
            Column(Text(), name="_headers"),
            Column(Text(), name="_subscription"),
        )
        stream = Stream(
            "events",
            (StreamSourceDeclaration(source, subscription or self.subscription, "p"),),
            (StreamTarget(there, write(mode="append"), table=Table("main", "events", columns)),),
            idle_pause_ms=50,
        )
        return run_stream(stream, StreamOptions(available_now=True))

    def rows(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute("SELECT id, _headers, _subscription FROM events ORDER BY id").fetchall()


@pytest.fixture
def flow(pubsub_server: PubSubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setenv(ROOT, str(tmp_path / "spool"))
    return Flow(pubsub_server, tmp_path)


def test_messages_are_loaded_once(flow: Flow) -> None:
    flow.publish(*range(300))
    assert flow.drain()["total_rows"] == 300
    flow.publish(300)
    assert flow.drain()["total_rows"] == 1
    assert [row[0] for row in flow.rows()] == list(range(301))
    assert flow.rows()[7][1:] == ('{"n": "7"}', flow.subscription)


def test_a_subscription_that_is_not_there_is_said_at_once(flow: Flow) -> None:
    with pytest.raises(RunError, match="no subscription"):
        flow.drain("nowhere")
