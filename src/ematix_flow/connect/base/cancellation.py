"""Stops the work of a run before its end: whatever it waits for is interrupted.

The reason and the requester are not known here.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from ematix_flow.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.errors import FlowError


INSIST_SECONDS = 1.0
"""How often the statements of a run that does not stop are interrupted again."""


class Interruptible(Protocol):
    """Something with a statement that can be interrupted."""

    def interrupt(self) -> None:
        """End the statement that runs, from another thread."""


class HaltedError(KeyboardInterrupt):
    """The main thread is to stop what it waits for; drivers cancel their statement on a KeyboardInterrupt."""


class Halt:
    """Whether a run is to stop, and what it waits for.

    A stop and a commit exclude each other: whichever comes first decides, and nothing is interrupted after the commit.
    """

    def __init__(self, poll: Callable[[Halt], None] | None = None) -> None:
        self.error: FlowError | None = None
        """Why the run stops; None while it goes on."""
        self.has_committed = False
        """Whether a target of the run has its rows, also by an earlier attempt; they stay when a later step is stopped."""
        self._poll = poll
        self._lock = threading.RLock()
        self._sessions: weakref.WeakSet[Interruptible] = weakref.WeakSet()
        self._wakers: dict[int, Callable[[], None]] = {}
        self._held = 0
        self._committed = False
        self._depth = 0
        self._ended = threading.Event()

    def stop(self, error: FlowError) -> None:
        """Have the run end with an error: it takes no further step, and what it waits for is interrupted."""
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            self._wake()
        threading.Thread(target=self._insist, name="flow-halt", daemon=True).start()

    def _wake(self) -> None:
        """Wake what waits, each once: a second call would interrupt what the run does about the first."""
        while self._wakers and not self.is_held:
            _, wake = self._wakers.popitem()
            with suppress(Exception):  # what cannot be interrupted ends by itself, and the next check sees why
                wake()

    def _insist(self) -> None:
        """Interrupt until the run has ended: a stop may come while nothing may be interrupted, or before a statement begins."""
        while True:
            with self._lock:
                self._wake()
                for session in [] if self.is_held else list(self._sessions):
                    with suppress(Exception):
                        session.interrupt()
            if self._ended.wait(INSIST_SECONDS):
                return

    def check(self) -> None:
        """Raise the error of a run that is to stop, after polling for a request to stop."""
        if self.error is None and self._poll is not None:
            self._poll(self)
        self.check_known()

    def check_known(self) -> None:
        """Raise the error of a run that is known to stop, without polling."""
        if self.error is not None:
            raise self.error

    def next_step(self) -> None:
        """Begin work that can be interrupted; a run that is to stop begins none."""
        self.check_known()
        self._committed = False

    def blamed(self, error: BaseException) -> BaseException:
        """Return the reason of an error: the stop, where one was requested."""
        stopped = self.error is not None and not self._committed and not isinstance(error, UnknownOutcomeError)
        return self.error if stopped and self.error is not None else error

    @property
    def is_held(self) -> bool:
        """Return whether nothing may be interrupted now, because of a COMMIT that is under way or done."""
        return self._held > 0 or self._committed

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing be interrupted in this block."""
        with self._lock:
            self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Commit in this block unless the run is to stop; from here to the next step it cannot be stopped any more."""
        with self._lock:
            self.check_known()
            self._held += 1
        try:
            yield
            self._committed = True
        finally:
            self._held -= 1

    def finish(self) -> None:
        """Mark the work as done, as a commit does; raise instead when the run is to stop."""
        with self.committing():
            pass

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` when the run is to stop while this block waits for something."""
        with self._lock:
            self.check_known()
            self._wakers[id(wake)] = wake
        try:
            yield
        finally:
            self._wakers.pop(id(wake), None)

    @contextmanager
    def over(self) -> Iterator[None]:
        """Make this the halt of everything that the block does, also of the sessions that it opens."""
        token = _CURRENT.set(self)
        self._depth += 1
        self._ended.clear()
        main = threading.current_thread() is threading.main_thread() and wake_main is not None
        try:
            if main and wake_main is not None:
                with self.waking(wake_main):
                    yield
            else:
                yield
        finally:
            _CURRENT.reset(token)
            self._depth -= 1
            if not self._depth:
                self._ended.set()

    def watch(self, session: Interruptible) -> None:
        """Interrupt the statement of a session when the run is to stop."""
        with self._lock:
            self._sessions.add(session)


_CURRENT: ContextVar[Halt | None] = ContextVar("halt", default=None)
_NONE = Halt()
"""The halt of work that is never stopped."""

wake_main: Callable[[], None] | None = None
"""Makes the main thread call `raise_in_main`, where the command handles signals."""


def current() -> Halt:
    """Return the halt of the work that this thread does."""
    return _CURRENT.get() or _NONE


def watch(session: Interruptible) -> None:
    """Let a session be interrupted with the work that opened it."""
    halt = _CURRENT.get()
    if halt is not None:
        halt.watch(session)


@contextmanager
def unwatched() -> Iterator[None]:
    """Open sessions in this block that are not interrupted: what becomes of a run is written down also when it is stopped."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def raise_in_main() -> None:
    """Raise in the main thread when its work is to stop; called by the handler of a signal."""
    halt = _CURRENT.get()
    if halt is not None and halt.error is not None and not halt.is_held:
        raise HaltedError
