"""Streams of changes that are killed where a slot, a snapshot or a position moves: the target has every change once."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING

import psycopg
import pytest

from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import StreamLostError
from ematix_flow.failpoints import CDC_NAMES
from tests.crash.changing import Workload, begin_life, create, drain, replayed, rows_of, stream_of
from tests.depth import deep
from tests.services.postgres import PostgresServer
from tests.streams.change_sources import Source, Work, mirrored
from tests.streams.change_sources import begin_life as begin_mirror

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import Popen

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]

POINTS = [
    *(deep(f"{name}=kill@1") for name in CDC_NAMES if name != "cdc.snapshot_exported"),
    "cdc.snapshot_exported=kill@1",
    deep("stage.before_task_commit=kill@1"),
    deep("commit.before_commit=kill@1"),
    "commit.after_commit=kill@1",
    deep("stream.after_batch=kill@1"),
    deep("commit.before_commit=kill@2"),
    deep("commit.after_commit=kill@2"),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_each_step_between_rows_and_changes(postgres_url: str, tmp_path: Path, point: str) -> None:
    tables = ("public.a", "public.b")
    create(postgres_url, *tables)
    file = tmp_path / "t.db"
    with Workload(postgres_url, tables, seed=3):
        life = begin_life(postgres_url, "public.*", file, point)
        assert life.wait(120) == -signal.SIGKILL
        drain(stream_of(postgres_url, "public.*", file))
    drain(stream_of(postgres_url, "public.*", file))
    assert replayed(file) == rows_of(postgres_url, *tables)
    with psycopg.connect(postgres_url) as connection:
        slots = connection.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()")
        assert slots.fetchone() == (1,), "a snapshot of a life that ended is gone"


def kill_lives(count: int, begin: Callable[[], Popen[bytes]], file: Path, seed: int) -> int:
    """Begin and kill a stream so many times, and return how many of its lives had written something.

    Every third one is killed at any moment of its first seconds, the others soon after they have written into the target.
    """
    chance, wrote = Random(seed), 0  # noqa: S311 - repeatable, not secret
    for number in range(count):
        before, life = _stamps(file), begin()
        if number % 3 == 0:
            time.sleep(chance.uniform(0.5, 4))
        else:
            deadline = time.monotonic() + 60
            while _stamps(file) == before and time.monotonic() < deadline:
                assert life.poll() is None, "the stream has ended by itself"
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 1))
        life.kill()
        assert life.wait(30) == -signal.SIGKILL
        wrote += _stamps(file) != before
    return wrote


def _stamps(file: Path) -> list[int]:
    """Return when the files of a target were last written."""
    return [one.stat().st_mtime_ns for one in (file, file.with_name(f"{file.name}-wal")) if one.exists()]


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_many_lives_of_a_stream_end_with_the_rows_of_the_source(postgres_url: str, tmp_path: Path) -> None:
    tables = ("public.a", "public.b")
    create(postgres_url, *tables)
    file = tmp_path / "t.db"
    with Workload(postgres_url, tables, seed=5) as work:
        wrote = kill_lives(60, lambda: begin_life(postgres_url, "public.*", file, "", ends=False), file, seed=11)
    drain(stream_of(postgres_url, "public.*", file))
    assert wrote >= 40, "most lives are killed after they have begun to write"
    assert work.transactions > 100
    assert replayed(file) == rows_of(postgres_url, *tables), "every change is there once"


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_many_lives_of_a_mirror_end_with_the_rows_of_the_source(mysql_url: str, tmp_path: Path) -> None:
    source, file = Source(mysql_url), tmp_path / "t.db"
    with closing(source):
        for number in range(60):
            source.run("INSERT INTO things VALUES (%s, 0, %s)", number, "y" * 5000)
        with Work(source, seed=5) as work:
            wrote = kill_lives(30, lambda: begin_mirror(mysql_url, file, "", ends=False), file, seed=12)
        drain(source.stream(file))
        assert wrote >= 20, "most lives are killed after they have begun to write"
        assert work.transactions > 100
        assert mirrored(file) == source.rows()


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_many_lives_of_a_log_have_every_change_once(mysql_url: str, tmp_path: Path) -> None:
    source, file = Source(mysql_url), tmp_path / "t.db"
    with closing(source):
        source.run("INSERT INTO things VALUES (1, 0, 'a')")
        drain(stream_of(mysql_url, "things", file))  # the rows of MySQL may come again as changes, the changes may not
        with Work(source, seed=6):
            kill_lives(30, lambda: begin_life(mysql_url, "things", file, "", ends=False), file, seed=13)
        drain(stream_of(mysql_url, "things", file))
        assert (
            sorted(tuple(row[name] for name in ("id", "n", "big")) for row in replayed(file).values()) == source.rows()
        )


@pytest.mark.deep
def test_a_log_that_the_server_removed_is_said_and_the_rows_are_read_again(tmp_path: Path) -> None:
    server = PostgresServer()
    server.start()
    try:
        url, file = server.create_database(), tmp_path / "t.db"
        create(url, "public.a")
        stream = stream_of(url, "public.a", file)
        drain(stream)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE TABLE filler (x text)")
            for _ in range(6):
                connection.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
                connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
            (status,) = connection.execute("SELECT wal_status FROM pg_replication_slots").fetchone() or ("",)
            assert status == "lost"
        with pytest.raises(StreamLostError, match="the server removed its log"):
            drain(stream)
        assert "removed its log" in str(stream_status(stream, StreamOptions())[0].problem)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        move_stream(stream, "earliest", StreamOptions())
        drain(stream)
        assert replayed(file) == rows_of(url, "public.a")
    finally:
        server.close()
