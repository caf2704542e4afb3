"""The control side of PostgreSQL: sessions, errors, tables and descriptions, on a real server."""

from __future__ import annotations

import pickle
import socket
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Self

import psycopg
import pytest

from ematix_flow.connect.postgres import session as postgres_session
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.connect.postgres.session import numbered
from ematix_flow.declare.connection.registry import PostgresConnection
from ematix_flow.errors import DeclareError, FlowError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.postgres.session import PostgresSession

pytestmark = pytest.mark.service


@pytest.fixture
def database(postgres_url: str) -> Postgres:
    return Postgres(PostgresConnection("pg", url=postgres_url))


@pytest.fixture
def session(database: Postgres) -> Iterator[PostgresSession]:
    with closing(database.session()) as opened:
        yield opened


# Sessions


def test_a_session_speaks_utc_waits_for_locks_and_commits_durably(session: PostgresSession) -> None:
    assert session.query("SHOW TimeZone") == [("UTC",)]
    assert session.query("SHOW lock_timeout") == [("1min",)]
    assert session.query("SHOW synchronous_commit") == [("on",)]


def test_a_role_that_gives_up_durability_gets_it_back(database: Postgres, session: PostgresSession) -> None:
    session.execute(f'ALTER DATABASE "{database.info()["dbname"]}" SET synchronous_commit = off')
    with closing(database.session()) as other:
        assert other.query("SHOW synchronous_commit") == [("on",)]


def test_execute_gives_the_rows_that_a_statement_changed(session: PostgresSession) -> None:
    assert session.execute("CREATE TABLE t (a int)") == 0
    assert session.execute("INSERT INTO t SELECT generate_series(1, 5)") == 5
    assert session.execute("UPDATE t SET a = a WHERE a > ?", (2,)) == 3
    assert session.execute("SELECT * FROM t") == 0
    assert session.execute("DELETE FROM t WHERE a = ?", (1,)) == 1


def test_placeholders_inside_quotes_stay() -> None:
    assert numbered("""SELECT ?, '?''?', "a?""?", ?""") == """SELECT $1, '?''?', "a?""?", $2"""


def test_parameters_of_every_kind_arrive(session: PostgresSession) -> None:
    values = ("it's ? %s", None, 2**62, 1.5, b"\x00\xff")
    assert session.query("SELECT ?::text, ?::text, ?::bigint, ?::float8, ?::bytea", values) == [values]


def test_a_transaction_is_all_or_nothing(session: PostgresSession) -> None:
    session.execute("CREATE TABLE t (a int)")
    session.begin()
    session.execute("INSERT INTO t VALUES (1)")
    session.rollback()
    session.rollback()
    session.begin()
    session.execute("INSERT INTO t VALUES (2)")
    session.commit()
    assert session.query("SELECT a FROM t") == [(2,)]


def test_a_killed_connection_is_transient_and_can_still_be_rolled_back(database: Postgres) -> None:
    with closing(database.session()) as victim, closing(database.session()) as killer:
        victim.begin()
        killer.query("SELECT pg_terminate_backend(?)", (victim.connection.info.backend_pid,))
        with pytest.raises(psycopg.Error) as caught:
            victim.query("SELECT 1")
        assert database.is_transient(caught.value)
        assert isinstance(caught.value, database.errors)
        victim.rollback()


def test_a_lock_that_another_session_holds_ends_as_a_transient_error(database: Postgres) -> None:
    with closing(database.session()) as holder, closing(database.session()) as waiter:
        holder.execute("CREATE TABLE t (a int PRIMARY KEY)")
        holder.begin()
        holder.execute("LOCK TABLE t")
        waiter.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.Error) as caught:
            waiter.execute("INSERT INTO t VALUES (1)")
    assert database.is_transient(caught.value)
    assert not database.is_duplicate_key(caught.value)


def test_a_duplicate_key_is_known_and_not_transient(database: Postgres, session: PostgresSession) -> None:
    session.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    with pytest.raises(psycopg.Error) as caught:
        session.execute("INSERT INTO t VALUES (?)", (1,))
    assert database.is_duplicate_key(caught.value)
    assert not database.is_transient(caught.value)


