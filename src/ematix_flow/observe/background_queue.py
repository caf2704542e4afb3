"""Delivers items to a slow receiver in the background: a bounded queue with one thread, which never blocks."""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from ematix_flow.connect.base.retry import NOTIFICATION, attempts
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.observe.http.host_guard import HostUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

Thing = TypeVar("Thing")

LONGEST = 200
"""How many items may wait."""


class BackgroundQueue(Generic[Thing]):
    """Delivers items in order; what cannot be delivered is reported once and dropped."""

    def __init__(self, deliver: Callable[[Thing], None], name: str) -> None:
        self._deliver = deliver
        self._name = name
        self._waiting: deque[Thing] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._warned = False

    def put(self, item: Thing) -> None:
        """Queue an item; a full queue takes no more."""
        with self._changed:
            if self._closed or len(self._waiting) >= LONGEST:
                full = "too many wait, so the newest are dropped"
                self._warn_once("what came after the end is not sent" if self._closed else full)
                return
            self._waiting.append(item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"flow-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is delivered, but not longer; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def close(self, seconds: float) -> None:
        """Deliver what waits, for as long as that takes at most, and take nothing more."""
        done = self.flush(seconds)
        with self._changed:
            self._closed = True
            if not done:
                self._warn_once(f"{len(self._waiting) + self._busy} could not be sent in time")
            self._waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                item, self._busy = self._waiting.popleft(), True
            try:
                for attempt in attempts(NOTIFICATION, on=(HostUnreachableError,)):
                    with attempt:
                        self._deliver(item)
            except Exception as error:  # noqa: BLE001 - telling never stops a run
                self._warn_once(safe_text(error))
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            sys.stderr.write(f"{self._name}: {' '.join(text.split())} (reported once)\n")
        self._warned = True
