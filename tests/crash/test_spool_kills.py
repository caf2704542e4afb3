"""Streams from RabbitMQ are killed at random moments and at every step of a message: none is lost, none is doubled."""

from __future__ import annotations

import os
import signal
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.spool import ROOT
from ematix_flow.failpoints import SPOOL_NAMES
from tests.crash.spooling import Journey, publish, publishing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.rabbitmq import RabbitMQServer

pytestmark = [
    pytest.mark.crash,
    pytest.mark.service,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("rabbitmq"),
]

FULL = os.environ.get("CRASH_FULL") == "1"
KILLS, MESSAGES = (40, 50_000) if FULL else (8, 8_000)


@pytest.fixture
def journey(rabbitmq_server: RabbitMQServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journey:
    monkeypatch.setenv(ROOT, str(tmp_path / "spool"))
    queue = rabbitmq_server.create_queue()
    return Journey(rabbitmq_server.url, queue, tmp_path / "there.db", tmp_path / "spool")


def test_kills_lose_and_double_nothing(journey: Journey, rabbitmq_server: RabbitMQServer) -> None:
    seed = int(os.environ.get("CRASH_SEED", "20260101"))
    chance = Random(seed)  # noqa: S311 - repeatable, not secret
    publisher = publishing(rabbitmq_server, journey.queue, MESSAGES)
    moved = 0
    for number in range(KILLS):
        before = len(journey.found())
        life = journey.begin(_point(chance) if number % 2 else "")
        _wait_for_rows_or_death(journey, life, before, chance)
        life.kill()
        assert life.wait(30) == -signal.SIGKILL
        moved += len(journey.found()) > before
    publisher.join()
    journey.drain()
    found = journey.found()
    print(f"seed {seed}: {KILLS} kills, {MESSAGES} messages, {moved} lives moved rows")  # noqa: T201
    assert found == list(range(MESSAGES))
    assert moved >= KILLS // 8


@pytest.mark.parametrize("point", SPOOL_NAMES)
def test_a_kill_at_each_step_of_a_message(journey: Journey, rabbitmq_server: RabbitMQServer, point: str) -> None:
    channel = rabbitmq_server.channel()
    publish(channel, journey.queue, range(200))
    channel.connection.close()
    life = journey.begin(f"{point}=kill@1")
    assert life.wait(60) == -signal.SIGKILL
    assert journey.drain()["total_rows"] == 200
    assert journey.found() == list(range(200))


def _point(chance: Random) -> str:
    """Give a step at which a life ends, some batches later."""
    points = (*SPOOL_NAMES, "commit.before_commit", "commit.after_commit", "stream.after_batch")
    return f"{chance.choice(points)}=kill@{chance.randint(1, 6)}"


def _wait_for_rows_or_death(journey: Journey, life: object, before: int, chance: Random) -> None:
    """Wait until a life has moved rows or ended by itself, and a random moment more."""
    over = time.monotonic() + 60
    while time.monotonic() < over and life.poll() is None and len(journey.found()) == before:  # type: ignore[attr-defined]
        time.sleep(0.02)
        if chance.random() < 0.005:
            return
    time.sleep(chance.uniform(0, 0.6))
