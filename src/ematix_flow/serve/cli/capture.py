"""Keeps what a run says on stderr in a file per run, when the environment asks for it; it keeps no results."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ematix_flow.events import RunCommitted, RunFailed, RunStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ematix_flow.events import Event


def log_folder() -> Path:
    """Give the folder of captured logs."""
    return Path(os.environ.get("EMATIX_FLOW_LOGS_DIR") or Path.home() / ".ematix-flow" / "logs")


def log_file(run_id: str) -> Path:
    """Give the file of a run's log; an id may hold characters that a file name may not."""
    return log_folder() / f"{re.sub(r'[^A-Za-z0-9._-]', '_', run_id)}.log"


def is_wanted() -> bool:
    """Say whether the environment asks for logs to be kept."""
    return os.environ.get("EMATIX_FLOW_CAPTURE_LOGS") == "1"


class Capture:
    """Stands in for stderr: what passes goes to the screen and to the log of each run that is known so far."""

    def __init__(self, screen: IO[str]) -> None:
        self._screen = screen
        self._said: list[str] = []
        self._files: set[Path] = set()
        self._failed = False

    def write(self, text: str) -> int:
        """Show a text and keep it."""
        from ematix_flow.connect.redact import redact

        kept = redact(text)
        self._said.append(kept)
        for file in self._files:
            self._append(file, kept)
        return self._screen.write(text)

    def on_event(self, event: Event) -> None:
        """Begin a log as soon as the id of a run is known, so that a crash leaves one behind."""
        if isinstance(event, RunStarted | RunCommitted | RunFailed):
            self.keep(event.run_id)

    def keep(self, run_id: str) -> None:
        """Write everything said so far under a run's id, and what follows too."""
        file = log_file(run_id)
        if file not in self._files:
            self._append(file, "".join(self._said))
            self._files.add(file)

    def _append(self, file: Path, text: str) -> None:
        """Write to a log; one that cannot be written never stops a load, so it is told once and given up."""
        if self._failed:
            return
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as log:
                log.write(text)
        except OSError as error:
            self._failed = True
            self._screen.write(f"warning: the log of this run is not kept ({error}); see EMATIX_FLOW_LOGS_DIR.\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)


@contextmanager
def captured(run_ids: Callable[[], Iterable[str]]) -> Iterator[Capture]:
    """Keep what is said inside; `run_ids` gives the ids under which the run log knows what happened."""
    capture = Capture(sys.stderr)
    screen, sys.stderr = sys.stderr, capture
    try:
        yield capture
    finally:
        sys.stderr = screen
        for run_id in run_ids():
            capture.keep(run_id)
