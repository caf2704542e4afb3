"""Private temporary folders that live as long as their process; a killed process's folder is removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "ematix-flow-spark-"
_LOCK = "in-use"
_YOUNG_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder that only this user can enter, and the lock that says its process lives."""

    folder: Path
    lock: int

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)


def open_scratch() -> Scratch:
    """Give a fresh folder, after removing those of processes that are gone."""
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return Scratch(folder, lock)


def _sweep(parent: Path) -> None:
    """Remove our folders that nobody holds; the lock decides, since process ids come back."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            state = os.fstat(lock)
            # A young one may be about to take its lock.
            if state.st_uid == os.geteuid() and time.time() - state.st_mtime > _YOUNG_SECONDS:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
