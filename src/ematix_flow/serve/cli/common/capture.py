"""Captures what runs write to stderr in a file per attempt, unless the environment forbids it; results are not."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.details import detail_logger
from ematix_flow.events import (
    AttemptBegan,
    AttemptEnded,
    RowsStaged,
    RunCommitted,
    RunFailed,
    RunStarted,
    StreamFailed,
    StreamWarning,
)
from ematix_flow.serve.cli.common import log_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ematix_flow.events import Event
    from ematix_flow.observe.bus import Bus

_REMEMBERED = 1 << 20
"""Characters that are buffered for a log whose run has no name yet."""

_ESCAPE = "\x1b"
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-LN-Za-ln-z]")
"""Codes that do something else than colour."""
_SPINS = re.compile(r"[\u2800-\u28ff✓] ")


def capture_enabled() -> bool:
    """Return whether logs are captured: they are, unless the environment forbids it."""
    return os.environ.get("EMATIX_FLOW_CAPTURE_LOGS") != "0"


def plain(text: str) -> str:
    """Return what is left of a text without colours and without the lines of a live display."""
    if _ESCAPE not in text:
        return text
    bare = _CODES.sub("", text)
    if not _MOVES.search(text):
        return bare
    lines = [line for line in bare.replace("\r", "\n").splitlines() if line.strip() and not _SPINS.match(line)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


class Capture:
    """Stands in for stderr: what is written goes to the screen and to the log of the run whose thread wrote it.

    A command that runs one pipeline has one log, and all it writes is in there. In a command that runs several, what is
    written between runs is in none of them. Threads without a run, such as those of drivers, belong to that of the main
    thread; while that has none either, as in a scheduler, it is unknown whose output theirs is.
    """

    def __init__(self, screen: IO[str], *, alone: bool = True) -> None:
        self._screen = screen
        self._alone = alone
        """True for a command that runs one pipeline and reports its progress."""
        self._lock = threading.RLock()
        self._buffer: list[str] = []
        self._logs: dict[int, Path] = {}
        """The log of the run that each thread works on."""
        self._streams: set[int] = set()
        """Threads that run a stream."""
        self._failed: set[Path] = set()
        """Logs that could not be written, and the folder whose old ones could not be removed."""

    def write(self, text: str) -> int:
        """Show a text and capture it."""
        self._write_log(text)
        return self._screen.write(text)

    def write_detail(self, text: str) -> None:
        """Capture what is too long for the screen; the only run that is under way is the one that it is about."""
        with self._lock:
            open_logs = set(self._logs.values())
            self._write_log(text, open_logs.pop() if len(open_logs) == 1 else None)

    def _write_log(self, text: str, otherwise: Path | None = None) -> None:
        from ematix_flow.connect.config.redact import redact

        redacted = redact(plain(text))
        with self._lock:
            file = self._log() or otherwise
            if file is not None:
                self._append(file, redacted)
            elif self._alone:
                self._remember(redacted)

    def _log(self) -> Path | None:
        """Return the log that this thread's output belongs to."""
        own = self._logs.get(threading.get_ident())
        return own or self._logs.get(threading.main_thread().ident or 0)

    def on_event(self, event: Event) -> None:
        """Begin a log as soon as a run has a name, so that a crash leaves one behind, and end it with the run."""
        if threading.get_ident() in self._streams and isinstance(
            event, RunStarted | RunCommitted | RunFailed | RowsStaged
        ):
            return  # a stream makes a load for every batch
        match event:
            case AttemptBegan():
                name = log_files.slot_log(event.slot, event.attempt)
                self.begin(name or log_files.new_log(event.pipeline, SYSTEM_CLOCK.now(), event.attempt))
                self.add_run_id(event.pipeline, event.slot)
                self._stamp(f"{event.pipeline}: {event.slot}, attempt {event.attempt}")
                if event.of_stream:
                    self._streams.add(threading.get_ident())
            case StreamFailed() | StreamWarning():
                self._fail(event)
            case AttemptEnded():
                self._end(event)
            case RunStarted() | RunCommitted() | RunFailed():
                self.add_run_id(event.pipeline, event.run_id)
                self._note(event)
            case RowsStaged():
                self._note(event)

    def begin(self, name: str) -> None:
        """Capture the output of this thread from now on, and that before any run began, under a name."""
        with self._lock:
            file = log_files.log_file(name)
            self._logs[threading.get_ident()] = file
            buffered, self._buffer = "".join(self._buffer), []
            self._try(file.parent, log_files.prune, "old logs are not removed")
            self._append(file, buffered)
            self._try(file, lambda: log_files.hold(file))

    def add_run_id(self, pipeline: str, run_id: str) -> None:
        """Link a log under a run's id too; one that does not exist yet is created."""
        with self._lock:
            if threading.get_ident() not in self._logs:
                self.begin(log_files.new_log(pipeline, SYSTEM_CLOCK.now()))
            file = self._logs[threading.get_ident()]
            self._try(file, lambda: log_files.also_named(file, run_id))

    def _end(self, event: AttemptEnded) -> None:
        """Capture where an error came from; a log of a run that succeeded need not be held."""
        with self._lock:
            self._streams.discard(threading.get_ident())
            file = self._logs.get(threading.get_ident())
            if file is None:
                return
            if event.traceback:
                self._append(file, event.traceback)
            self._stamp(f"{event.pipeline}: {'failed' if event.failed else 'done'}")
            if not event.failed:
                self._try(file, lambda: log_files.let_go(file))
            if not self._alone:  # what a command for one pipeline reports about its end comes later
                del self._logs[threading.get_ident()]
                self._failed.discard(file)

    def _fail(self, event: StreamFailed | StreamWarning) -> None:
        """Keep a failure that a stream may recover from, and where it came from; or what else is worth a line."""
        from ematix_flow.serve.cli.common.stream_progress import failure

        with self._lock:
            self._stamp(failure(event))
            file = self._logs.get(threading.get_ident())
            if file is not None and isinstance(event, StreamFailed) and event.traceback:
                self._append(file, event.traceback)

    def _stamp(self, text: str) -> None:
        """Write a line with the time where several runs are captured; the only run of a command needs none."""
        file = self._logs.get(threading.get_ident())
        if file is not None and not self._alone:
            self._append(file, f"{SYSTEM_CLOCK.now():%Y-%m-%dT%H:%M:%SZ} {text}\n")

    def _note(self, event: Event) -> None:
        """Capture what is not shown, or only for a short time by a live display."""
        from ematix_flow.serve.cli.common.output import has_colours
        from ematix_flow.serve.cli.common.run_progress import sentence

        line = sentence(event)
        if line is not None and (not self._alone or has_colours(self._screen)):
            with self._lock:
                self._append(self._logs[threading.get_ident()], f"{line}\n")

    def _remember(self, text: str) -> None:
        self._buffer.append(text)
        while sum(map(len, self._buffer)) > _REMEMBERED:
            self._buffer.pop(0)

    def _append(self, file: Path, text: str) -> None:
        self._try(file, lambda: log_files.append(file, text))

    def _try(self, file: Path, write: Callable[[], None], otherwise: str = "the log of this run is not kept") -> None:
        """Change a log; one that cannot be written never stops a load: that is reported once, and it alone is given up."""
        if file in self._failed:
            return
        try:
            write()
        except OSError as error:
            self._failed.add(file)
            self._screen.write(f"warning: {otherwise} ({error}); see EMATIX_FLOW_LOGS_DIR.\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)


class _DetailHandler(logging.Handler):
    """Writes details to the logs of runs."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture

    def emit(self, record: logging.LogRecord) -> None:
        self._capture.write_detail(f"{record.getMessage()}\n")


@contextmanager
def captured(bus: Bus, run_ids: Callable[[], Iterable[str]] = tuple, pipeline: str | None = None) -> Iterator[Capture]:
    """Capture the output of this block, each run as the bus reports it; `pipeline` is the only one that a command runs.

    `run_ids` returns the ids of the runs in the run log. Inside of another capture there is only
    that one, so that nothing is captured twice.
    """
    screen = sys.stderr
    if isinstance(screen, Capture):
        yield screen
        return
    capture = Capture(screen, alone=pipeline is not None)
    bus.subscribe(capture.on_event)
    details = _DetailHandler(capture)
    detail_logger().addHandler(details)
    sys.stderr = capture
    try:
        yield capture
    finally:
        sys.stderr = screen
        detail_logger().removeHandler(details)
        for run_id in run_ids():
            capture.add_run_id(pipeline or "run", run_id)
