"""Metadata in a store: an SQLite database whose every commit is a new object, numbered and written by one winner.

`_ematix_flow/commits/<number>.json` names the object under `_ematix_flow/state/` that is the database after that
commit. A record is created and never replaced, so of two sessions that began from the same number one commits and the
other has to begin again. Rows of the user's tables do not pass here.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.base.retry import OVERTAKEN, attempts
from ematix_flow.connect.sqlite.functions import register
from ematix_flow.connect.sqlite.session import SQLiteSession
from ematix_flow.errors import OvertakenError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.storage.base import Store

HOME = "_ematix_flow/"
"""Where the metadata of a store is, unless a table has its own."""

COMMITS = "commits/"
STATES = "state/"

DIGITS = 12
FORMAT = 1
RETAINED = {STATES: (10, 0.0), COMMITS: (200, 3600.0)}
"""How many of the newest are retained in any case, and for how many seconds any of them is.

States go first: a session that is so far behind that its number is free again finds the state it began from gone."""

CLEAN_UP_EVERY = 16
LOADS = 5
"""How often the newest state is read again when it is cleaned up between two requests."""

FIRST = 1
"""The record that is never removed: a session that began before there was one must find that it was not first."""

UNFINISHED_SECONDS = 3600.0
"""How long a record or a state may take to be written."""

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
"""Marks a state that has to be read anew."""


def head_of(store: Store, home: str = HOME) -> Head:
    """Return the newest commit of a store."""
    number = newest_of(store, home)
    return Head(0) if number == 0 else Head(number, str(record_of(store, number, home)["state"]))


def newest_of(store: Store, home: str = HOME) -> int:
    """Return the number of the newest commit."""
    return max((_commit_number(info.key) for info in store.listed(home + COMMITS)), default=0)


def record_of(store: Store, number: int, home: str = HOME) -> Mapping[str, Any]:
    """Return a commit's record."""
    data = store.read(record_key(number, home))
    if data is None:
        message = f"commit {number} in {store.display_address} vanished while it was read"
        raise TransientError(message)
    record: dict[str, Any] = json.loads(data)
    if int(record["format"]) > FORMAT:
        message = f"{store.display_address} was written by a newer version (format {record['format']}, this one knows {FORMAT})"
        raise sqlite3.NotSupportedError(message)
    return record


class StoreSession(SQLiteSession):
    """A session over the newest state; what it commits becomes the next one, unless another session was first."""

    def __init__(self, store: Store, tables: Sequence[str], home: str = HOME) -> None:
        super().__init__(self.opened(), store.display_address)
        self.store = store
        self.home = home
        self._tables = tables
        self.head = Head(0)
        self._load()

    def opened(self) -> sqlite3.Connection:
        """Return a connection to an empty state, with our functions."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        register(connection)
        return connection

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement; outside of a transaction it is one by itself, begun again as long as others are first."""
        if self.connection.in_transaction or _is_temporary(sql):
            return super().execute(sql, parameters)
        for attempt in attempts(OVERTAKEN):
            with attempt:
                rows = self._execute_alone(sql, parameters)
        return rows

    def _execute_alone(self, sql: str, parameters: Sequence[object]) -> int:
        self.begin()
        try:
            rows = super().execute(sql, parameters)
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return rows

    def begin(self) -> None:
        """Begin from the newest state."""
        self._load()
        super().begin()
        self._changes = self.connection.total_changes
        self._schema = self._schema_version()

    def commit(self) -> None:
        """Write the next state and its record; a transaction that changed nothing leaves none."""
        changed = self.connection.total_changes != self._changes or self._schema_version() != self._schema
        metadata = self.commit_metadata() if changed else {}
        super().commit()
        if changed:
            try:
                self._publish(metadata)
            except BaseException:
                self.head = UNKNOWN
                raise

    def commit_metadata(self) -> Mapping[str, Any]:
        """Return what else a record holds about its commit."""
        return {}

    def _publish(self, commit_metadata: Mapping[str, Any]) -> None:
        number = self.head.number + 1
        state = f"{self.home}{STATES}{number:0{DIGITS}d}-{uuid.uuid4().hex}.sqlite"
        try:
            self.store.create(state, self.connection.serialize())
        except OSError as error:
            # Without a record nothing happened, and no caller has to check whether it did.
            message = f"the next state of {self.store.display_address} could not be written: {error.strerror or error}"
            raise TransientError(message, hint="nothing was changed.") from None
        record = {"format": FORMAT, "number": number, "state": state, **commit_metadata}
        failpoint("store.before_record")
        won = self.store.create(record_key(number, self.home), json.dumps(record, indent=1).encode())
        based = self.head.number == 0 or self.store.size(self.head.state) is not None
        if won and based:
            self.head = Head(number, state)
            if number % CLEAN_UP_EVERY == 0:
                self.clean_up()
            return
        if won:
            # The base was cleaned up: others are far ahead, and no session reads a record behind them.
            self.store.delete(record_key(number, self.home))
        self.store.delete(state)
        message = f"another load was committed to {self.store.display_address} first"
        raise OvertakenError(message, hint="nothing was changed; it is tried again by itself, or run it again.")

    def clean_up(self) -> int:
        """Remove records and states that no session can still begin from, and return how many there were."""
        keys = self.superseded()
        for key in keys:
            self.store.delete(key)
        return len(keys)

    def superseded(self) -> list[str]:
        """Return the records and states that no session can still begin from, in the order in which they may go."""
        keys = []
        for prefix, (newest, seconds) in RETAINED.items():
            for info in self.store.listed(self.home + prefix):
                number = _commit_number(info.key)
                required = number == FIRST and prefix == COMMITS
                young = bool(seconds) and info.age <= seconds
                if number <= self.head.number - newest and not young and not required:
                    keys.append(info.key)
            unfinished = self.store.unfinished(self.home + prefix)
            keys.extend(info.key for info in unfinished if info.age > UNFINISHED_SECONDS)
        return keys

    def _load(self) -> None:
        if 0 < self.head.number == newest_of(self.store, self.home):
            return
        head = head_of(self.store, self.home)
        data = _empty(self._tables) if head.number == 0 else self.store.read(head.state)
        for _ in range(LOADS):
            if data is not None:
                break
            head = head_of(self.store, self.home)
            data = self.store.read(head.state)
        if data is None:
            message = f"the state of commit {head.number} in {self.store.display_address} is gone"
            raise sqlite3.DatabaseError(message)
        # Always a new connection: what a used one knows of its tables would be taken for those of another state, and
        # SQLite reads beyond its memory then.
        connection = self.opened()
        connection.deserialize(data)
        self.connection.close()
        self.connection = connection
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
    """Return whether a statement only reads, or is about this session's scratch tables alone."""
    return sql.lstrip().upper().startswith(_SCRATCH)


def record_key(number: int, home: str = HOME) -> str:
    """Return the key of a commit's record."""
    return f"{home}{COMMITS}{number:0{DIGITS}d}.json"


def _commit_number(key: str) -> int:
    name = key.rpartition("/")[2][:DIGITS]
    return int(name) if name.isdecimal() else 0
