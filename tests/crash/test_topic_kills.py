"""A stream from topic to topic is killed again and again: a plain reader of committed messages sees each one once."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from ematix_flow import failpoints
from ematix_flow.connect.base.sink import ID_HEADER
from ematix_flow.connect.kafka import sink as kafka_sink
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.events import StreamFailed
from ematix_flow.failpoints import SINK_NAMES
from tests.depth import quick_or_deep
from tests.engine.topic_flows import TopicFlow
from tests.services.topics import committed, fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ematix_flow.events import Event
    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Ending, Nursery
    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.crash, pytest.mark.service, pytest.mark.timeout(600)]

KILLS = quick_or_deep(4, 20)
A_LIFE = 1_500
"""Messages that come before each life."""
AT_ONCE = 50
"""Messages of a batch."""


@pytest.fixture
def target(target_of: Callable[[str], CrashTarget]) -> CrashTarget:
    return target_of("sqlite")


def flow_of(broker: KafkaBroker, count: int, **keywords: str) -> TopicFlow:
    source, target = broker.create_topic(3), broker.create_topic(2)
    flow = TopicFlow(broker.address, source, target, {"target_message_key_column": "id", **keywords})
    add(flow, 0, count)
    return flow


def add(flow: TopicFlow, first: int, end: int) -> None:
    payloads = [json.dumps({"id": n, "text": f"message {n}"}).encode() for n in range(first, end)]
    fill(flow.address, flow.source, payloads, [str(n % 7).encode() for n in range(first, end)])


def complaints(flow: TopicFlow, count: int) -> list[str]:
    """Say which messages are lost, doubled or changed."""
    numbers = [row for _, row in flow.arrived()]
    times = Counter(row["id"] for row in numbers)
    problems = [f"lost: {n}" for n in range(count) if not times[n]]
    problems += [f"doubled: {n}" for n, often in sorted(times.items()) if often > 1]
    return problems + [f"changed: {row}" for row in numbers if row["text"] != f"message {row['id']}"]


def test_kills_lose_and_double_no_message(nursery: Nursery, target: CrashTarget, kafka_broker: KafkaBroker) -> None:
    seed = int(os.environ.get("CRASH_SEED", "20260101"))
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    flow = flow_of(kafka_broker, 0)
    longest, kills, sent, counts = 1.5, 0, 0, [0]
    while kills < KILLS:
        add(flow, sent, sent + A_LIFE)
        sent += A_LIFE
        ending = nursery.run("topics", target, flow, AT_ONCE, kill_after=random.uniform(0.3, longest))
        assert ending.died or ending.answer is not None, ending
        kills += ending.died
        counts.append(len(committed(flow.address, flow.target)))
        # Lives of some batches each, however quick the machine is.
        longest = longest * 1.3 if counts[-1] == counts[-2] else max(0.6, longest * 0.9)
    print(f"seed {seed}: {kills} kills, {len(counts) - 1} lives, messages seen after each: {counts[1:]}")  # noqa: T201
    assert nursery.run("topics", target, flow, sent).answer is not None
    assert complaints(flow, sent) == []
    assert len(set(counts)) > KILLS // 3, "the kills did not fall between batches"


def test_a_kill_at_every_step_is_made_good_by_the_next_run(
    nursery: Nursery, target: CrashTarget, kafka_broker: KafkaBroker
) -> None:
    flow = flow_of(kafka_broker, 600)
    # The first passing is the take-over, the later ones are batches.
    for name in (*SINK_NAMES, "stream.after_batch"):
        for passing in (1, 2) if name in SINK_NAMES else (1,):
            assert _killed(nursery, target, flow, f"{name}=kill@{passing}").died, (name, passing)
    assert nursery.run("topics", target, flow, 100).answer is not None
    assert complaints(flow, 600) == []


def test_a_run_that_slept_through_a_takeover_sends_nothing(
    nursery: Nursery, target: CrashTarget, kafka_broker: KafkaBroker
) -> None:
    flow = flow_of(kafka_broker, 200)
    sleeper = _killed(nursery, target, flow, "sink.before_commit=stop@3")
    assert sleeper.stopped, sleeper
    assert nursery.run("topics", target, flow, 100).answer["total_rows"] == 150
    assert nursery.resume(sleeper).error.startswith("FencedError")
    assert complaints(flow, 200) == []


@pytest.mark.deep
def test_a_transaction_that_the_brokers_ended_while_the_sink_slept_is_made_again(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flow_of(kafka_broker, 200)
    monkeypatch.setattr(kafka_sink, "TRANSACTION_SECONDS", 3)
    failures: list[Event] = []
    options = StreamOptions(available_now=True, restart=True, max_backoff=0.1, most=100)
    options.bus.subscribe(lambda event: failures.append(event) if isinstance(event, StreamFailed) else None)
    # The take-over passes first, then the first batch, which the brokers give up.
    failpoints.arm("sink.before_commit=sleep:6@2")
    try:
        run_stream(flow.stream, options)
    finally:
        failpoints.arm("")
    assert complaints(flow, 200) == []
    assert failures, "the transaction did not time out"
    assert len(committed(flow.address, flow.target, "read_uncommitted")) > 200, "an aborted copy is there too"


def test_without_a_transaction_a_kill_doubles_messages_with_their_ids(
    nursery: Nursery, target: CrashTarget, kafka_broker: KafkaBroker
) -> None:
    flow = flow_of(kafka_broker, 100, delivery="at_least_once")
    assert _killed(nursery, target, flow, "sink.before_position=kill@2").died
    assert nursery.run("topics", target, flow, AT_ONCE).answer["total_rows"] == 50
    problems = complaints(flow, 100)
    assert len(problems) == 50
    assert all(text.startswith("doubled") for text in problems)
    messages = committed(flow.address, flow.target)
    assert len(messages) == 150
    assert len({dict(message.headers())[ID_HEADER] for message in messages}) == 100


@pytest.mark.deep
def test_files_reach_a_topic_once_whatever_step_is_killed(
    nursery: Nursery, target: CrashTarget, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    flow = TopicFlow(kafka_broker.address, "in", kafka_broker.create_topic(2), folder=str(tmp_path))
    (tmp_path / "in").mkdir()
    kills = [(name, passing) for name in SINK_NAMES for passing in (1, 2)] + [("stream.after_batch", 1)]
    for number, (name, passing) in enumerate(kills):
        rows = "".join(f"{n},message {n}\n" for n in range(number * 10, number * 10 + 10))
        # Later files have lower names.
        (tmp_path / "in" / f"{90 - number}.csv").write_text(f"id,text\n{rows}", "utf-8")
        assert _killed(nursery, target, flow, f"{name}=kill@{passing}").died, (name, passing)
    assert nursery.run("topics", target, flow, 100).answer is not None
    assert complaints(flow, 10 * len(kills)) == []


def _killed(nursery: Nursery, target: CrashTarget, flow: TopicFlow, failpoints: str) -> Ending:
    return nursery.run("topics", target, replace(flow), AT_ONCE, failpoints=failpoints)
