"""Commits to a lake table and to its bookkeeping that happen together: the table's own commit decides, the books follow.

A transaction holds a lock: an object that says which commit comes next and whose age shows that its owner lives.
Before rows change, the books as they will be are written beside it. Whoever finds the lock of a dead owner asks the
table whether that change was made. If it was, the books are taken over; if not, the table is told never to make it.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base import Session
from ematix_flow.connect.lake_engine import EngineError
from ematix_flow.connect.store_session import DIGITS, FORMAT, STATES, UNKNOWN, StoreSession, newest_of, record_key
from ematix_flow.errors import CommitError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ematix_flow.connect.lake_engine import LakeEngine
    from ematix_flow.connect.store import Store

LOCKS = "locks/"
POINTS = "points/"
POINTS_FOLDER = "FLOW_POINTS_FOLDER"
KEEP = "CACHE TABLE "
STATE_TABLE = "ematix_flow_lake"

BEAT_SECONDS = 5.0
DEAD_SECONDS = 30.0
"""An owner who has not been heard of for so long is taken for dead; should it wake, its change is refused."""

BURIED_SECONDS = 7 * 24 * 3600.0
"""How long it is remembered that an owner was taken for dead."""

LOCK_WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a table that is to be made once: the commit it belongs to and the books that follow."""

    id: str
    number: int
    ledger: str
    state: str = ""


class Applier:
    """What a kind of lake table does for a session."""

    def prepare(self, engine: LakeEngine, change: Change) -> None:
        """Do what a change needs before anybody hears of it."""

    def change(self, engine: LakeEngine, sql: str, change: Change) -> dict[str, int]:
        """Run the statement so that the table remembers the change, and give the numbers that its answer names."""
        raise NotImplementedError

    def made(self, engine: Callable[[], LakeEngine], change: Change) -> bool:
        """Say whether the table remembers a change; the engine is asked where the table alone cannot tell."""
        raise NotImplementedError

    def refuse(self, engine: LakeEngine, change: Change) -> None:
        """Make sure that a change which was not made never will be."""
        raise NotImplementedError


