"""A stream from a queue of RabbitMQ, or a subscription of Pub/Sub, into a database: the program that is killed, and what is asked of it afterwards.

Run as a program it is one life of the stream: source, queue, database and spool are given, and SIGTERM ends it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.registry import open_database
from ematix_flow.connect.spool.log import ROOT
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from tests.crash.programs import begin_program

if TYPE_CHECKING:
    from subprocess import Popen

    from tests.services.rabbitmq import RabbitMQServer


@dataclass(frozen=True)
class Journey:
    """Where messages come from, where they go, and where they wait in between."""

    source: dict[str, Any]
    """The fields of the connection to the broker."""
    queue: str
    target: dict[str, str]
    """The fields of the connection to the database."""
    schema: str
    spool: Path

    def stream(self, *, pause_ms: int = 20) -> Stream:
        """Return the stream."""
        source = connection_from_fields("mq", self.source)
        target = connection_from_fields("there", self.target)
        columns = (
            Column(BigInt(), primary_key=True, name="id"),
            Column(Text(), name="_message_id"),
            Column(Text(), name="_queue" if self.source["kind"] == "rabbitmq" else "_subscription"),
        )
        return Stream(
            "events",
            (StreamSourceDeclaration(source, self.queue, self.queue),),
            (StreamTarget(target, write(mode="append"), table=Table(self.schema, "events", columns)),),
            idle_pause_ms=pause_ms,
            max_rows_per_batch=2_000,
        )

    def drain(self) -> dict[str, Any]:
        """Load what there is, in this process."""
        return run_stream(self.stream(), StreamOptions(available_now=True))

    def begin(self, failpoints: str = "") -> Popen[bytes]:
        """Begin a life of the stream in a process of its own."""
        arguments = [json.dumps(self.source), self.queue, json.dumps(self.target), self.schema, str(self.spool)]
        return begin_program("tests.crash.spooling", *arguments, failpoints=failpoints, **{ROOT: str(self.spool)})

    def ids(self) -> list[int]:
        """Return the ids in the table."""
        database = open_database(connection_from_fields("there", self.target))
        try:
            with closing(database.session()) as session:
                return [row[0] for row in session.query(f"SELECT id FROM {self.schema}.events ORDER BY id")]
        except database.errors:  # nothing was loaded yet
            return []


def from_rabbitmq(server: RabbitMQServer) -> dict[str, Any]:
    """Return the fields of a connection to RabbitMQ."""
    return {"kind": "rabbitmq", "amqp_url": server.url}


def publish(channel: Any, queue: str, numbers: range) -> None:
    """Send messages that outlive the broker, each with an id."""
    import pika

    for number in numbers:
        how = pika.BasicProperties(message_id=f"m{number}", delivery_mode=2)
        channel.basic_publish("", queue, json.dumps({"id": number}).encode(), how)


def publishing(server: Any, queue: str, count: int) -> threading.Thread:
    """Send messages from a thread of its own, with the broker's word for each; those without it are sent again."""

    def send() -> None:
        from pika.exceptions import AMQPError

        first = 0
        while first < count:
            upto = min(count, first + 1_000)
            try:
                channel = server.channel()
                channel.confirm_delivery()
                publish(channel, queue, range(first, upto))
                channel.connection.close()
            except (AMQPError, OSError):
                time.sleep(0.2)
                continue
            first = upto

    thread = threading.Thread(target=send, name="publisher")
    thread.start()
    return thread


if __name__ == "__main__":
    source, queue, target, schema, spool = sys.argv[1:]
    run_stream(Journey(json.loads(source), queue, json.loads(target), schema, Path(spool)).stream())
