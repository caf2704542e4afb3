"""Commits to a lake table and to its metadata in one: the table's own commit decides, the metadata follows.

A transaction holds a lock: an object that names the next commit and whose age shows that its owner lives. Before rows
change, the metadata as it will be is written next to it. A session that finds the lock of a dead owner queries the
table whether that change was made. If it was, the metadata is taken over; if not, the table is made to refuse it for
good.
"""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.base.retry import LAKE_LOCK, LAKE_REFUSAL, attempts
from ematix_flow.connect.lake.change import Change
from ematix_flow.connect.lake.lock import Lock
from ematix_flow.connect.lake.sql_session import POINTS, RowsSession
from ematix_flow.connect.metadata.session import (
    DIGITS,
    FORMAT,
    STATES,
    UNKNOWN,
    StoreSession,
    head_of,
    newest_of,
    record_key,
)
from ematix_flow.errors import CommitError, FlowError, StalePlanError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.lake.change import Applier
    from ematix_flow.connect.storage.base import Store

STATE_TABLE = "ematix_flow_lake"


class LakeSession(StoreSession):
    """A session over the metadata of one lake table, whose transactions exclude each other."""

    def __init__(self, store: Store, home: str, applier: Applier, engine: Callable[[], LakeEngine]) -> None:
        ledger_sql = f"INSERT INTO {STATE_TABLE} VALUES ('ledger', '{uuid.uuid4().hex}')"
        tables = (f"CREATE TABLE {STATE_TABLE} (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)", ledger_sql)
        self._lock: Lock | None = None
        self._watched: tuple[Callable[[], str], str] | None = None
        self._has_dead_locks = False
        self.points_written = False
        super().__init__(store, tables, home)
        self._applier = applier
        self._engine = engine
        self.rows = RowsSession(self, engine)

    def begin(self) -> None:
        """Take the lock, resolve what a dead owner left, and begin from the newest state."""
        if self._lock is None:
            for attempt in attempts(LAKE_LOCK, on=(_LockedError,)):
                with attempt:
                    self._lock = self._locked()
            self._clean_up()
        super().begin()

    def _locked(self) -> Lock:
        self._load()
        lock = Lock(self.store, self.home, self.head.number + 1)
        if self._resolve_others(lock) and self._alone(lock):
            return lock
        lock.release()
        message = f"another load holds the table in {self.store.display_address}{self.home}"
        raise _LockedError(message, hint="it is tried again by itself, or run it again when that load is over.")

    def commit(self) -> None:
        """Commit the metadata and release the lock."""
        try:
            super().commit()
        except BaseException:
            self._give_up()
            raise
        self._release()
        if self.points_written:
            self.points_written = False
            self._forget_points()

    def rollback(self) -> None:
        """Roll the metadata back and release the lock; a change of rows that was made stays, with its own metadata."""
        super().rollback()
        self.head = UNKNOWN
        self._give_up()

    def close(self) -> None:
        """Release everything."""
        self._give_up()
        self.rows.close()
        super().close()

    def value(self, name: str) -> str:
        """Return what the state remembers under a name."""
        rows = self.query(f"SELECT value FROM {STATE_TABLE} WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def remember(self, name: str, value: str) -> None:
        """Let the state remember something under a name."""
        self.connection.execute(f"INSERT OR REPLACE INTO {STATE_TABLE} VALUES (?, ?)", (name, value))

    def watch(self, last_change: Callable[[], str]) -> None:
        """Let the change of this transaction be refused when another writer changes the table from now on."""
        self._watched = (last_change, last_change())

    def _forget_points(self) -> None:
        """Remove the folded events of earlier loads, and those of loads that came to nothing."""
        prefix, current = f"{self.home}{POINTS}", self.value("points")
        files = [*self.store.listed(prefix), *self.store.unfinished(prefix)]
        for name in {one.key.removeprefix(prefix).partition("/")[0] for one in files}:
            if f"{prefix}{name}" != current:
                self.store.remove_below(f"{prefix}{name}/")

    def change(self, sql: str) -> dict[str, int]:
        """Make the one change of rows of this transaction; the metadata as it is now counts from then on."""
        change = self.begin_change()
        self._applier.prepare(self._engine(), change)
        lock = self._write_intent(change)
        try:
            counts = self._applier.change(self._engine(), sql, change)
        except EngineError as error:
            # Where the engine has answered and its answer is the last word, nothing of this change is still on its way.
            lock.answered = error.answered and not self._applier.may_commit_late
            raise
        lock.answered = True
        failpoint("store.after_change")
        if not self._applier.decides and not self._applier.is_committed(self._engine, change):
            message = "the table did not take the change: another load was first"
            raise TransientError(message, hint="nothing was changed; it is tried again by itself, or run it again.")
        return counts

    def begin_change(self) -> Change:
        """Return the one change of this transaction, after the metadata that follows it is stored."""
        if self._lock is None:
            message = "rows of a lake table are changed in a transaction only"
            raise CommitError(message)
        number = self.head.number + 1
        state = self._state_key(number)
        # The connection is this session's own: to end its transaction commits nothing but what it holds itself.
        self.connection.execute("COMMIT")
        self.store.create(state, self.connection.serialize())
        self.connection.execute("BEGIN IMMEDIATE")
        return Change(self._lock.id, number, self.value("ledger"), state)

    @contextmanager
    def committing(self, change: Change) -> Iterator[None]:
        """Commit the change in this block, without the engine; its files are placed before."""
        lock = self._write_intent(change)
        try:
            yield
        except FlowError:
            lock.answered = True  # refused before anything was written
            raise
        lock.answered = True
        failpoint("store.after_change")

    def _write_intent(self, change: Change) -> Lock:
        """Let the next writer of the table know of the change that is about to be made."""
        self._refuse_overtaken(change)
        lock = self._lock
        assert lock is not None  # noqa: S101 - the change has begun under it
        lock.write_intent(change)
        if lock.expired or newest_of(self.store, self.home) != self.head.number:
            lock.answered = True
            message = "this load was taken for dead, and another one went on"
            raise TransientError(message, hint="nothing was changed; it is tried again by itself, or run it again.")
        failpoint("store.before_change")
        return lock

    def check_held(self) -> None:
        """Refuse to go on when the table is not held, or another process took this session for dead."""
        if self._lock is None or self._lock.expired:
            message = "another process holds the lock of the table by now"
            raise TransientError(message, hint="run it again.")

    def _refuse_overtaken(self, change: Change) -> None:
        if self._watched is None or self._watched[0]() == self._watched[1]:
            return
        self._resolve(change)
        message = "another program changed the table while the load was about to be committed"
        raise StalePlanError(message, hint="nothing was changed; plan again.")

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _give_up(self) -> None:
        """Release the lock without a commit; if rows were changed all the same, the metadata follows them."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if lock.intent is None:
            lock.release()
            return
        lock.fall_silent()
        # What cannot be queried or written now is resolved by the next session.
        with suppress(EngineError, OSError):
            if lock.answered and not self._applier.is_committed(self._engine, lock.intent):
                lock.release()
                return
            self._resolve(lock.intent)
            lock.release()

    def _follow(self, change: Change) -> None:
        """Make the metadata of a change that was made the next state."""
        self._record(change.number, change.state, "taken_over")

    def _record(self, number: int, state: str, how: str) -> None:
        record = {"format": FORMAT, "number": number, "state": state, how: True}
        self.store.create(record_key(number, self.home), json.dumps(record, indent=1).encode())

    def _state_key(self, number: int) -> str:
        return f"{self.home}{STATES}{number:0{DIGITS}d}-{uuid.uuid4().hex}.sqlite"

    def _resolve_others(self, mine: Lock) -> bool:
        """Deal with the locks of dead owners; False when one lives, or when the head moved."""
        for other in mine.others():
            if not other.dead:
                if other.number == mine.number:
                    return False
                continue
            self._has_dead_locks = True
            # An owner checks for this mark after it wrote an intent; a session checks for intents after it marked.
            other.expire()
            change = other.intent()
            if change is not None and other.number == mine.number:
                self._resolve(change)
                other.clear()
                return False
            other.clear()
        return True

    def _clean_up(self) -> None:
        """Clean up after dead owners, where that can be done now."""
        if self._has_dead_locks:
            self._has_dead_locks = False
            with suppress(EngineError):
                self._applier.clean_up(self._engine)

    def _resolve(self, change: Change) -> None:
        """Take over the metadata of a change that was made; one that was not made never will be."""
        if self._applier.is_committed(self._engine, change) or not self._refused(change):
            self._follow(change)
        else:
            self._pass_over(change.number)

    def _refused(self, change: Change) -> bool:
        """Have the table refuse a change; False when it was made first."""
        for attempt in attempts(LAKE_REFUSAL, on=_is_transient):
            with attempt:
                try:
                    self._applier.refuse(self._engine, change)
                except (EngineError, TransientError):
                    # Made between the question and the refusal, it is what the refusal stumbles over. So it may over
                    # the refusal of a writer that died since, and finds it there the next time.
                    if not self._applier.is_committed(self._engine, change):
                        raise
        return not self._applier.is_committed(self._engine, change)

    def _pass_over(self, number: int) -> None:
        """Let a number end without a change: a table that has heard of it takes nothing else under it."""
        head = head_of(self.store, self.home)
        content = self.store.read(head.state) if head.number == number - 1 else None
        if content is None:
            return
        state = self._state_key(number)
        self.store.create(state, content)
        self._record(number, state, "passed_over")

    def _alone(self, lock: Lock) -> bool:
        """Take the lock; a session that sees that another did so too releases it."""
        lock.take()
        try:
            if any(other.number == lock.number for other in lock.others()):
                return False
            return newest_of(self.store, self.home) == self.head.number
        except BaseException:
            lock.release()
            raise


class _LockedError(TransientError):
    """Another load holds the lock."""


def _is_transient(error: Exception) -> bool:
    return error.transient if isinstance(error, EngineError) else isinstance(error, TransientError)