class LakeSession(StoreSession):
    """A session over the bookkeeping of one lake table, whose transactions exclude each other."""

    def __init__(self, store: Store, home: str, applier: Applier, engine: Callable[[], LakeEngine]) -> None:
        fresh = f"INSERT INTO {STATE_TABLE} VALUES ('ledger', '{uuid.uuid4().hex}')"
        tables = (f"CREATE TABLE {STATE_TABLE} (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)", fresh)
        self._lock: _Lock | None = None
        self.replaced_points = ""
        super().__init__(store, tables, home)
        self._applier = applier
        self._engine = engine
        self.rows = RowsSession(self, engine)

    def begin(self) -> None:
        """Take the lock, settle what a dead owner left, and begin from the newest state."""
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while self._lock is None:
            self._load()
            lock = _Lock(self.store, self.home, self.head.number + 1)
            if self._settled(lock) and self._alone(lock):
                self._lock = lock
                break
            lock.release()
            if time.monotonic() > deadline:
                message = f"another load holds the table in {self.store.shown}{self.home}"
                raise TransientError(
                    message, hint="it is tried again by itself, or run it again when that load is over."
                )
            time.sleep(random.uniform(PAUSE_SECONDS, 3 * PAUSE_SECONDS))  # noqa: S311 - only to part ways
        super().begin()

    def commit(self) -> None:
        """Commit the books and give the lock back."""
        try:
            super().commit()
        except BaseException:
            self._give_up()
            raise
        self._release()
        if self.replaced_points:
            self.store.remove_below(f"{self.replaced_points}/")
            self.replaced_points = ""

    def rollback(self) -> None:
        """Undo what the books say and give the lock back; a change of rows that was made stays, with its own books."""
        super().rollback()
        self.head = UNKNOWN
        self._give_up()

    def close(self) -> None:
        """Give everything back."""
        self._give_up()
        self.rows.close()
        super().close()

    def value(self, name: str) -> str:
        """Give what the state remembers under a name."""
        rows = self.query(f"SELECT value FROM {STATE_TABLE} WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def remember(self, name: str, value: str) -> None:
        """Let the state remember something under a name."""
        self.connection.execute(f"INSERT OR REPLACE INTO {STATE_TABLE} VALUES (?, ?)", (name, value))

    def change(self, sql: str) -> dict[str, int]:
        """Make the one change of rows of this transaction; the books as they are now count from then on."""
        if self._lock is None:
            message = "rows of a lake table are changed in a transaction only"
            raise CommitError(message)
        number = self.head.number + 1
        state = f"{self.home}{STATES}{number:0{DIGITS}d}-{uuid.uuid4().hex}.sqlite"
        # The connection is this session's own: to end its transaction commits nothing but what it holds itself.
        self.connection.execute("COMMIT")
        self.store.create(state, self.connection.serialize())
        self.connection.execute("BEGIN IMMEDIATE")
        change = Change(self._lock.id, number, self.value("ledger"), state)
        self._applier.prepare(self._engine(), change)
        self._lock.announce(change)
        if self._lock.buried or newest_of(self.store, self.home) != self.head.number:
            self._lock.answered = True
            message = "this load was taken for dead, and another one went on"
            raise TransientError(message, hint="nothing was changed; it is tried again by itself, or run it again.")
        failpoint("store.before_change")
        try:
            told = self._applier.change(self._engine(), sql, change)
        except EngineError:
            # The engine has answered: nothing of this change is still on its way.
            self._lock.answered = True
            raise
        self._lock.answered = True
        failpoint("store.after_change")
        if not self._applier.made(self._engine, change):
            message = "the table did not take the change: another load was first"
            raise TransientError(message, hint="nothing was changed; it is tried again by itself, or run it again.")
        return told

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _give_up(self) -> None:
        """Give the lock back without a commit; if rows were changed all the same, the books follow them."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if lock.announced is None:
            lock.release()
            return
        lock.fall_silent()
        # What cannot be asked or written now is dealt with by whoever comes next.
        with suppress(EngineError, OSError):
            if self._applier.made(self._engine, lock.announced):
                self._follow(lock.announced)
            elif not lock.answered:
                self._applier.refuse(self._engine(), lock.announced)
            lock.release()

    def _follow(self, change: Change) -> None:
        """Make the books of a change that was made the next ones."""
        record = {"format": FORMAT, "number": change.number, "state": change.state, "taken_over": True}
        self.store.create(record_key(change.number, self.home), json.dumps(record, indent=1).encode())

    def _settled(self, mine: _Lock) -> bool:
        """Deal with the locks of dead owners; False when one lives, or when the head moved."""
        for other in mine.others():
            if not other.dead:
                if other.number == mine.number:
                    return False
                continue
            # An owner who announces a change looks for this mark afterwards; whoever marks looks for changes afterwards.
            other.bury()
            change = other.announced()
            if change is not None and other.number == mine.number and self._followed(change):
                other.clear()
                return False
            other.clear()
        return True

    def _followed(self, change: Change) -> bool:
        """Take over the books of a change that was made; one that was not made never will be."""
        if not self._applier.made(self._engine, change):
            self._applier.refuse(self._engine(), change)
            if not self._applier.made(self._engine, change):
                return False
        self._follow(change)
        return True

    def _alone(self, lock: _Lock) -> bool:
        """Take the lock; whoever sees that another did so too gives it back."""
        lock.take()
        if any(other.number == lock.number for other in lock.others()):
            return False
        before = self.head
        self._load()
        return self.head == before


class _Lock:
    """An object whose name tells the commit that its owner makes next."""

    def __init__(self, store: Store, home: str, number: int) -> None:
        self.id = uuid.uuid4().hex
        self.number = number
        self._store = store
        self._prefix = f"{home}{LOCKS}"
        self._key = f"{self._prefix}{number:0{DIGITS}d}-{self.id}"
        self.announced: Change | None = None
        self.answered = False
        """True when nothing of the announced change can still be on its way."""
        self._over = threading.Event()
        self._beating: threading.Thread | None = None

    def take(self) -> None:
        self._store.write(f"{self._key}.lock", _owner())
        self._beating = threading.Thread(target=self._beat, name="flow-lake-lock", daemon=True)
        self._beating.start()

    def announce(self, change: Change) -> None:
        self.announced = change
        fields = {"id": change.id, "number": change.number, "ledger": change.ledger, "state": change.state}
        self._store.create(f"{self._key}.change", json.dumps(fields).encode())

    def fall_silent(self) -> None:
        self._over.set()
        if self._beating is not None:
            self._beating.join()

    def release(self) -> None:
        self.fall_silent()
        if self._beating is not None:
            with suppress(OSError):
                self._store.delete(f"{self._key}.change")
                self._store.delete(f"{self._key}.lock")

    @property
    def buried(self) -> bool:
        """Say whether somebody took the owner for dead."""
        return self._store.size(f"{self._key}.dead") is not None

    def others(self) -> list[_Other]:
        ages: dict[str, float] = {}
        for found in list(self._store.listed(self._prefix)):
            key, _, what = found.key.rpartition(".")
            if what == "lock":
                ages[key] = found.age
            elif what == "change":
                # One without a lock is what a clearing that was cut short left.
                ages.setdefault(key, float("inf"))
            elif found.age > BURIED_SECONDS:
                self._store.delete(found.key)
        return [_Other(self._store, key, age) for key, age in ages.items() if key != self._key]

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with suppress(OSError):
                self._store.write(f"{self._key}.lock", _owner())


@dataclass(frozen=True, slots=True)
class _Other:
    """The lock of somebody else."""

    store: Store
    key: str
    age: float

    @property
    def number(self) -> int:
        return int(self.key.rpartition("/")[2].partition("-")[0])

    def announced(self) -> Change | None:
        data = self.store.read(f"{self.key}.change")
        return None if data is None else Change(**json.loads(data))

    @property
    def dead(self) -> bool:
        """Say whether the owner is gone: silent for long, or a process of this machine that is no more."""
        if self.age >= DEAD_SECONDS:
            return True
        owner = self.store.read(f"{self.key}.lock")
        return owner is not None and _is_gone(json.loads(owner))

    def bury(self) -> None:
        """Mark the owner as taken for dead."""
        self.store.create(f"{self.key}.dead", b"")

    def clear(self) -> None:
        """Remove the lock; the mark stays, because a dead owner may wake."""
        self.store.delete(f"{self.key}.change")
        self.store.delete(f"{self.key}.lock")


def _owner() -> bytes:
    """Say who holds a lock, so that others on the same machine need not wait when it dies."""
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "start": _started(os.getpid())}).encode()


def _is_gone(owner: Mapping[str, Any]) -> bool:
    return bool(owner["host"] == socket.gethostname()) and _started(int(owner["pid"])) != owner["start"]


def _started(pid: int) -> str:
    """Give when a process began, as the system counts it; empty for one that is gone, or where nobody can be asked."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    # A dead process whose parent has not asked yet is gone all the same.
    return "" if fields[0] in ("Z", "X") else fields[19]


class RowsSession(Session):
    """The rows of the table through its engine; the statement that changes them goes through the books' session."""

    def __init__(self, books: LakeSession, engine: Callable[[], LakeEngine]) -> None:
        self._books = books
        self._engine = engine
        self._expected: dict[str, str] = {}
        self._shown: list[str] = []

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement; its numbers are told."""
        del parameters
        self._show_points(sql)
        if sql.startswith(KEEP):
            name, _, query = sql.removeprefix(KEEP).partition(" AS ")
            self._shown.append(name)
            self._engine().keep(name, query)
            return 0
        if POINTS_FOLDER in sql:
            return self._write_points(sql)
        if sql.startswith(("INSERT ", "MERGE ")):
            numbers = self._books.change(sql)
            self.numbers = _told(numbers)
            return numbers.get("num_affected_rows", 0)
        self._engine().run(sql, {})
        return 0

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Give the rows of a query."""
        del parameters
        self._show_points(sql)
        return self._engine().query(sql)

    def show(self, name: str, paths: Sequence[str], columns: str) -> None:
        """Show staged files as a relation until the session ends."""
        self._shown.append(name)
        self._engine().view(name, paths, columns)

    def expect_points(self, name: str, columns: str) -> None:
        """Show the folded events under a name once a statement asks for them."""
        self._expected[name] = columns

    def _show_points(self, sql: str) -> None:
        for name in [name for name in self._expected if name in sql]:
            folder = self._books.value("points")
            paths = [self._books.store.path(folder)] if folder else []
            self.show(name, paths, self._expected.pop(name))

    def _write_points(self, sql: str) -> int:
        before = self._books.value("points")
        folder = f"{self._books.home}{POINTS}{uuid.uuid4().hex}"
        place = self._books.store.path(folder).replace("\\", "\\\\").replace("'", "\\'")
        self._engine().run(sql.replace(POINTS_FOLDER, place), {})
        self._books.remember("points", folder)
        self._books.replaced_points = before
        return 0

    def begin(self) -> None:
        """Do nothing: a change of rows is final at once."""

    def commit(self) -> None:
        """Do nothing: a change of rows is final at once."""

    def rollback(self) -> None:
        """Do nothing: a change of rows is final at once."""

    def close(self) -> None:
        """Forget the relations of this session."""
        for name in reversed(self._shown):
            with suppress(EngineError):
                self._engine().forget(name)
        self._shown.clear()


def _told(numbers: Mapping[str, int]) -> dict[str, int]:
    names = {"inserted": "num_inserted_rows", "updated": "num_updated_rows", "deleted": "num_deleted_rows"}
    return {name: numbers[told] for name, told in names.items() if told in numbers}
