"""What befalls a stream from outside: networks, full disks and polite signals; every message is loaded once in the end."""

from __future__ import annotations

import os
import resource
import signal
from typing import TYPE_CHECKING

import pytest

from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.events import StreamFailed
from tests.crash.harness import moved
from tests.crash.proxy import Proxy
from tests.crash.streams import Feed, Writer, complaints, ids_in, stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.events import Event
    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Ending, Nursery
    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.crash, pytest.mark.service, pytest.mark.xdist_group("stream_kills")]

SMALL = 1_024
"""The size beyond which a child may not write any file, as if its disk were full."""


@pytest.fixture
def feed(kafka_broker: KafkaBroker) -> Feed:
    """Return a topic with a hundred messages, which come in batches of forty."""
    new_feed = Feed(kafka_broker.address, kafka_broker.create_topic(3), 40)
    Writer(new_feed.address, new_feed.topic).write(100)
    return new_feed


@pytest.fixture
def direct(target_of: Callable[[str], CrashTarget]) -> CrashTarget:
    """Return an empty target on PostgreSQL."""
    return target_of("postgres")


@pytest.fixture
def proxy(direct: CrashTarget) -> Iterator[Proxy]:
    """Return a proxy before the server."""
    opened = Proxy(direct.fields["url"])
    yield opened
    opened.close()


def stopped_at(nursery: Nursery, target: CrashTarget, feed: Feed, point: str) -> Ending:
    """Run the stream until its second batch comes by a place, and let it stand there."""
    stopped = nursery.run("stream", target, feed, True, failpoints=f"{point}=stop@2", impatient=True)
    assert stopped.stopped, stopped
    return stopped


def finished(nursery: Nursery, target: CrashTarget, feed: Feed) -> list[str]:
    """Load the rest in peace, and return what is wrong with the table."""
    assert nursery.run("stream", target, feed, True).error == ""
    return complaints(target, 100)


@pytest.mark.parametrize("what", ["cut before", "cut after", "silence after"])
def test_a_lost_answer_to_commit_is_looked_up(
    nursery: Nursery, direct: CrashTarget, proxy: Proxy, feed: Feed, what: str
) -> None:
    stopped = stopped_at(nursery, moved(direct, url=proxy.url), feed, "commit.before_commit")
    proxy.at_commit = what
    ending = nursery.resume(stopped)
    assert ending.error == ""
    assert (proxy.at_commit, ending.answer["total_rows"]) == ("", 100)
    assert complaints(direct, 100) == []


def test_an_outcome_that_stays_unknown_is_known_to_the_next_run(
    nursery: Nursery, direct: CrashTarget, proxy: Proxy, feed: Feed
) -> None:
    stopped = stopped_at(nursery, moved(direct, url=proxy.url), feed, "commit.before_commit")
    proxy.at_commit = "cut after"
    proxy.refuse()
    assert nursery.resume(stopped).error.startswith("UnknownOutcomeError")
    assert len(ids_in(direct)) == 80
    assert finished(nursery, direct, feed) == []


@pytest.mark.deep
def test_a_slow_network_that_loses_connections_only_takes_longer(direct: CrashTarget, proxy: Proxy, feed: Feed) -> None:
    proxy.delay, proxy.lost_after = 0.002, 300
    failures: list[Event] = []
    options = StreamOptions(available_now=True, restart=True, max_backoff=0.05)
    options.bus.subscribe(lambda event: failures.append(event) if isinstance(event, StreamFailed) else None)
    run_stream(stream_of(moved(direct, url=proxy.url), Feed(feed.address, feed.topic, 25)), options)
    assert complaints(direct, 100) == []
    assert failures, "no connection was lost"


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
@pytest.mark.parametrize("point", ["stage.task_start", "commit.connected"])
def test_a_full_disk_ends_the_stream_and_the_next_run_goes_on(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed, kind: str, point: str
) -> None:
    target = target_of(kind)
    stopped = stopped_at(nursery, target, feed, point)
    resource.prlimit(stopped.stopped, resource.RLIMIT_FSIZE, (SMALL, SMALL))
    ending = nursery.resume(stopped)
    assert any(text in ending.error for text in ("there is no room", "File too large", "disk I/O error")), ending
    assert len(ids_in(target)) == 40
    assert finished(nursery, target, feed) == []


@pytest.mark.parametrize(
    "point", ["stage.mid_rows", "commit.before_commit", "commit.after_commit", "stream.after_batch"]
)
def test_a_polite_signal_lets_the_batch_finish(nursery: Nursery, direct: CrashTarget, feed: Feed, point: str) -> None:
    stopped = stopped_at(nursery, direct, feed, point)
    os.kill(stopped.stopped, signal.SIGTERM)
    ending = nursery.resume(stopped)
    assert ending.error == ""
    assert (ending.answer["total_rows"], ending.answer["shutdown_triggered"]) == (80, True)
    assert len(ids_in(direct)) == 80
    assert finished(nursery, direct, feed) == []


@pytest.mark.parametrize("point", ["stage.mid_rows", "commit.before_commit", "commit.after_commit"])
def test_a_second_signal_ends_at_once_and_loses_nothing(
    nursery: Nursery, direct: CrashTarget, feed: Feed, point: str
) -> None:
    stopped = stopped_at(nursery, direct, feed, point)
    os.kill(stopped.stopped, signal.SIGTERM)
    os.kill(stopped.stopped, signal.SIGINT)
    ending = nursery.resume(stopped)
    assert ending.error.startswith("KeyboardInterrupt"), ending
    assert finished(nursery, direct, feed) == []
