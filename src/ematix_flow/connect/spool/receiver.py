"""Receives from a queue that forgets into a spool, in a thread of its own; acknowledges only what is safe, decides nothing else."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import wait
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.background import in_background
from ematix_flow.connect.base.retry import BROKER_AWAY
from ematix_flow.connect.spool.log import SpoolFullError
from ematix_flow.errors import TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from ematix_flow.connect.spool.log import QueueMessage, Spool

TOGETHER = 1_000
"""Messages from which a batch is written at once."""

GATHER_SECONDS = 0.05
"""Seconds that messages wait for others, so that many of them share one sync of the disk."""

OUTAGE_SECONDS = 60.0
"""Seconds that a broker may be away before the stream is informed; one that was never there is reported at once."""

FULL_SECONDS = 5.0
"""Seconds that an empty spool may have no room before the stream is informed."""


class Broker(ABC):
    """A connection to one queue; used by one thread."""

    gathers: ClassVar[bool] = False
    """Messages come as many as there are, so that nothing is won by waiting for others."""

    @abstractmethod
    def open(self) -> None:
        """Connect and begin to receive; what was received before and not accepted comes again."""

    @abstractmethod
    def receive(self, seconds: float) -> list[QueueMessage]:
        """Return the messages that came, after so many seconds at most; the broker holds back more than a bound."""

    @abstractmethod
    def accept(self) -> None:
        """Acknowledge to the broker that everything that was handed out is safe."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection; it may be broken."""


class Receiver:
    """A thread that brings the messages of a queue into its spool."""

    def __init__(self, broker: Broker, spool: Spool) -> None:
        self._broker = broker
        self._spool = spool
        self._over = threading.Event()
        self._trouble: TransientError | None = None
        self._since = self._heard = time.monotonic()
        self._ever = self._met = self._holds = False
        self._work = in_background(self._run, "flow-receiver")

    def check(self, *, idle: bool) -> None:
        """Raise what ended the thread, and where nothing else is left to do what has kept it waiting for long."""
        if self._work.done():
            self._work.result()
        trouble, since = self._trouble, self._since
        if trouble is None or not idle:
            return
        limit = FULL_SECONDS if isinstance(trouble, SpoolFullError) else OUTAGE_SECONDS if self._ever else 0.0
        if time.monotonic() - since > limit:
            raise trouble

    @property
    def silence(self) -> float:
        """Return the seconds since a message was written; none while one is held or there is no connection."""
        return time.monotonic() - self._heard if self._met and not self._holds else 0.0

    def close(self) -> None:
        """End the thread; what it holds and did not write stays with the broker."""
        self._over.set()
        wait([self._work])

    def _run(self) -> None:
        failures = 0
        while not self._over.is_set():
            try:
                self._broker.open()
                self._heard, self._ever, self._met, self._holds = time.monotonic(), True, True, False
                self._trouble, failures = None, 0
                self._receive()
            except TransientError as error:
                self._wait_out(error)
                failures += 1
                self._over.wait(BROKER_AWAY.wait_after(failures))
            finally:
                self._met = False
                self._broker.close()

    def _wait_out(self, trouble: TransientError) -> None:
        if self._trouble is None:
            self._since = time.monotonic()
        self._trouble = trouble

    def _receive(self) -> None:
        """Receive until there is a reason to end."""
        waiting: list[QueueMessage] = []
        since = time.monotonic()
        while not self._over.is_set():
            received = self._broker.receive(GATHER_SECONDS)
            now = time.monotonic()
            if received:
                since = since if waiting else now
                self._holds = True
                waiting += received
            if waiting and (
                self._broker.gathers or len(waiting) >= TOGETHER or now - since >= GATHER_SECONDS or not received
            ):
                waiting = self._append(waiting)

    def _append(self, messages: list[QueueMessage]) -> list[QueueMessage]:
        """Write messages and acknowledge them; return those for which there is no room yet."""
        try:
            self._spool.append(messages)
        except SpoolFullError as error:
            # Nothing is acknowledged, so the broker sends no more than its bound.
            self._wait_out(error)
            self._over.wait(GATHER_SECONDS)
            return messages
        self._trouble, self._heard, self._holds = None, time.monotonic(), False
        self._broker.accept()
        failpoint("spool.after_ack")
        return []
