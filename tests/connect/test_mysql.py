"""MySQL: connections that show no secret, and sessions that cannot commit by accident."""

from __future__ import annotations

import pickle
import socket
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pymysql
import pytest

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.mysql import protocol as mysql_wire
from ematix_flow.connect.mysql.database import MySQL
from ematix_flow.declare.connection.registry import MySQLConnection
from ematix_flow.errors import CommitError, DeclareError, RunError, TransientError
from ematix_flow.plan.sql.render import render, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.mysql.session import MySQLSession

pytestmark = pytest.mark.service


@pytest.fixture
def database(mysql_url: str) -> MySQL:
    return MySQL(MySQLConnection("shop", url=mysql_url))


@pytest.fixture
def session(database: MySQL) -> Iterator[MySQLSession]:
    session = database.session()
    yield session
    session.close()


# --- connecting --------------------------------------------------------------------------------------------------------


def test_a_system_is_cheap_can_be_pickled_and_shows_no_secret(mysql_url: str) -> None:
    system = MySQL(MySQLConnection("shop", url="mysql://u:s3cret%40@nowhere.invalid:3307/db?ssl-mode=required"))
    copy = pickle.loads(pickle.dumps(system))  # noqa: S301
    assert copy.info() == {"host": "nowhere.invalid", "port": 3307, "dbname": "db", "user": "u"}
    assert copy.identity() == system.identity()
    assert "s3cret" not in repr(system) + repr(vars(system)) + str(system.info())


def test_servers_are_told_apart_by_their_socket() -> None:
    one, other = (MySQL(MySQLConnection("m", url=f"mysql://u@localhost/db?unix_socket=/run/{n}.sock")) for n in "ab")
    assert one.identity() != other.identity()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://u:canary@h:notaport/db", "cannot be read"),
        ("mysql://u:canary@h/db?ssl_cb=x", "unknown option 'ssl_cb'"),
        ("mysql://u:canary@h/db?ssl_mode=sometimes", "unknown ssl_mode"),
    ],
)
def test_a_url_that_means_nothing_is_refused_without_showing_it(url: str, message: str) -> None:
    with pytest.raises(DeclareError, match=message) as caught:
        MySQL(MySQLConnection("shop", url=url))
    assert "canary" not in str(caught.value)


def test_a_wrong_password_is_told_without_it(mysql_url: str) -> None:
    wrong = mysql_url.replace("canary-my-4Z9k", "wrong-canary-1")
    with pytest.raises(RunError, match="Access denied") as caught:
        MySQL(MySQLConnection("shop", url=wrong)).probe()
    assert not isinstance(caught.value, TransientError)
    assert "canary" not in safe_text(caught.value) + repr(caught.value.__cause__)


def test_a_server_that_is_away_or_mute_is_a_transient_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_wire, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(TransientError, match="cannot connect"):
            MySQL(MySQLConnection("shop", url=f"mysql://u@127.0.0.1:{port}/db")).session()
    with pytest.raises(TransientError, match="cannot reach"):
        MySQL(MySQLConnection("shop", url=f"mysql://u@127.0.0.1:{port}/db")).session()


def test_the_probe_names_the_server(database: MySQL) -> None:
    assert database.probe().startswith(("MariaDB 1", "MySQL 8"))
    assert str(database.info()["dbname"]) in database.probe()


# --- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_is_strict_in_utc_and_compares_by_bytes(session: MySQLSession) -> None:
    mode, zone, names = session.query("SELECT @@sql_mode, @@time_zone, @@collation_connection")[0]
    assert "STRICT_ALL_TABLES" in mode
    assert "NO_BACKSLASH_ESCAPES" not in mode
    assert zone == "+00:00"
    assert names in ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
    assert session.query("SELECT 'a' = 'A', 'a' = 'a '") == [(0, 0)]


def test_literals_that_the_planner_renders_mean_the_same_here(session: MySQLSession) -> None:
    nasty = 'it\'s \\ a "test" %s ?\n\t\0😀'
    assert session.query(render(f"SELECT {text(nasty)}", "mysql")) == [(nasty,)]


def test_parameters_are_bound_only_outside_of_quotes(session: MySQLSession) -> None:
    east = timezone(timedelta(hours=2))
    values = ("it's \\ ?", b"\x00\xff", None, datetime(2026, 1, 1, 2, tzinfo=east), 1.5)
    sql = "SELECT '?', \"it''s ?\" AS `a?`, 'x\\'?', ?, ?, ?, CAST(? AS DATETIME(6)), ? + 0, '%s'"
    row = session.query(sql, values)[0]
    assert row == ("?", "it''s ?", "x'?", values[0], values[1], None, datetime(2026, 1, 1), 1.5, "%s")  # noqa: DTZ001
    with pytest.raises(ValueError, match="more parameters"):
        session.query("SELECT ?", (1, 2))


