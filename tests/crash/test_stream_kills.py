"""Streams that are killed at random moments, with brokers and databases that crash: every message is loaded once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

import ematix_flow
from ematix_flow.engine.stream.loop import MOVES
from ematix_flow.failpoints import TRANSFORM_NAMES
from tests.crash.streams import Feed, Writer, batches_in, complaints, ids_in
from tests.depth import deep, every_other, quick_or_deep
from tests.services.engines import engines_in, surroundings
from tests.services.kafka import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Ending, Nursery
    from tests.services.postgres import PostgresServer

pytestmark = [
    pytest.mark.crash,
    pytest.mark.service,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("stream_kills"),
]

KILLS = quick_or_deep(8, 60)
LAKE_KILLS = quick_or_deep(3, 60)
BATCHES, LAKE_BATCHES = quick_or_deep((10, 3), (25, 25))
"""Batches of one life at most."""

POINTS = (
    "token.after_insert",
    "stage.mid_rows",
    "stage.collected",
    "commit.ledger_inserted",
    "commit.watermark",
    "commit.before_commit",
    "commit.after_commit",
    "stream.after_batch",
)
"""Where one batch of a stream can be cut."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """Return a broker that keeps what it has acknowledged."""
    opened = KafkaBroker(durable=True)
    opened.start()
    yield opened
    opened.close()


@pytest.fixture
def feed(broker: KafkaBroker) -> Feed:
    """Return an empty topic."""
    return Feed(broker.address, broker.create_topic(3), 40)


def one_life(
    nursery: Nursery, target: CrashTarget, feed: Feed, chance: Random, life: int, batches: int = BATCHES
) -> Ending:
    """Run the stream until it is killed: at a moment, or when it passes a place for the so-manieth time."""
    if life % 4 == 3:
        return nursery.run("stream", target, feed, False, kill_after=chance.uniform(0.5, 4.0))
    point = f"{chance.choice(POINTS)}=kill@{chance.randint(1, batches)}"
    return nursery.run("stream", target, feed, False, failpoints=point, kill_after=60)


def finish(nursery: Nursery, target: CrashTarget, feed: Feed) -> None:
    """Load all that is there, in peace."""
    ending = nursery.run("stream", target, replace(feed, most=100_000), True)
    assert ending.error == ""
    assert ending.answer["shutdown_triggered"] is False


def test_kills_of_a_stream_into_postgres(
    nursery: Nursery,
    target_of: Callable[[str], CrashTarget],
    broker: KafkaBroker,
    feed: Feed,
    postgres_server: PostgresServer,
) -> None:
    target = target_of("postgres")
    seed = int(os.environ.get("CRASH_SEED", "20260101"))
    chance = Random(seed)  # noqa: S311 - repeatable, not secret
    writer = Writer(feed.address, feed.topic)
    writer.start()
    killed = 0
    for life in range(KILLS):
        killed += one_life(nursery, target, feed, chance, life).died
        if life % 7 == 3:
            broker.crash()
            broker.start()
        if life % 7 == 5:
            postgres_server.crash()
            postgres_server.start()
    written = writer.stop()
    finish(nursery, target, feed)
    print(f"seed {seed}: {killed} kills, {batches_in(target)} batches, {written} messages")  # noqa: T201
    assert complaints(target, written) == []
    assert killed >= KILLS // 2
    assert batches_in(target) > KILLS


def kills_of_changes(nursery: Nursery, target: CrashTarget, feed: Feed, kills: int, batches: int) -> None:
    """Kill a stream of changes at its places, and see that nothing is lost, doubled or back again."""
    feed = replace(feed, changes=True)
    chance = Random(11)  # noqa: S311 - repeatable, not secret
    writer = Writer(feed.address, feed.topic, changes=True)
    killed = written = 0
    for life in range(kills):
        written = writer.write(30)
        point = f"{(*POINTS, 'commit.applied_first_stmt')[life % (len(POINTS) + 1)]}=kill@{chance.randint(1, batches)}"
        killed += nursery.run("stream", target, feed, True, failpoints=point, kill_after=120).died
    finish(nursery, target, feed)
    assert complaints(target, written) == []
    assert killed >= kills // 2


def test_kills_of_changes_into_postgres(nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed) -> None:
    kills_of_changes(nursery, target_of("postgres"), feed, quick_or_deep(3, 40), 3)


@pytest.mark.deep
@pytest.mark.spark
def test_kills_of_changes_into_delta(
    lake_nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed
) -> None:
    kills_of_changes(lake_nursery, target_of("delta_local"), replace(feed, most=150), 9, 1)


@pytest.mark.deep
@pytest.mark.spark
def test_kills_of_a_stream_into_delta(
    lake_nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed
) -> None:
    target = target_of("delta_local")
    chance = Random(7)  # noqa: S311 - repeatable, not secret
    writer = Writer(feed.address, feed.topic)
    writer.start()
    killed = 0
    for life in range(LAKE_KILLS):
        killed += one_life(lake_nursery, target, feed, chance, life, LAKE_BATCHES).died
    written = writer.stop()
    finish(lake_nursery, target, feed)
    print(f"{killed} kills, {batches_in(target)} batches, {written} messages")  # noqa: T201
    assert complaints(target, written) == []
    assert killed >= LAKE_KILLS // 2
    assert batches_in(target) > LAKE_KILLS


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta_local", "iceberg", "iceberg_sql"])
def test_a_restart_after_a_kill_between_the_tables_commit_and_its_books_goes_on_with_more_messages(
    lake_nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed, kind: str
) -> None:
    target = target_of(kind)
    writer = Writer(feed.address, feed.topic)
    for number in range(quick_or_deep(4, 8)):
        # Another end of the batch than the one that was killed: its token is not in the ledger.
        written = writer.write(40)
        point = ("store.after_change=kill", "store.before_record=kill@2")[number % 2]
        more = Feed(feed.address, feed.topic, 100)
        assert lake_nursery.run("stream", target, more, True, failpoints=point).died
        written = writer.write(30)
        finish(lake_nursery, target, feed)
        assert complaints(target, written) == [], point


@pytest.mark.spark
@pytest.mark.parametrize(
    "point",
    [
        *map(deep, (*TRANSFORM_NAMES[:2], "stage.collected", *POINTS[3:])),
    ],
)
def test_a_batch_with_sql_on_spark_that_is_cut_anywhere_is_loaded_once(
    lake_nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed, point: str
) -> None:
    target = target_of("delta_local")
    feed = replace(feed, sql="SELECT id, upper(word) AS word, _offset FROM source")
    written = Writer(feed.address, feed.topic).write(100)
    ending = lake_nursery.run("stream", target, feed, True, failpoints=f"{point}=kill@2")
    assert ending.died, ending.error
    finish(lake_nursery, target, feed)
    assert complaints(target, written) == []


BY_COMMAND = """
import json, os
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection

