"""Queues of RabbitMQ as streams: what came is acknowledged when it is safe, and not before."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.stream_source import EARLIEST, LATEST
from ematix_flow.connect.registry import open_stream
from ematix_flow.connect.spool import log as spool
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import RunError, StreamLostError, TransientError
from tests.crash.spooling import Journey, from_rabbitmq, publish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.services.rabbitmq import RabbitMQServer

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("rabbitmq")]


@pytest.fixture
def journey(rabbitmq_server: RabbitMQServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journey:
    monkeypatch.setenv(spool.ROOT, str(tmp_path / "spool"))
    target = {"kind": "sqlite", "path": str(tmp_path / "there.db")}
    return Journey(from_rabbitmq(rabbitmq_server), rabbitmq_server.create_queue(), target, "main", tmp_path / "spool")


def send(server: RabbitMQServer, queue: str, numbers: range) -> None:
    channel = server.channel()
    channel.confirm_delivery()
    publish(channel, queue, numbers)
    channel.connection.close()


def left_in(server: RabbitMQServer, queue: str) -> int:
    """Return how many messages a queue would give to somebody else, once nobody else has them."""
    channel = server.channel()
    count = channel.queue_declare(queue, passive=True).method.message_count
    channel.connection.close()
    return int(count)


def until(condition: Callable[[], bool]) -> None:
    over = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < over, "it did not happen"
        time.sleep(0.02)


def test_messages_become_rows_with_what_is_known_of_them(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    import pika

    channel = rabbitmq_server.channel()
    how = pika.BasicProperties(message_id="first", timestamp=1_700_000_000, headers={"who": "me", "n": 1})
    channel.basic_publish("", journey.queue, json.dumps({"id": 1}).encode(), how)
    channel.basic_publish("", journey.queue, json.dumps({"id": 2}).encode())
    channel.connection.close()
    with closing(open_stream(journey.stream().sources[0].connection, journey.queue)) as source:
        source.begin()
        begin = source.start(EARLIEST)
        until(lambda: source.ahead(begin, 10)["next"] == 2)
        end = source.ahead(begin, 10)
        columns = ["_key", "_headers", "_event_ts", "_message_id", "_queue"]
        rows = [
            row
            for partition in source.plan_partitions(begin, end, columns)
            for table in partition.read()
            for row in table.to_pylist()
        ]
    assert rows[0]["_event_ts"].isoformat() == "2023-11-14T22:13:20+00:00"
    assert [(row["_key"], row["_message_id"], row["_queue"]) for row in rows] == [
        (journey.queue, "first", journey.queue),
        (journey.queue, None, journey.queue),
    ]
    assert json.loads(rows[0]["_headers"]) == {"who": "me", "n": 1}
    assert json.loads(rows[1]["_place"]) == {"queue": journey.queue, "number": 1}
    assert journey.drain()["total_rows"] == 2, "they wait in the spool"
    assert journey.drain()["total_rows"] == 0


def test_an_idle_stream_leaves_nothing_with_the_broker(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    options = StreamOptions()
    running = threading.Thread(target=run_stream, args=(journey.stream(), options))
    running.start()
    try:
        send(rabbitmq_server, journey.queue, range(10))
        until(lambda: journey.ids() == list(range(10)))
    finally:
        options.stop.set()
        running.join()
    assert left_in(rabbitmq_server, journey.queue) == 0


def test_without_room_nothing_is_acknowledged_and_what_is_safe_is_still_loaded(
    journey: Journey, rabbitmq_server: RabbitMQServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(rabbitmq_server, journey.queue, range(5))
    journey.drain()
    room = spool.RESERVE_BYTES
    monkeypatch.setattr(spool, "RESERVE_BYTES", 1 << 60)
    send(rabbitmq_server, journey.queue, range(5, 10))
    with pytest.raises(TransientError, match="no room"):
        journey.drain()
    assert left_in(rabbitmq_server, journey.queue) == 5
    monkeypatch.setattr(spool, "RESERVE_BYTES", room)
    assert journey.drain()["total_rows"] == 5
    assert journey.ids() == list(range(10))


def test_a_broker_that_crashes_is_waited_for(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    options = StreamOptions()
    outcome: list[Any] = []
    running = threading.Thread(target=lambda: outcome.append(run_stream(journey.stream(), options)))
    running.start()
    try:
        send(rabbitmq_server, journey.queue, range(500))
        until(lambda: len(journey.ids()) > 0)
        rabbitmq_server.crash()
        rabbitmq_server.start()
        send(rabbitmq_server, journey.queue, range(500, 1_000))
        until(lambda: len(journey.ids()) == 1_000)
    finally:
        options.stop.set()
        running.join()
    assert journey.ids() == list(range(1_000))
    assert outcome[0]["shutdown_triggered"]


def test_what_cannot_be_is_said_at_once(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    with pytest.raises(RunError, match="there is no queue 'nowhere'"):
        replace(journey, queue="nowhere").drain()
    wrong = {**journey.source, "amqp_url": journey.source["amqp_url"].replace("canary", "wrong")}
    with pytest.raises(RunError, match="refuses") as refused:
        replace(journey, source=wrong).drain()
    assert "wrong-mq" not in str(refused.value)
    with pytest.raises(TransientError, match="cannot be reached"):
        replace(journey, source={"kind": "rabbitmq", "amqp_url": "amqp://a:b@127.0.0.1:1/%2F"}).drain()


def test_a_spool_that_is_gone_is_not_taken_for_an_empty_one(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    send(rabbitmq_server, journey.queue, range(3))
    journey.drain()
    journey.spool.rename(journey.spool.with_name("away"))
    with pytest.raises(StreamLostError, match="not the one that was read before"):
        journey.drain()


def test_asking_takes_nothing_from_the_queue(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    send(rabbitmq_server, journey.queue, range(3))
    with closing(open_stream(journey.stream().sources[0].connection, journey.queue)) as source:
        assert source.waiting(source.start(EARLIEST)) == {journey.queue: 0}
        with pytest.raises(RunError, match="keeps no past"):
            source.start("2026-01-01")
        assert source.start(LATEST)["next"] == 0
    assert left_in(rabbitmq_server, journey.queue) == 3


def test_messages_without_an_id_may_be_equal(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    channel = rabbitmq_server.channel()
    for number in (1, 2):
        channel.basic_publish("", journey.queue, json.dumps({"id": number, "same": "yes"}).encode())
    channel.connection.close()
    journey.drain()
    with closing(sqlite3.connect(journey.target["path"])) as connection:
        assert connection.execute("SELECT id, _message_id FROM events ORDER BY id").fetchall() == [(1, None), (2, None)]


@pytest.mark.parametrize(
    "odd",
    [
        {"timestamp": 1_700_000_000_000},  # milliseconds
        {"timestamp": 2**64 - 1},
        {"message_id": b"\xff\xfe"},
        {"headers": {"name": b"\xff"}},
    ],
)
def test_odd_properties_of_a_message_stop_nothing(
    journey: Journey, rabbitmq_server: RabbitMQServer, odd: dict[str, Any]
) -> None:
    import pika

    channel = rabbitmq_server.channel()
    channel.basic_publish("", journey.queue, b'{"id": 1}', pika.BasicProperties(**odd))
    channel.basic_publish("", journey.queue, b'{"id": 2}')
    channel.connection.close()
    assert journey.drain()["total_rows"] == 2
    assert journey.ids() == [1, 2]


def test_the_last_message_of_a_key_counts(journey: Journey, rabbitmq_server: RabbitMQServer, tmp_path: Path) -> None:
    channel = rabbitmq_server.channel()
    for state in "zbay":
        channel.basic_publish("", journey.queue, json.dumps({"id": 1, "state": state}).encode())
    channel.connection.close()
    columns = (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="state"))
    given = journey.stream()
    target = replace(given.targets[0], write=write(mode="merge"), table=Table("main", "states", columns))
    run_stream(replace(given, targets=(target,)), StreamOptions(available_now=True))
    with closing(sqlite3.connect(tmp_path / "there.db")) as connection:
        assert connection.execute("SELECT id, state FROM states").fetchall() == [(1, "y")]