def test_an_answer_that_never_comes_ends_the_wait(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_session, "LIVENESS_SECONDS", 0.1)
    with _MutableProxy(postgres_url) as proxy, closing(proxy.database.session()) as session:
        session.execute("CREATE TABLE t (a int)")
        session.begin()
        session.execute("INSERT INTO t VALUES (1)")
        proxy.mute_answers()
        with pytest.raises(psycopg.Error) as caught:
            session.commit()
        assert proxy.database.is_transient(caught.value)
        with closing(proxy.database.session()) as other:
            assert other.query("SELECT a FROM t") == [(1,)]


@pytest.mark.parametrize("backend", [None, (2**31 - 1, "another server's start")])
def test_what_cannot_be_asked_after_is_not_cut(
    session: PostgresSession, monkeypatch: pytest.MonkeyPatch, backend: tuple[int, str] | None
) -> None:
    monkeypatch.setattr(postgres_session, "LIVENESS_SECONDS", 0.05)
    session.backend = backend
    assert session.query("SELECT 1 FROM pg_sleep(1)") == [(1,)]


def test_a_long_statement_is_not_cut(session: PostgresSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_session, "LIVENESS_SECONDS", 0.05)
    assert session.query("SELECT 1 FROM pg_sleep(0.6)") == [(1,)]


# Connections


def test_a_wrong_password_is_final_and_stays_secret(postgres_url: str) -> None:
    database = Postgres(PostgresConnection("pg", url=postgres_url.replace("7Q2x", "wrong-7Q2y")))
    with pytest.raises(psycopg.OperationalError) as caught:
        database.session()
    assert not database.is_transient(caught.value)
    with pytest.raises(FlowError, match="password authentication failed") as probed:
        database.probe()
    assert "7Q2y" not in f"{caught.value}{probed.value}{database!r}"


def test_a_closed_port_is_transient() -> None:
    database = Postgres(PostgresConnection("pg", url="postgresql://u:pw@127.0.0.1:1/x"))
    with pytest.raises(TransientError, match="Connection refused"):
        database.session()


@pytest.mark.parametrize("url", ["postgresql://u:canary-1@[h/x", "host=h password=canary-1 x canary-1"])
def test_an_unreadable_url_is_not_repeated(url: str) -> None:
    with pytest.raises(DeclareError, match="cannot be used") as caught:
        Postgres(PostgresConnection("pg", url=url)).conninfo()
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_system_is_cheap_to_send_and_shows_no_secret(database: Postgres) -> None:
    copy = pickle.loads(pickle.dumps(database))  # noqa: S301 - our own bytes
    assert copy.identity() == database.identity()
    assert "canary" not in f"{database!r}{database.info()}{database.identity()}"
    assert database.info()["host"] == "127.0.0.1"
    assert database.probe().startswith("PostgreSQL 1")


def test_databases_and_users_tell_connections_apart() -> None:
    same = Postgres(PostgresConnection("a", url="postgresql://u:1@h/x")).identity()
    assert Postgres(PostgresConnection("b", url="postgresql://u:2@h:5432/x")).identity() == same
    assert Postgres(PostgresConnection("b", url="postgresql://u:1@h/y")).identity() != same
    assert Postgres(PostgresConnection("b", url="postgresql://w:1@h/x")).identity() != same
    by_service = [Postgres(PostgresConnection("s", url=f"postgresql:///?service={name}")).identity() for name in "ab"]
    assert by_service[0] != by_service[1]


def test_deadlines_are_set_unless_the_url_says_otherwise() -> None:
    conninfo = Postgres(PostgresConnection("a", url="postgresql://h/x?connect_timeout=3")).conninfo()
    assert "connect_timeout=3" in conninfo
    assert "tcp_user_timeout=60000" in conninfo


class _MutableProxy:
    """Stands between client and server; once muted, the answers of connections made before are swallowed."""

    def __init__(self, url: str) -> None:
        self._server = Postgres(PostgresConnection("pg", url=url)).info()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._muted = threading.Event()
        port = self._listener.getsockname()[1]
        self.database = Postgres(PostgresConnection("pg", url=url.replace(f":{self._server['port']}/", f":{port}/")))
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (self._listener, *self._open):
            handle.close()

    def mute_answers(self) -> None:
        self._muted.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", int(str(self._server["port"]))))
                self._open += [client, server]
                silent = threading.Event() if self._muted.is_set() else self._muted
                threading.Thread(target=_pump, args=(client, server, threading.Event()), daemon=True).start()
                threading.Thread(target=_pump, args=(server, client, silent), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, silent: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if not silent.is_set():
                sink.sendall(data)
