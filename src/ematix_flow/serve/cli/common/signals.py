"""Ends a command on SIGTERM and Ctrl-C: no new work, no cut COMMIT; a second signal or a long wait ends it at once."""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.interrupts import is_committing
from ematix_flow.connect.base import cancellation as halting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.events import Event


GRACE_SECONDS = 25.0
"""Orchestrators kill after thirty seconds; before that, an exit of our own still reports why."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WAKE = signal.SIGUSR1
"""Sent by a thread of this process to the main one, whose run was cancelled or whose time is over."""


class StoppedError(KeyboardInterrupt):
    """The user or the machine stopped the command; drivers cancel their statement on a KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")


class Stop:
    """Whether the command was stopped, and by which signal."""

    def __init__(self) -> None:
        self.number = 0
        self.steps_left = 0
        """Post steps that follow the commit of the pipeline that runs."""

    @property
    def code(self) -> int:
        """Return the exit code of a stopped command."""
        return 128 + self.number

    def on_signal(self, number: int, frame: Any) -> None:
        """Raise in whatever the main thread does, unless that is waiting for the answer to COMMIT."""
        del frame
        self.number = number
        if not is_committing():
            raise StoppedError(number)

    def on_event(self, event: Event) -> None:
        """Take no new work after a signal that came during a COMMIT: no further target, no post step."""
        from ematix_flow.events import PostFinished, RunCommitted, RunStarted

        self.steps_left -= isinstance(event, PostFinished)
        between = isinstance(event, RunStarted) or (
            self.steps_left > 0 and isinstance(event, RunCommitted | PostFinished)
        )
        if self.number and between:
            raise StoppedError(self.number)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Handle signals while a command runs; outside of the main thread there are none to handle."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = {number: signal.signal(number, stop.on_signal) for number in _SIGNALS}
    before[_WAKE] = signal.signal(_WAKE, lambda *_: halting.raise_in_main())
    halting.wake_main = partial(signal.pthread_kill, threading.get_ident(), _WAKE)
    wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    # A thread, because a driver that waits in C lets no Python handler run, not even for the second signal.
    watcher = threading.Thread(target=_watch, args=(read_end,), name="second-signal", daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        halting.wake_main = None
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(write_end)
        watcher.join()
        os.close(read_end)


def ignore_signals() -> None:
    """Let no signal but SIGKILL end the process any more, for the moment in which it says how it ended."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _watch(read_end: int) -> None:
    """End the process at the second signal, or when the first one has been waited out."""
    first = 0
    while True:
        ready, _, _ = select.select([read_end], [], [], GRACE_SECONDS if first else None)
        if not ready:
            if not is_committing():
                _exit(first, "still busy; ending at once. The next run finds out what was committed.")
            continue
        received = os.read(read_end, 16)
        if not received:
            return
        for number in received:
            if number not in _SIGNALS:
                continue
            if first:
                _exit(number, "ended at once. The next run finds out what was committed.")
            first = number
            _print("stopping; a COMMIT under way is waited for. Once more to end at once.")


def _print(text: str) -> None:
    show_cursor = "\x1b[?25h" if os.isatty(2) else ""
    os.write(2, f"{show_cursor}{text}\n".encode())


def _exit(number: int, text: str) -> None:
    _print(text)
    os._exit(128 + number)