def test_an_update_counts_the_rows_it_matched(session: MySQLSession) -> None:
    session.execute("CREATE TABLE n (a INT)")
    assert session.execute("INSERT INTO n VALUES (1), (2), (3)") == 3
    assert session.execute("UPDATE n SET a = a WHERE a > 1") == 2
    assert session.execute("DELETE FROM n WHERE a = ?", (3,)) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE x (a INT)", "DROP TABLE n", "TRUNCATE TABLE n", "ALTER TABLE n ADD b INT", "ANALYZE TABLE n",
        "RENAME TABLE n TO m", "LOCK TABLES n WRITE", "START TRANSACTION", "BEGIN", "COMMIT", "SET autocommit = 1",
        "SET SESSION autocommit = 1", "SET @a = 1, autocommit = 1", "GRANT SELECT ON n TO x", "ROLLBACK", "FLUSH TABLES",
        "CREATE INDEX i ON n (a)", "/*! DROP TABLE n */", "-- x\nDROP TABLE n", "LOAD DATA INFILE 'x' INTO TABLE n",
    ],
)  # fmt: skip
def test_a_statement_that_would_commit_is_refused_inside_a_transaction(session: MySQLSession, sql: str) -> None:
    session.execute("CREATE TABLE n (a INT)")
    session.begin()
    session.execute("INSERT INTO n VALUES (1)")
    with pytest.raises(CommitError, match="would commit"):
        session.execute(sql)
    session.rollback()
    assert session.query("SELECT COUNT(*) FROM n") == [(0,)]


def test_row_work_is_allowed_inside_a_transaction(session: MySQLSession) -> None:
    session.execute("CREATE TABLE n (a INT)")
    session.begin()
    for sql in ("INSERT INTO n WITH x AS (SELECT 1 AS a) SELECT a FROM x", "SAVEPOINT s", "UPDATE n SET a = 2"):
        session.execute(sql)
    for sql in ("ROLLBACK TO s", "SET @x = 1", "SET SESSION innodb_lock_wait_timeout = 1", "DELETE FROM n WHERE a = 2"):
        session.execute(sql)
    assert session.query("(SELECT a FROM n)") == [(1,)]
    with pytest.raises(CommitError, match="open already"):
        session.begin()
    session.commit()
    assert session.query("SELECT a FROM n") == [(1,)]


def test_a_lock_of_another_writer_is_a_transient_error_and_all_of_the_load_is_rolled_back(database: MySQL) -> None:
    first, second = database.session(), database.session()
    first.execute("CREATE TABLE n (a INT PRIMARY KEY, b INT)")
    first.execute("INSERT INTO n VALUES (1, 0), (2, 0)")
    first.begin()
    first.execute("UPDATE n SET b = 1 WHERE a = 2")
    second.execute("SET SESSION innodb_lock_wait_timeout = 1")
    second.begin()
    second.execute("UPDATE n SET b = 5 WHERE a = 1")
    with pytest.raises(pymysql.Error) as caught:
        second.execute("UPDATE n SET b = 5 WHERE a = 2")
    assert database.is_transient(caught.value)
    second.rollback()
    first.commit()
    assert first.query("SELECT b FROM n ORDER BY a") == [(0,), (1,)]
    first.close()
    second.close()


def test_a_deadlock_is_transient(database: MySQL) -> None:
    first, second = database.session(), database.session()
    first.execute("CREATE TABLE n (a INT PRIMARY KEY, b INT)")
    first.execute("INSERT INTO n VALUES (1, 0), (2, 0)")
    for session, key in ((first, 1), (second, 2)):
        session.begin()
        session.execute("UPDATE n SET b = 1 WHERE a = ?", (key,))
    caught: list[BaseException] = []

    def cross(session: MySQLSession, key: int) -> None:
        try:
            session.execute("UPDATE n SET b = 2 WHERE a = ?", (key,))
        except pymysql.Error as error:
            caught.append(error)
            session.rollback()

    other = threading.Thread(target=cross, args=(first, 2))
    other.start()
    cross(second, 1)
    other.join()
    assert len(caught) == 1
    assert database.is_transient(caught[0])
    first.close()
    second.close()


def test_a_killed_connection_is_transient_and_can_be_rolled_back_and_closed(database: MySQL) -> None:
    victim, killer = database.session(), database.session()
    victim.execute("CREATE TABLE n (a INT)")
    victim.begin()
    victim.execute("INSERT INTO n VALUES (1)")
    killer.execute(f"KILL {victim.query('SELECT CONNECTION_ID()')[0][0]}")
    with pytest.raises(pymysql.Error) as caught:
        victim.execute("INSERT INTO n VALUES (2)")
    assert database.is_transient(caught.value)
    victim.rollback()
    victim.close()
    assert killer.query("SELECT * FROM n") == []
    killer.close()


def test_a_duplicate_key_is_told_apart(database: MySQL, session: MySQLSession) -> None:
    session.execute("CREATE TABLE n (a INT PRIMARY KEY)")
    session.execute("INSERT INTO n VALUES (1)")
    with pytest.raises(pymysql.Error) as caught:
        session.execute("INSERT INTO n VALUES (1)")
    assert database.is_duplicate_key(caught.value)
    assert not database.is_transient(caught.value)


def test_instants_are_written_in_utc(session: MySQLSession) -> None:
    at = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    session.execute("CREATE TABLE m (a DATETIME(6))")
    session.execute("INSERT INTO m VALUES (?)", (at,))
    assert session.query("SELECT CAST(a AS CHAR) FROM m") == [("2026-03-29 01:30:00.123456",)]
