from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from tests.depth import deep
from tests.services import emulators, programs
from tests.services.azure import AzureServer
from tests.services.gcs import GcsServer
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.s3 import S3Server
from tests.services.server import ServerError, free_port
from tests.services.standalone import hiding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.server import DatabaseServer, Server

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def session(url: str) -> Iterator[Any]:
    """Return a cursor on the database behind a URL, committed at the end."""
    parts = urlsplit(url)
    if parts.scheme == "postgresql":
        with psycopg.connect(url) as connection:
            yield connection.cursor()
        return
    mysql = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 0,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
    )
    with mysql, mysql.cursor() as cursor:
        yield cursor
        mysql.commit()


def test_a_cluster_whose_executors_would_see_our_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="cannot have a disk of their own: there is no unshare"):
        hiding.__wrapped__()
    (tmp_path / "unshare").write_text("#!/bin/sh\necho it is forbidden >&2; exit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    with pytest.raises(ServerError, match="it is forbidden; allow this user mount namespaces"):
        hiding.__wrapped__()


def rows(url: str) -> list[tuple[Any, ...]]:
    with session(url) as cursor:
        cursor.execute("SELECT n FROM kept ORDER BY n")
        return list(cursor.fetchall())


def crash_amid_a_transaction(server: DatabaseServer, url: str) -> None:
    with session(url) as cursor:
        cursor.execute("INSERT INTO kept VALUES (3)")
        server.crash()
        cursor.execute("SELECT 1")


@pytest.fixture(params=[PostgresServer, MariaDBServer], ids=["postgres", "mariadb"])
def kind(request: pytest.FixtureRequest) -> type[DatabaseServer]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.service
@pytest.mark.crash
@pytest.mark.deep  # of the servers, not of what talks to them
@pytest.mark.parametrize("durable", [False, True], ids=["quick", "durable"])
def test_committed_rows_survive_a_crash_and_open_transactions_do_not(kind: type[DatabaseServer], durable: bool) -> None:
    server = kind(durable=durable)
    try:
        server.start()
        url = server.create_database()
        with session(url) as cursor:
            cursor.execute("CREATE TABLE kept (n int)")
            cursor.execute("INSERT INTO kept VALUES (1), (2)")
        with pytest.raises((psycopg.Error, pymysql.Error)):
            crash_amid_a_transaction(server, url)
        assert not server.running
        server.start()
        assert rows(url) == [(1,), (2,)]
    finally:
        server.close()
    assert not server.folder.exists()


@pytest.mark.service
def test_data_stays_over_an_orderly_stop(kind: type[DatabaseServer]) -> None:
    server = kind()
    try:
        server.start()
        url = server.create_database()
        with session(url) as cursor:
            cursor.execute("CREATE TABLE kept (n int)")
            cursor.execute("INSERT INTO kept VALUES (1)")
        server.stop()
        assert not server.running
        server.start()
        assert rows(url) == [(1,)]
    finally:
        server.close()


@pytest.mark.service
def test_a_server_that_cannot_start_shows_its_log(kind: type[DatabaseServer]) -> None:
    server = kind()
    try:
        server.start()
        server.stop()
        system_files = [server.data / "PG_VERSION", server.data / "ibdata1"]
        for file in system_files:
            if file.exists():
                file.write_bytes(b"rubbish\n")
        with pytest.raises(ServerError, match=r"(?s)did not start on port \d+:\n.*\w"):
            server.start()
    finally:
        server.close()


@pytest.mark.service
@pytest.mark.crash
@pytest.mark.parametrize("kind", [PostgresServer, deep(MariaDBServer), deep(RabbitMQServer)])
def test_no_server_outlives_a_killed_test_process(kind: type[Server]) -> None:
    code = (
        f"from {kind.__module__} import {kind.__name__} as kind\n"
        "server = kind(); server.start()\n"
        "print(server._process.pid, server.port, server.folder, flush=True); input()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pid, port, folder = owner.stdout.readline().split()
        os.kill(int(pid), 0)
        owner.send_signal(signal.SIGKILL)
    # The program that was started may have been the launcher only: nobody may listen any more.
    watcher_done = [
        "sh",
        "-c",
        'while kill -0 "$1" 2>/dev/null || [ -e "$2" ] || "$3" -c "$4" "$5" 2>/dev/null; do sleep 0.1; done',
        "wait",
        pid,
        folder,
        sys.executable,
        "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 1)",
        port,
    ]
    subprocess.run(watcher_done, check=True, timeout=60)


@pytest.mark.service
def test_each_fixture_database_is_empty_and_its_own(postgres_url: str, mysql_url: str) -> None:
    for url in (postgres_url, mysql_url):
        with session(url) as cursor:
            cursor.execute("CREATE TABLE kept (n int)")
            cursor.execute("SELECT count(*) FROM kept")
            assert cursor.fetchall() in ([(0,)], ((0,),))


def test_a_missing_server_is_named_with_the_command_that_installs_it() -> None:
    message = str(programs.MissingServerError("PostgreSQL", "MariaDB"))
    assert "PostgreSQL and MariaDB" in message
    assert programs.install_command(["PostgreSQL", "MariaDB"]) in message


def test_a_missing_s3_service_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.services.s3.find_spec", lambda _: None)
    server = S3Server()
    try:
        with pytest.raises(programs.MissingServerError, match=r"not installed: S3.*run: make setup"):
            server.start()
    finally:
        server.close()


@pytest.mark.parametrize(("kind", "name"), [(AzureServer, "Azurite"), (GcsServer, "fake-gcs-server")])
def test_a_missing_stand_in_is_named_with_the_command_that_installs_it(
    kind: type[Server], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulators, "HOME", tmp_path)
    monkeypatch.setattr(emulators, "_SEARCH", str(tmp_path))
    server = kind()
    try:
        with pytest.raises(programs.MissingServerError, match=rf"not installed: {name}.*run: make services"):
            server.start()
    finally:
        server.close()


def test_no_service_starts_during_an_installation_and_the_policy_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(programs, "_POLICY", policy)
    with suppress(RuntimeError), programs._no_service_start():
        assert subprocess.run([policy], check=False).returncode == 101
        raise RuntimeError
    assert not policy.exists()
    policy.write_text("#!/bin/sh\nexit 0\n")
    policy.chmod(0o700)
    with programs._no_service_start():
        assert subprocess.run([policy], check=False).returncode == 101
    assert (policy.read_text(), policy.stat().st_mode & 0o777) == ("#!/bin/sh\nexit 0\n", 0o700)


def test_processes_of_tests_are_given_ports_of_their_own() -> None:
    program = "from tests.services.server import free_port; print(*(free_port() for _ in range(2000))); input()"
    others = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        for _ in range(2)
    ]
    given = {free_port() for _ in range(2000)}
    for other in others:
        assert other.stdout is not None
        ports = other.stdout.readline().split()
        assert len(given | {int(port) for port in ports}) == len(given) + 2000
        given |= {int(port) for port in ports}
    for other in others:
        other.communicate(b"\n")
        assert other.returncode == 0
