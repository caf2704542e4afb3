"""SQLite beyond the contract of all databases: names, locks, memory and crashes, on real files."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.base import retry
from ematix_flow.connect.base.columns import ColumnSchema, TableName
from ematix_flow.connect.base.session import Split
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.sqlite import session as sqlite_session
from ematix_flow.connect.sqlite.database import SQLite
from ematix_flow.declare.connection.registry import SQLiteConnection
from ematix_flow.declare.table.types import BigInt, Integer, SmallInt
from ematix_flow.errors import TransientError
from ematix_flow.plan.sql.ddl import ColumnDefinition, TableDefinition, create_table_sql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.connect.sqlite.session import SQLiteSession

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""

KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 2")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE t SET x = x || 'changed'")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def database(sqlite_path: Path) -> SQLite:
    return SQLite(SQLiteConnection("lite", path=str(sqlite_path)))


@pytest.fixture
def session(database: SQLite) -> Iterator[SQLiteSession]:
    with closing(database.session()) as opened:
        yield opened


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_session, "LOCK_WAIT_SECONDS", 0.05)


@pytest.fixture
def holder(sqlite_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a process that has locked the file until it reads a line."""
    command = [sys.executable, "-c", HOLDER, str(sqlite_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_schema_becomes_a_prefix(database: SQLite) -> None:
    assert database.table_name("main", "events") == database.table_name("", "events") == TableName("", "events")
    assert database.table_name("analytics", "events") == TableName("", "analytics_events")
    assert database.metadata_table("ledger") == TableName("", "ematix_flow_ledger")


def test_every_connection_knows_our_functions(database: SQLite, session: SQLiteSession) -> None:
    sql = "SELECT flow_sha256('é'), flow_float_bits(0.1), flow_numeric_text('1234567890123456789012345678.5', 2)"
    expected = [(hashlib.sha256("é".encode()).digest(), "3fb999999999999a", "1234567890123456789012345678.50")]
    assert session.query(sql) == expected
    (batch,) = database.read(Split("SELECT flow_float_bits(0.1) AS bits"))
    assert batch.to_pylist() == [{"bits": "3fb999999999999a"}]


def test_the_file_is_written_durably_and_never_begins_a_transaction_by_itself(session: SQLiteSession) -> None:
    assert session.query("PRAGMA synchronous") == [(2,)]
    assert session.query("PRAGMA busy_timeout") == [(30_000,)]
    session.execute("CREATE TABLE t (x)")
    session.execute("INSERT INTO t VALUES (1)")
    assert not session.connection.in_transaction


def test_rows_are_counted_also_after_with(session: SQLiteSession) -> None:
    session.execute("CREATE TABLE t (x)")
    assert session.execute("WITH n (x) AS (VALUES (1), (2)) INSERT INTO t SELECT x FROM n") == 2
    assert session.execute("CREATE TABLE u (x)") == 0


def test_a_lock_is_waited_for(session: SQLiteSession, holder: subprocess.Popen[str]) -> None:
    done: list[int] = []
    thread = threading.Thread(target=lambda: (session.begin(), done.append(1), session.rollback()))  # type: ignore[func-returns-value]
    thread.start()
    assert not done
    holder.communicate("go\n")
    thread.join(25)
    assert done == [1]


def test_a_lock_that_stays_is_a_transient_error(
    impatient: None, database: SQLite, session: SQLiteSession, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(TransientError, match="locked by another process"):
        session.begin()
    with pytest.raises(sqlite3.OperationalError) as locked:
        session.query("SELECT * FROM sqlite_master")
    assert database.is_transient(locked.value)
    with pytest.raises(TransientError, match="locked by another process"):
        database.session()


def test_a_reader_is_waited_for_before_the_journal_changes(
    impatient: None, database: SQLite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(database.session()) as session, closing(database.session()) as reader:
        session.execute("CREATE TABLE t AS VALUES (1), (2)")
        cursor = reader.connection.execute("SELECT * FROM t")
        cursor.fetchone()
        waits: list[float] = []
        monkeypatch.setattr(retry, "_wait", lambda seconds, *_: (waits.append(seconds), cursor.close()))
        session.keep_write_ahead_log()
        assert len(waits) == 1
        assert session.query("PRAGMA journal_mode") == [("wal",)]


def test_a_file_that_is_always_read_keeps_its_journal(
    impatient: None, database: SQLite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_session, "SQLITE_JOURNAL", replace(retry.SQLITE_JOURNAL, attempts=2))
    with closing(database.session()) as session, closing(database.session()) as reader:
        session.execute("CREATE TABLE t AS VALUES (1), (2)")
        cursor = reader.connection.execute("SELECT * FROM t")
        cursor.fetchone()
        session.keep_write_ahead_log()
        assert session.query("PRAGMA journal_mode") == [("delete",)]
        cursor.close()
        session.execute("INSERT INTO t VALUES (3)")
        session.close()
        with pytest.raises(sqlite3.ProgrammingError):  # not a lock, and no reason to go on
            session.keep_write_ahead_log()


def test_a_commit_that_readers_prevent_is_undone_and_gives_the_lock_back(impatient: None, database: SQLite) -> None:
    with closing(database.session()) as writer, closing(database.session()) as reader:
        writer.execute("CREATE TABLE t (x)")
        writer.execute("INSERT INTO t VALUES (1), (2)")
        cursor = reader.connection.execute("SELECT x FROM t")
        cursor.fetchone()
        writer.begin()
        writer.execute("DELETE FROM t")
        with pytest.raises(sqlite3.OperationalError) as busy:
            writer.commit()
        assert database.is_transient(busy.value)
        assert not writer.connection.in_transaction
        cursor.close()
        reader.begin()
        assert reader.query("SELECT COUNT(*) FROM t") == [(2,)]


def test_a_journal_that_a_killed_writer_left_is_rolled_back(
    database: SQLite, session: SQLiteSession, sqlite_path: Path
) -> None:
    session.execute("CREATE TABLE t (x)")
    session.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO t SELECT printf('%0200d', i) FROM n"
    )
    ended = subprocess.run([sys.executable, "-c", KILLED, str(sqlite_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert sqlite_path.with_name(sqlite_path.name + "-journal").stat().st_size > 0
    (batch,) = database.read(Split("SELECT COUNT(*) AS n, MAX(length(x)) AS longest FROM t"))
    assert batch.to_pylist() == [{"n": 5000, "longest": 200}]


def test_two_sessions_share_a_database_in_memory(database: SQLite) -> None:
    memory = SQLite(SQLiteConnection("shared name", path=":memory:"))
    other = SQLite(SQLiteConnection("other", path=":memory:"))
    with closing(memory.session()) as one, closing(memory.session()) as two, closing(other.session()) as three:
        one.execute("CREATE TABLE t (x)")
        one.execute("INSERT INTO t VALUES (1)")
        assert two.query("SELECT x FROM t") == [(1,)]
        assert three.query("SELECT COUNT(*) FROM sqlite_master") == [(0,)]
        one.begin()
        one.execute("DELETE FROM t")
        one.rollback()
        assert two.query("SELECT x FROM t") == [(1,)]
    assert memory.identity() not in (other.identity(), database.identity())


def test_tasks_read_a_copy_of_a_database_in_memory() -> None:
    memory = SQLite(SQLiteConnection("copied", path=":memory:"))
    with closing(memory.session()) as session:
        session.execute("CREATE TABLE t (x)")
        session.execute("INSERT INTO t VALUES (1)")
        opened = memory.open_read(session, "SELECT x FROM t", 4)
        (split,) = opened.splits
        session.execute("DELETE FROM t")
        assert opened.resources is not None
        with opened.resources:
            assert [batch.to_pylist() for batch in memory.read(split)] == [[{"x": 1}]]
        with pytest.raises(sqlite3.OperationalError):
            list(memory.read(split))


def test_looking_creates_no_file(database: SQLite, sqlite_path: Path) -> None:
    assert not database.exists()
    with pytest.raises(sqlite3.OperationalError):
        database.read_only_session()
    assert not sqlite_path.exists()
    assert "0 tables" in database.probe()
    with closing(database.read_only_session()) as session:
        assert session.query("SELECT 1") == [(1,)]


def test_a_file_that_is_no_database_is_an_error(database: SQLite, sqlite_path: Path) -> None:
    sqlite_path.write_text("this is not a database, and it is long enough to be looked at" * 20)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        database.probe()


def test_tables_that_others_made_are_recognised(database: SQLite, session: SQLiteSession) -> None:
    session.execute("CREATE TABLE Mine (id INTEGER PRIMARY KEY, a TEXT UNIQUE, b, c INT NOT NULL)")
    session.execute("CREATE UNIQUE INDEX both ON mine (b, a)")
    session.execute("CREATE UNIQUE INDEX some ON mine (c) WHERE c > 0")
    session.execute("CREATE UNIQUE INDEX computed ON mine (lower(a))")
    existing = database.find_table(session, TableName("", "mine"))
    assert existing is not None
    assert existing.columns[0] == ColumnSchema("id", "INTEGER", nullable=False)
    assert existing.columns[2] == ColumnSchema("b", "no type", nullable=True)
    assert existing.primary_key == ("id",)
    assert sorted(existing.unique) == [("a",), ("b", "a")]
    for number in (SmallInt(), Integer(), BigInt()):
        assert database.same_type("INTEGER", database.ddl_type(number))
    assert not database.same_type("INT", "BIGINT")


def test_views_cannot_be_loaded(database: SQLite, session: SQLiteSession) -> None:
    session.execute("CREATE VIEW v AS SELECT 1 AS x")
    existing = database.find_table(session, TableName("", "v"))
    assert existing is not None
    assert "view" in existing.problem


def test_whole_numbers_grow_in_place_and_every_other_connection_sees_it(sqlite_path: Path) -> None:
    database = SQLite(SQLiteConnection(name="target", path=str(sqlite_path)))
    definition = TableDefinition(
        TableName("", "odd 'name'"),
        (ColumnDefinition(StageColumn('n"1', Integer()), nullable=True), ColumnDefinition(StageColumn("m", SmallInt()), nullable=False)),
        (),
        (),
    )  # fmt: skip
    with closing(database.session()) as session, closing(database.session()) as other:
        session.execute(create_table_sql(definition, database))
        session.execute('CREATE INDEX by_n ON "odd \'name\'" ("n""1")')
        other.execute("INSERT INTO \"odd 'name'\" VALUES (1, 1)")
        for column, nullable in (('"n""1"', True), ('"m"', False)):
            session.begin()
            session.execute(database.alter_type_sql("\"odd 'name'\"", column, "BIGINT", nullable=nullable))
            session.commit()
        other.execute("INSERT INTO \"odd 'name'\" VALUES (1099511627776, 1099511627776)")
        with pytest.raises(sqlite3.IntegrityError):
            other.execute("INSERT INTO \"odd 'name'\" VALUES ('word', 1)")
        existing = database.find_table(other, definition.place)
        assert existing is not None
        assert [column.type for column in existing.columns] == ["BIGINT", "BIGINT"]
        assert other.query("PRAGMA integrity_check") == [("ok",)]


def test_a_whole_number_that_nothing_bounds_is_wide_enough_for_every_declaration(sqlite_path: Path) -> None:
    database = SQLite(SQLiteConnection(name="target", path=str(sqlite_path)))
    with closing(database.session()) as session:
        session.execute("CREATE TABLE theirs (a INT, b SMALLINT NOT NULL, c BIGINT)")
        existing = database.find_table(session, TableName("", "theirs"))
    assert existing is not None
    assert all(
        database.same_type(c.type, type_name) for c in existing.columns for type_name in ("SMALLINT", "INT", "BIGINT")
    )
