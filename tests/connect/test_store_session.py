"""Bookkeeping as numbered objects: no update is lost, whoever begins from an old one is told, and tidying keeps what counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import ematix_flow
from ematix_flow.connect.metadata import session as store_session
from ematix_flow.connect.metadata.session import COMMITS, HOME, STATES, StoreSession, head_of, record_of
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.errors import OvertakenError

COUNTER = ("CREATE TABLE counter (n INTEGER)",)

INCREMENT = """
import sys
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.connect.metadata.session import StoreSession
session = StoreSession(LocalStore(sys.argv[1]), ["CREATE TABLE counter (n INTEGER)"])
for _ in range(int(sys.argv[2])):
    session.execute("UPDATE counter SET n = n + 1")
"""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "root"))


def counted(store: LocalStore) -> int:
    with closing(opened(store)) as session:
        return int(session.query("SELECT n FROM counter")[0][0])


def counting(store: LocalStore) -> StoreSession:
    session = opened(store)
    session.execute("INSERT INTO counter VALUES (0)")
    return session


def opened(store: LocalStore) -> StoreSession:
    return StoreSession(store, COUNTER)


def numbers(store: LocalStore, prefix: str) -> list[int]:
    return sorted({int(entry.key.rpartition("/")[2][:12]) for entry in store.listed(prefix)})


def age(store: LocalStore, seconds: float) -> None:
    for path in store.root.rglob("*"):
        stat = path.stat()
        os.utime(path, (stat.st_atime, stat.st_mtime - seconds))


@pytest.mark.slow
def test_processes_that_count_at_the_same_time_lose_nothing(store: LocalStore) -> None:
    counting(store).close()
    environment = {**os.environ, "PYTHONPATH": str(Path(ematix_flow.__file__).parents[1])}
    command = [sys.executable, "-c", INCREMENT, store.display_address, "25"]
    counters = [subprocess.Popen(command, env=environment) for _ in range(4)]
    assert [one.wait(60) for one in counters] == [0] * 4
    assert counted(store) == 100
    assert head_of(store).number == 101
    assert numbers(store, HOME + COMMITS) == list(range(1, 102)), "every number was given once"


def test_of_two_that_began_from_the_same_number_one_is_told_and_changes_nothing(store: LocalStore) -> None:
    first, second = counting(store), opened(store)
    for session in (first, second):
        session.begin()
    first.execute("UPDATE counter SET n = n + 1")
    second.execute("UPDATE counter SET n = n + 10")
    first.commit()
    with pytest.raises(OvertakenError, match="first"):
        second.commit()
    assert counted(store) == 1
    assert len(list(store.listed(HOME + STATES))) == 2, "the loser's state is gone"
    second.begin()
    second.execute("UPDATE counter SET n = n + 10")
    second.commit()
    assert counted(store) == 11


def test_one_who_made_other_tables_and_was_overtaken_knows_the_tables_of_the_winner(store: LocalStore) -> None:
    first, second = counting(store), opened(store)
    for session in (first, second):
        session.begin()
    first.execute("CREATE TABLE a (x TEXT, y TEXT, z TEXT)")
    second.execute("CREATE TABLE b (x INTEGER)")
    second.execute("CREATE INDEX b_x ON b (x)")
    first.commit()
    with pytest.raises(OvertakenError):
        second.commit()
    second.execute("INSERT INTO a VALUES ('1', '2', '3')")
    assert second.query("SELECT name FROM sqlite_master ORDER BY 1") == [("a",), ("counter",)]
    assert second.query("SELECT * FROM a") == [("1", "2", "3")]


def test_a_transaction_that_changed_nothing_or_was_rolled_back_leaves_no_record(store: LocalStore) -> None:
    session = counting(store)
    before = head_of(store)
    session.begin()
    session.query("SELECT * FROM counter")
    session.commit()
    session.begin()
    session.execute("UPDATE counter SET n = 7")
    session.rollback()
    session.execute("CREATE TEMP TABLE scratch (x INTEGER)")
    session.execute("INSERT INTO temp.scratch VALUES (1)")
    assert head_of(store) == before
    assert session.query("SELECT x, n FROM temp.scratch, counter") == [(1, 0)]
    session.begin()
    session.execute("CREATE TABLE other (x INTEGER)")
    session.commit()
    assert head_of(store).number == before.number + 1, "a change of the tables alone is a change"


def test_a_statement_that_fails_leaves_no_open_transaction(store: LocalStore) -> None:
    session = counting(store)
    with pytest.raises(session.connection.OperationalError):
        session.execute("UPDATE nowhere SET n = 1")
    session.execute("UPDATE counter SET n = n + 1")
    assert counted(store) == 1


def test_tidying_keeps_the_newest_records_and_states_and_the_first_record(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_session, "RETAINED", {STATES: (3, 0.0), COMMITS: (5, 3600.0)})
    session = counting(store)
    for _ in range(31):
        session.execute("UPDATE counter SET n = n + 1")
    assert numbers(store, HOME + COMMITS) == list(range(1, 33)), "records are kept for an hour in any case"
    assert numbers(store, HOME + STATES) == [30, 31, 32]
    age(store, 4000)
    for _ in range(16):
        session.execute("UPDATE counter SET n = n + 1")
    assert numbers(store, HOME + COMMITS) == [1, *range(33, 49)], "those of this hour"
    assert record_of(store, 48)["state"] == head_of(store).state
    assert counted(store) == 47


def test_drafts_of_killed_sessions_are_tidied_away_in_time(store: LocalStore) -> None:
    session = counting(store)
    old, new = (store.root / HOME / COMMITS / f".{name}" for name in ("old", "new"))
    for draft in (old, new):
        draft.write_bytes(b"half")
    os.utime(old, (0, 0))
    session.clean_up()
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("behind", [0, 1, 20])
def test_a_session_whose_base_was_tidied_away_is_told_so(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    monkeypatch.setattr(store_session, "RETAINED", {STATES: (3, 0.0), COMMITS: (5, 0.0)})
    stale = opened(store)
    if not behind:
        stale.begin()
    session = counting(store)
    for _ in range(behind - 1):
        session.execute("UPDATE counter SET n = n + 1")
    if behind:
        stale.begin()
    assert stale.head.number == behind
    stale.execute("INSERT INTO counter VALUES (1000)")
    for _ in range(64):
        session.execute("UPDATE counter SET n = n + 1")
    with pytest.raises(OvertakenError):
        stale.commit()
    assert counted(store) == max(behind - 1, 0) + 64
    assert min(numbers(store, HOME + COMMITS)[1:]) > 50, "no record was left behind the others"
    stale.execute("UPDATE counter SET n = n + 1")
    assert counted(store) == max(behind - 1, 0) + 65


def test_a_record_of_a_newer_version_is_refused(store: LocalStore) -> None:
    counting(store).close()
    path = store.root / HOME / COMMITS / "000000000002.json"
    path.write_text(json.dumps({**record_of(store, 1), "format": 99}))
    with pytest.raises(Exception, match="newer version"):
        opened(store)


def test_a_state_that_is_gone_is_an_error_and_no_empty_database(store: LocalStore) -> None:
    counting(store).close()
    store.remove_below(HOME + STATES)
    with pytest.raises(Exception, match="state of commit 1"):
        opened(store)