given = json.loads(os.environ["CRASH_STREAM"])
for name in ("feed", "target"):
    register_connection(connection_from_fields(name, given[name]))


@ematix.table(schema=given["schema"], name="messages")
class Messages:
    id: Annotated[BigInt, pk()]
    word: Text
    _offset: BigInt


@ematix.streaming_pipeline(
    source="feed", source_query=given["topic"], target="target", target_table=Messages, max_rows_per_batch=40
)
def messages(): ...
"""


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("point", ["stream.after_batch", "stage.mid_rows", "commit.before_commit"])
def test_a_command_with_default_settings_that_is_killed_goes_on_where_it_was(
    target_of: Callable[[str], CrashTarget], feed: Feed, tmp_path: Path, point: str
) -> None:
    target = target_of("postgres")
    written = Writer(feed.address, feed.topic).write(100)
    (tmp_path / "killed.py").write_text(BY_COMMAND)
    given = {
        "feed": {"kind": "kafka", "bootstrap_servers": feed.address},
        "target": {"kind": target.kind, **target.fields},
        "schema": target.schema,
        "topic": feed.topic,
    }
    environment = {
        **surroundings(tmp_path / "engines"),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(Path(ematix_flow.__file__).parents[1]),
        "CRASH_STREAM": json.dumps(given),
    }

    def consume(failpoints: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ematix_flow", "consume", "messages", "-m", "killed", "--once"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment | {"FLOW_FAILPOINTS": failpoints},
            capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip

    killed = consume(f"{point}=kill@2")
    # In a task it is the worker that dies, and Spark tries the task again.
    assert killed.returncode == (0 if point.startswith("stage.") else -signal.SIGKILL), killed.stderr
    done = consume("")
    assert done.returncode == 0, done.stderr
    assert complaints(target, written) == []
    assert not engines_in(tmp_path / "engines"), "a stream has a Java of its own"


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["postgres", "duckdb", "sqlite"])
@pytest.mark.parametrize("point", every_other(POINTS, 1))
def test_a_batch_that_is_cut_anywhere_is_loaded_once(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed, kind: str, point: str
) -> None:
    target = target_of(kind)
    written = Writer(feed.address, feed.topic).write(100)
    assert nursery.run("stream", target, feed, True, failpoints=f"{point}=kill@2").died
    finish(nursery, target, feed)
    assert complaints(target, written) == []


MOVED = "PositionMovedError: the position of "


def moved_by_another(nursery: Nursery, target: CrashTarget, feed: Feed, writer: Writer, slow: Ending) -> Ending:
    """Have another process load all that is there, write more, and let one go on that stood still meanwhile."""
    assert slow.stopped, slow.error
    writer.write(10)  # another end of the batch, so that it is not known by its token
    finish(nursery, target, feed)
    writer.write(10)
    return nursery.resume(slow)


def test_a_stream_that_another_process_moved_before_its_first_load_goes_on_and_is_told_of_one_that_lives(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed
) -> None:
    target, writer = target_of("postgres"), Writer(feed.address, feed.topic)
    writer.write(10)
    points = f"token.before_insert=stop@1-{MOVES},stream.after_batch=stop@1"
    slow = nursery.run("stream", target, replace(feed, restart=True), False, failpoints=points)
    for _ in range(MOVES):
        slow = moved_by_another(nursery, target, feed, writer, slow)
    assert len(ids_in(target)) == writer.written, "the one that stood still has loaded what came last"
    slow = moved_by_another(nursery, target, feed, writer, slow)
    assert slow.error.startswith(MOVED)
    assert "another process runs this stream; nothing was changed" in slow.error
    finish(nursery, target, feed)
    assert complaints(target, writer.written) == []


def test_a_stream_that_another_process_goes_on_moving_ends(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], feed: Feed
) -> None:
    target, writer = target_of("postgres"), Writer(feed.address, feed.topic)
    writer.write(10)
    points = f"token.before_insert=stop@1-{MOVES + 1}"
    slow = nursery.run("stream", target, replace(feed, restart=True), False, failpoints=points)
    for _ in range(MOVES + 1):
        slow = moved_by_another(nursery, target, feed, writer, slow)
    assert slow.error.startswith(MOVED)
    finish(nursery, target, feed)
    assert complaints(target, writer.written) == []
