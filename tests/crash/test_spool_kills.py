"""Streams from RabbitMQ are killed at random moments and at every step of a message, and so are the broker and the database: none is lost or doubled."""

from __future__ import annotations

import os
import signal
import time
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ematix_flow._core import PubSubBackend
from ematix_flow.connect.spool.log import ROOT
from ematix_flow.failpoints import SPOOL_NAMES
from tests.crash.spooling import Journey, from_rabbitmq, publish, publishing
from tests.depth import deep, quick_or_deep
from tests.services.pubsub import PROJECT
from tests.services.rabbitmq import RabbitMQServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import Popen

    from tests.services.postgres import PostgresServer
    from tests.services.pubsub import PubSubServer

pytestmark = [
    pytest.mark.crash,
    pytest.mark.service,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("rabbitmq"),
]

KILLS, MESSAGES = quick_or_deep((8, 8_000), (40, 50_000))
STEPS = (SPOOL_NAMES[0], *map(deep, SPOOL_NAMES[1:]))


@pytest.fixture
def journey(rabbitmq_server: RabbitMQServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journey:
    monkeypatch.setenv(ROOT, str(tmp_path / "spool"))
    queue = rabbitmq_server.create_queue()
    target = {"kind": "sqlite", "path": str(tmp_path / "there.db")}
    return Journey(from_rabbitmq(rabbitmq_server), queue, target, "main", tmp_path / "spool")


@pytest.fixture
def broker() -> Iterator[RabbitMQServer]:
    """Return a broker that keeps what it has acknowledged."""
    opened = RabbitMQServer(durable=True)
    opened.start()
    yield opened
    opened.close()


@pytest.mark.deep
def test_kills_and_crashes_lose_and_double_nothing(
    broker: RabbitMQServer, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT, str(tmp_path / "spool"))
    seed = int(os.environ.get("CRASH_SEED", "20260101"))
    chance = Random(seed)  # noqa: S311 - repeatable, not secret
    target = {"kind": "postgres", "url": postgres_server.create_database()}
    journey = Journey(from_rabbitmq(broker), broker.create_queue(), target, "public", tmp_path / "spool")
    publisher = publishing(broker, journey.queue, MESSAGES)
    moved = crashes = 0
    for number in range(KILLS):
        before = len(journey.ids())
        life = journey.begin(_point(chance) if number % 2 else "")
        _wait_for_rows_or_death(journey, life, before, chance)
        if number % 4 == 2:
            crashed = broker if number % 8 == 2 else postgres_server
            crashed.crash()
            time.sleep(chance.uniform(0, 1))  # the life meets it, and goes on, waits or ends by itself
            crashed.start()
            crashes += 1
        life.kill()
        life.wait(30)
        moved += len(journey.ids()) > before
    publisher.join()
    journey.drain()
    ids = journey.ids()
    print(f"seed {seed}: {KILLS} kills, {crashes} crashes, {MESSAGES} messages, {moved} lives moved rows")  # noqa: T201
    assert ids == list(range(MESSAGES))
    assert moved >= KILLS // 8


@pytest.mark.parametrize("point", STEPS)
def test_a_kill_at_each_step_of_a_message(journey: Journey, rabbitmq_server: RabbitMQServer, point: str) -> None:
    channel = rabbitmq_server.channel()
    publish(channel, journey.queue, range(200))
    channel.connection.close()
    life = journey.begin(f"{point}=kill@1")
    assert life.wait(60) == -signal.SIGKILL
    assert journey.drain()["total_rows"] == 200
    assert journey.ids() == list(range(200))


@pytest.mark.parametrize("point", STEPS)
def test_a_kill_at_each_step_of_a_message_of_pubsub(
    pubsub_server: PubSubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(ROOT, str(tmp_path / "spool"))
    source = {"kind": "pubsub", "project_id": PROJECT, "endpoint": pubsub_server.endpoint, "anonymous_auth": True}
    target = {"kind": "sqlite", "path": str(tmp_path / "there.db")}
    topic, subscription = pubsub_server.create_topic()
    journey = Journey(source, subscription, target, "main", tmp_path / "spool")
    backend = PubSubBackend.open(PROJECT, endpoint=pubsub_server.endpoint, anonymous_auth=True)
    backend.write_arrow_stream(topic, [pa.RecordBatch.from_pylist([{"id": n} for n in range(200)])])
    life = journey.begin(f"{point}=kill@1")
    assert life.wait(60) == -signal.SIGKILL
    over = time.monotonic() + 60
    while len(journey.ids()) < 200 and time.monotonic() < over:  # what was out comes again after its deadline
        journey.drain()
    assert journey.ids() == list(range(200))


def test_messages_of_a_torn_end_come_again(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    channel = rabbitmq_server.channel()
    publish(channel, journey.queue, range(200))
    channel.connection.close()
    assert journey.begin("spool.before_fsync=kill@1").wait(60) == -signal.SIGKILL
    (segment,) = journey.spool.rglob("*.seg")
    # A machine that lost its power keeps a part of what was not synced.
    os.truncate(segment, segment.stat().st_size // 2)
    assert journey.drain()["total_rows"] == 200
    assert journey.ids() == list(range(200))


def _point(chance: Random) -> str:
    """Return a step at which a life ends, some batches later."""
    points = (*SPOOL_NAMES, "commit.before_commit", "commit.after_commit", "stream.after_batch")
    return f"{chance.choice(points)}=kill@{chance.randint(1, 6)}"


def _wait_for_rows_or_death(journey: Journey, life: Popen[bytes], before: int, chance: Random) -> None:
    """Wait until a life has moved rows or ended by itself, and a random moment more."""
    over = time.monotonic() + 60
    while time.monotonic() < over and life.poll() is None and len(journey.ids()) == before:
        time.sleep(0.02)
        if chance.random() < 0.005:
            return
    time.sleep(chance.uniform(0, 0.6))
