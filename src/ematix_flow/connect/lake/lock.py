"""Locks on lake tables: objects in a store whose age shows that their owner lives; what they protect is not known here.

An owner that has been silent for long is marked as expired before its lock is cleared, and checks for that mark before
it changes anything.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.processes import process_start
from ematix_flow.connect.lake.change import Change
from ematix_flow.connect.metadata.session import DIGITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.storage.base import Store

LOCKS = "locks/"
BEAT_SECONDS = 5.0
DEAD_SECONDS = 30.0
"""An owner without a heartbeat for so long is taken for dead; should it resume, its change is refused."""

EXPIRED_SECONDS = 7 * 24 * 3600.0
"""How long it is remembered that an owner was taken for dead."""


class Lock:
    """An object whose name holds the commit that its owner makes next."""

    def __init__(self, store: Store, home: str, number: int) -> None:
        self.id = uuid.uuid4().hex
        self.number = number
        self._store = store
        self._prefix = f"{home}{LOCKS}"
        self._key = f"{self._prefix}{number:0{DIGITS}d}-{self.id}"
        self.intent: Change | None = None
        self.answered = False
        """True when nothing of the change in the intent can still be on its way."""
        self._over = threading.Event()
        self._beating: threading.Thread | None = None

    def take(self) -> None:
        """Show others that the table is held, and keep showing it."""
        self._store.write(f"{self._key}.lock", _owner())
        self._beating = threading.Thread(target=self._beat, name="flow-lake-lock", daemon=True)
        self._beating.start()

    def write_intent(self, change: Change) -> None:
        """Write what is about to be changed, for the next owner after a crash."""
        self.intent = change
        fields = {"id": change.id, "number": change.number, "ledger": change.ledger, "state": change.state}
        self._store.create(f"{self._key}.change", json.dumps(fields).encode())

    def fall_silent(self) -> None:
        """Stop showing that the owner lives; the lock itself stays."""
        self._over.set()
        if self._beating is not None:
            self._beating.join()

    def release(self) -> None:
        """Release the lock."""
        self.fall_silent()
        if self._beating is not None:
            with suppress(OSError):
                self._store.delete(f"{self._key}.change")
                self._store.delete(f"{self._key}.lock")

    @property
    def expired(self) -> bool:
        """Return whether another process took the owner for dead."""
        return self._store.size(f"{self._key}.dead") is not None

    def others(self) -> list[Other]:
        """Return the locks of others, and remove old expiry marks."""
        ages: dict[str, float] = {}
        for file in list(self._store.listed(self._prefix)):
            key, _, what = file.key.rpartition(".")
            if what == "lock":
                ages[key] = file.age
            elif what == "change":
                # One without a lock is what a clearing that was cut short left.
                ages.setdefault(key, float("inf"))
            elif file.age > EXPIRED_SECONDS:
                self._store.delete(file.key)
        return [Other(self._store, key, age) for key, age in ages.items() if key != self._key]

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with suppress(OSError):
                self._store.write(f"{self._key}.lock", _owner())


@dataclass(frozen=True, slots=True)
class Other:
    """The lock of another owner."""

    store: Store
    key: str
    age: float

    @property
    def number(self) -> int:
        """Return the number of the commit that its owner makes next."""
        return int(self.key.rpartition("/")[2].partition("-")[0])

    def intent(self) -> Change | None:
        """Return the change of its owner's intent."""
        data = self.store.read(f"{self.key}.change")
        return None if data is None else Change(**json.loads(data))

    @property
    def dead(self) -> bool:
        """Return whether the owner is gone: silent for long, or a process of this machine that is no more."""
        if self.age >= DEAD_SECONDS:
            return True
        owner = self.store.read(f"{self.key}.lock")
        return owner is not None and _is_gone(json.loads(owner))

    def expire(self) -> None:
        """Mark the owner as expired."""
        self.store.create(f"{self.key}.dead", b"")

    def clear(self) -> None:
        """Remove the lock; the mark stays, because an expired owner may resume."""
        self.store.delete(f"{self.key}.change")
        self.store.delete(f"{self.key}.lock")


def _owner() -> bytes:
    """Return who holds a lock, as stored in it, so that others on the same machine need not wait when it dies."""
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "start": process_start(os.getpid())}).encode()


def _is_gone(owner: Mapping[str, Any]) -> bool:
    return bool(owner["host"] == socket.gethostname()) and process_start(int(owner["pid"])) != owner["start"]
