"""Streams of several sources that are killed anywhere: every message of every source is loaded once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.crash.streams import Feed, Writer, complaints, ids_in
from tests.crash.test_stream_kills import POINTS, finish
from tests.depth import deep, quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery
    from tests.services.kafka import KafkaBroker
    from tests.services.rabbitmq import RabbitMQServer

pytestmark = [
    pytest.mark.crash,
    pytest.mark.service,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("stream_kills"),
]

CUT = ("stage.collected", "commit.before_commit", "stream.after_batch")
LIVES = quick_or_deep(6, 30)
A_LIFE = 60
"""Messages of each source that come before each life."""


@pytest.fixture
def feed(kafka_broker: KafkaBroker) -> Feed:
    """Return two empty topics."""
    return Feed(kafka_broker.address, kafka_broker.create_topic(3), 40, second=kafka_broker.create_topic(3))


@pytest.mark.parametrize("kind", ["postgres", deep("duckdb"), deep("sqlite")])
@pytest.mark.parametrize("point", [*CUT, *(deep(point) for point in POINTS if point not in CUT)])
def test_a_batch_of_two_topics_that_is_cut_anywhere_is_loaded_once(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed, kind: str, point: str
) -> None:
    target = target_of(kind)
    written = Writer(feed.address, feed.topic, feed.second).write(100)
    assert nursery.run("stream", target, feed, True, failpoints=f"{point}=kill@2").died
    finish(nursery, target, feed)
    assert complaints(target, written) == []


@pytest.mark.deep
def test_kills_of_a_stream_of_a_topic_and_a_queue(
    nursery: Nursery,
    target_of: Callable[[str], CrashTarget],
    feed: Feed,
    rabbitmq_server: RabbitMQServer,
    tmp_path: Path,
) -> None:
    target, chance = target_of("postgres"), Random(11)  # noqa: S311 - repeatable, not secret
    queue = rabbitmq_server.create_queue()
    feed = replace(feed, second="", amqp_url=rabbitmq_server.url, queue=queue, spool=str(tmp_path / "spool"))
    writer, sent, killed = Writer(feed.address, feed.topic), 0, 0
    for _ in range(LIVES):
        writer.write(A_LIFE)
        send(rabbitmq_server, queue, range(sent, sent + A_LIFE))
        sent += A_LIFE
        point = f"{chance.choice(POINTS)}=kill@{chance.randint(1, 2)}"
        killed += nursery.run("stream", target, feed, True, failpoints=point).died
    finish(nursery, target, feed)
    counts = Counter(ids_in(target))
    assert counts == Counter([*range(writer.written), *(-1 - n for n in range(sent))])
    assert killed >= LIVES // 2


def send(server: RabbitMQServer, queue: str, numbers: range) -> None:
    """Send messages, each with an id; their numbers are below zero."""
    import pika

    channel = server.channel()
    channel.confirm_delivery()
    for number in numbers:
        payload = json.dumps({"id": -1 - number, "word": f"word {number}"}).encode()
        how = pika.BasicProperties(message_id=f"m{number}", delivery_mode=2)
        channel.basic_publish("", queue, payload, how)
    channel.connection.close()
