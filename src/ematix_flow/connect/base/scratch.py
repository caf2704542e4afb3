"""Private temporary folders that live as long as their process; a killed process's folder is removed by a later one.

Every folder of ours in the temporary folder is made here. It holds a lock for as long as its process lives, which says
more than a process id: those come back, and mean nothing on another host or in another container.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "ematix-flow-"
_LOCK = "in-use"
_YOUNG_SECONDS = 60
"""A folder is not inspected before this age: its process may be about to take its lock."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder that only this user can enter, and the lock that says its process lives."""

    folder: Path
    lock: int
    owner: int

    def remove(self) -> None:
        """Remove the folder with everything in it; a forked child has the object too, but not the folder."""
        if os.getpid() == self.owner:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):
                os.close(self.lock)


def open_scratch(purpose: str) -> Scratch:
    """Return a new folder, after removing those of processes that are gone."""
    sweep_once()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-"))
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return Scratch(folder, lock, os.getpid())


@contextmanager
def scratch_folder(purpose: str) -> Iterator[str]:
    """Return an empty folder that is removed after the block."""
    scratch = open_scratch(purpose)
    try:
        files = scratch.folder / "files"
        files.mkdir(mode=0o700)
        yield str(files)
    finally:
        scratch.remove()


def sweep_once() -> None:
    """Remove what processes that are gone have left in the temporary folder, once in the life of this one."""
    _sweep_once(os.getpid(), tempfile.gettempdir())


@cache
def _sweep_once(pid: int, parent: str) -> None:
    del pid  # a forked child is another process
    sweep(Path(parent))


def sweep(parent: Path) -> None:
    """Remove our folders whose lock no process holds; several processes may do so at the same time."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            state = folder.lstat()
            # One that is a link, or that belongs to another user, is not ours to judge.
            if folder.is_symlink() or state.st_uid != os.geteuid() or not folder.is_dir():
                continue
            if time.time() - state.st_mtime > _YOUNG_SECONDS:
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        folder.rmdir()  # of a process that died before it had a lock: there is nothing in it, or it is not ours
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
