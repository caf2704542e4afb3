"""Streams whose server is another one than before, or has gone back: what was lost is said, and reading again makes it right."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import StreamLostError
from ematix_flow.events import BatchLoaded, StreamWarning
from ematix_flow.observe.bus import Bus
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.streams.change_sources import Source, mirrored
from tests.streams.feeds import drain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.server import DatabaseServer

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]


@pytest.fixture
def own_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Return a server that no other test reads."""
    server: DatabaseServer = request.param()
    server.start()
    try:
        server.execute("CREATE DATABASE shop")
        yield server
    finally:
        server.close()


def read_again(stream: Any, source: Source, file: Path) -> None:
    """Let an operator have the rows read again, and the source change once more."""
    move_stream(stream, "earliest", StreamOptions())
    drain(stream)
    assert mirrored(file) == source.rows()
    source.run("UPDATE things SET n = 888 WHERE id = 1")
    source.run("DELETE FROM things WHERE id = 2")
    drain(stream)
    assert mirrored(file) == source.rows()


@pytest.mark.parametrize("own_server", [PostgresServer], indirect=True)
def test_another_server_whose_log_is_younger(postgres_url: str, own_server: PostgresServer, tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with closing(Source(postgres_url)) as old:
        for number in range(6):
            old.run("INSERT INTO things VALUES (%s, 0, 'old')", number)
            old.run("SELECT pg_switch_wal()")
        drain(old.stream(file))
        old.run("UPDATE things SET n = 10")
        drain(old.stream(file))
        end = old.run("SELECT pg_current_wal_lsn()::text::pg_lsn - '0/0'")
    with closing(Source(own_server.url("shop"))) as source:
        source.run("INSERT INTO things VALUES (1, 1, 'new'), (2, 777, 'new')")
        assert source.run("SELECT pg_current_wal_lsn()::text::pg_lsn - '0/0'") < end
        stream = source.stream(file)
        with pytest.raises(StreamLostError, match="another server"):
            drain(stream)
        read_again(stream, source, file)


@pytest.mark.parametrize("own_server", [PostgresServer], indirect=True)
def test_a_server_that_is_restored_from_a_copy(own_server: PostgresServer, tmp_path: Path) -> None:
    file, copy = tmp_path / "t.db", own_server.folder / "copy"
    with closing(Source(own_server.url("shop"))) as source:
        source.run("INSERT INTO things VALUES (1, 1, 'a'), (2, 2, 'b')")
        stream = source.stream(file)
        drain(stream)
    own_server.stop()
    subprocess.run(["cp", "-a", own_server.data, copy], check=True)
    own_server.start()
    with closing(Source(own_server.url("shop"), create=False)) as source:
        source.run("UPDATE things SET n = 50 WHERE id = 1")
        source.run("INSERT INTO things VALUES (3, 3, 'c')")
        drain(stream)
    own_server.stop()
    shutil.rmtree(own_server.data)
    subprocess.run(["cp", "-a", copy, own_server.data], check=True)
    own_server.start()
    with pytest.raises(StreamLostError, match="restored from a copy"):
        drain(stream)
    (status,) = stream_status(stream, StreamOptions())
    assert status.problem is not None
    assert "was read up to" in status.problem
    with closing(Source(own_server.url("shop"), create=False)) as source:
        read_again(stream, source, file)


@pytest.mark.parametrize("own_server", [MariaDBServer], indirect=True)
def test_a_binary_log_that_begins_anew(own_server: MariaDBServer, tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with closing(Source(own_server.url("shop"))) as source:
        source.run("FLUSH BINARY LOGS")
        source.run("INSERT INTO things VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
        stream = source.stream(file)
        drain(stream)
        source.run("UPDATE things SET n = n + 10")
        drain(stream)
        source.run("RESET MASTER")
        source.run("DELETE FROM things WHERE id = 3")
        with pytest.raises(StreamLostError, match="has removed its log"):
            drain(stream)
        read_again(stream, source, file)


def test_a_log_that_is_read_again_from_an_earlier_position_changes_nothing(mysql_url: str, tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with closing(Source(mysql_url)) as source:
        source.run("INSERT INTO things VALUES (1, 1, 'a')")
        stream = source.stream(file)
        drain(stream)
        move_stream(stream, "earliest", StreamOptions())
        drain(stream)
        (before,) = stream_status(stream, StreamOptions())
        for number in range(5):
            source.run("UPDATE things SET n = %s", number)
        drain(stream)
        chosen = {name: value for name, value in (before.position or {}).items() if name in ("file", "pos")}
        move_stream(stream, json.dumps(chosen), StreamOptions())
        bus, batches = Bus(), []
        bus.subscribe(lambda one: batches.append(one.counts.repeated) if isinstance(one, BatchLoaded) else None)
        run_stream(stream, StreamOptions(available_now=True, bus=bus))
        assert batches == [5]
        source.run("UPDATE things SET n = 77")
        drain(stream)
        assert mirrored(file) == source.rows() == [(1, 77, "a")]


def test_what_the_log_does_not_say_is_warned_of_when_a_stream_begins(mysql_url: str, tmp_path: Path) -> None:
    bus, warnings = Bus(), []
    bus.subscribe(lambda one: warnings.append(one.message) if isinstance(one, StreamWarning) else None)
    with closing(Source(mysql_url)) as source:
        stream = source.stream(tmp_path / "t.db")
        run_stream(stream, StreamOptions(available_now=True, bus=bus))
        assert warnings == []
        source.run("CREATE TABLE parents (id bigint PRIMARY KEY)")
        source.run(
            "ALTER TABLE things ADD CONSTRAINT of_parents FOREIGN KEY (n) REFERENCES parents (id) ON DELETE CASCADE"
        )
        run_stream(stream, StreamOptions(available_now=True, bus=bus))
    (warning,) = warnings
    assert warning.startswith("foreign key of_parents of ")
    assert "(ON DELETE CASCADE, ON UPDATE RESTRICT)" in warning
