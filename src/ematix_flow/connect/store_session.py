"""Bookkeeping in a store: an SQLite database whose every commit is a new object, numbered and written by one winner.

`_ematix_flow/commits/<number>.json` says which object under `_ematix_flow/state/` is the database after that commit.
A record is created and never replaced, so of two sessions that began from the same number one commits and the other
is told to begin again. Rows of the user's tables do not pass here.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.sqlite_functions import register
from ematix_flow.connect.sqlite_session import SQLiteSession
from ematix_flow.errors import TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.store import Store

HOME = "_ematix_flow/"
"""Where the bookkeeping of a store is, unless a table has its own."""

COMMITS = "commits/"
STATES = "state/"

DIGITS = 12
FORMAT = 1
KEPT = {COMMITS: (200, 3600.0), STATES: (10, 0.0)}
"""How many of the newest are kept in any case, and how many seconds any of them is.

A session that is further behind finds its base gone and begins again."""

TIDY_EVERY = 16
LOADS = 5
"""How often the newest state is looked for when it is tidied away between two looks."""

ATTEMPTS = 30
"""How often a statement outside of a transaction is tried when others commit at the same time."""


_SCRATCH = (
    "SELECT ",
    "PRAGMA ",
    "EXPLAIN ",
    "CREATE TEMP ",
    "CREATE INDEX TEMP.",
    "INSERT INTO TEMP.",
    "DROP TABLE IF EXISTS TEMP.",
    "DROP VIEW TEMP.",
)


@dataclass(frozen=True, slots=True)
class Head:
    """The newest commit: its number and the database it left; number 0 is before the first."""

    number: int
    state: str = ""


UNKNOWN = Head(-1)
"""Stands for a state that has to be read anew."""


def head_of(store: Store, home: str = HOME) -> Head:
    """Give the newest commit of a store."""
    number = max((_number(found.key) for found in store.listed(home + COMMITS)), default=0)
    return Head(0) if number == 0 else Head(number, str(record_of(store, number, home)["state"]))


def record_of(store: Store, number: int, home: str = HOME) -> Mapping[str, Any]:
    """Give what a commit's record says."""
    data = store.read(record_key(number, home))
    if data is None:
        message = f"commit {number} in {store.shown} vanished while it was read"
        raise TransientError(message)
    record: dict[str, Any] = json.loads(data)
    if int(record["format"]) > FORMAT:
        message = f"{store.shown} was written by a newer version (format {record['format']}, this one knows {FORMAT})"
        raise sqlite3.NotSupportedError(message)
    return record


class StoreSession(SQLiteSession):
    """A session over the newest state; what it commits becomes the next one, unless somebody else was first."""

    def __init__(self, store: Store, tables: Sequence[str] = (), home: str = HOME) -> None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        register(connection)
        super().__init__(connection, store.shown)
        self.store = store
        self._tables = tables
        self.home = home
        self.head = Head(0)
        self._load()

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement; outside of a transaction it is one by itself, begun again as long as others are first."""
        if self.connection.in_transaction or _is_temporary(sql):
            return super().execute(sql, parameters)
        for attempt in range(ATTEMPTS):
            self.begin()
            try:
                rows = super().execute(sql, parameters)
                self.commit()
            except TransientError:
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(random.uniform(0.0, 0.02 * (attempt + 1)))  # noqa: S311 - only to part ways
            except BaseException:
                self.rollback()
                raise
            else:
                return rows
        raise AssertionError

    def begin(self) -> None:
        """Begin from the newest state."""
        self._load()
        super().begin()
        self._changes = self.connection.total_changes
        self._schema = self._schema_version()

    def commit(self) -> None:
        """Write the next state and its record; a transaction that changed nothing leaves none."""
        changed = self.connection.total_changes != self._changes or self._schema_version() != self._schema
        told = self.told() if changed else {}
        super().commit()
        if changed:
            try:
                self._publish(told)
            except BaseException:
                self.head = UNKNOWN
                raise

    def told(self) -> Mapping[str, Any]:
        """Give what else a record shall say about its commit."""
        return {}

    def _publish(self, told: Mapping[str, Any]) -> None:
        number = self.head.number + 1
        state = f"{self.home}{STATES}{number:0{DIGITS}d}-{uuid.uuid4().hex}.sqlite"
        self.store.create(state, self.connection.serialize())
        record = {"format": FORMAT, "number": number, "state": state, **told}
        failpoint("store.before_record")
        won = self.store.create(record_key(number, self.home), json.dumps(record, indent=1).encode())
        based = self.head.number == 0 or self.store.size(record_key(self.head.number, self.home)) is not None
        if won and based:
            self.head = Head(number, state)
            if number % TIDY_EVERY == 0:
                self.tidy()
            return
        if won:
            # The base was tidied away: others are far ahead, and nobody reads a record behind them.
            self.store.delete(record_key(number, self.home))
        self.store.delete(state)
        message = f"another load was committed to {self.store.shown} first"
        raise TransientError(message, hint="nothing was changed; it is tried again by itself, or run it again.")

    def tidy(self) -> None:
        """Remove records and states that no session can still begin from."""
        for prefix, (newest, seconds) in KEPT.items():
            for found in list(self.store.listed(self.home + prefix)):
                if _number(found.key) <= self.head.number - newest and found.age > seconds:
                    self.store.delete(found.key)

    def _load(self) -> None:
        head = head_of(self.store, self.home)
        if 0 < head.number == self.head.number:
            return
        data = _empty(self._tables) if head.number == 0 else self.store.read(head.state)
        for _ in range(LOADS):
            if data is not None:
                break
            head = head_of(self.store, self.home)
            data = self.store.read(head.state)
        if data is None:
            message = f"the state of commit {head.number} in {self.store.shown} is gone"
            raise sqlite3.DatabaseError(message)
        self.connection.deserialize(data)
        self.head = head

    def _schema_version(self) -> int:
        return cast("int", self.connection.execute("PRAGMA main.schema_version").fetchone()[0])


def _empty(tables: Sequence[str]) -> bytes:
    connection = sqlite3.connect(":memory:")
    try:
        for sql in tables:
            connection.execute(sql)
        return connection.serialize()
    finally:
        connection.close()


def _is_temporary(sql: str) -> bool:
    """Say whether a statement only looks, or is about this session's scratch tables alone."""
    return sql.lstrip().upper().startswith(_SCRATCH)


def record_key(number: int, home: str = HOME) -> str:
    """Give the key of a commit's record."""
    return f"{home}{COMMITS}{number:0{DIGITS}d}.json"


def _number(key: str) -> int:
    name = key.rpartition("/")[2][:DIGITS]
    return int(name) if name.isdecimal() else 0
