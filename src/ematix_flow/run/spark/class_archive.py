"""Keeps prepared Java classes (AppCDS archives) in the user's cache folder; a run never waits for one and never needs one.

An archive fits one build of Java and one list of jars, so both are in its name. A stamp next to it holds its size and
time of writing: an archive that does not match its stamp is not used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ematix_flow.run.spark.java import Java

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_UNUSED_SECONDS = 30 * 86_400
_RETRY_SECONDS = 3_600
LOCK = "training.lock"


@dataclass(frozen=True, slots=True)
class Archive:
    """The location of one archive, whether or not it is there."""

    file: Path

    @property
    def stamp(self) -> Path:
        """The file that vouches for the archive."""
        return self.file.with_suffix(".ok")

    @property
    def failed(self) -> Path:
        """Return the file that holds when building it last failed."""
        return self.file.with_suffix(".failed")

    @property
    def usable(self) -> bool:
        """True when the archive is the one that its stamp was written for."""
        try:
            return self.stamp.read_text("ascii") == _identity(self.file)
        except (OSError, UnicodeDecodeError):
            return False


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's cache folder for this package, or None when there is none that is safe to trust."""
    cache = environ.get("XDG_CACHE_HOME") or (Path(environ["HOME"], ".cache") if environ.get("HOME") else None)
    if cache is None:
        return None
    folder = Path(cache, "ematix-flow")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except OSError:
        return None
    # Java runs what is in an archive, so no other user may be able to write it.
    private = state.st_uid == os.geteuid() and not state.st_mode & 0o022
    return folder if private and os.access(folder, os.W_OK) else None


def archive_for(java: Java, jars: Sequence[str], environ: Mapping[str, str]) -> Archive | None:
    """Return the archive's location for this Java and these jars, or None when there is no folder for it."""
    folder = cache_folder(environ)
    return Archive(folder / f"spark-{_key(java, jars)}.jsa") if folder else None


def options_to_use(archive: Archive | None) -> tuple[str, ...]:
    """Return the Java options that use the archive, if it can be used."""
    if archive is None or not archive.usable:
        return ()
    with contextlib.suppress(OSError):
        os.utime(archive.stamp)  # the last use decides what is cleaned away
    return (f"-XX:SharedArchiveFile={archive.file}", "-Xshare:auto", *_SILENT)


def options_to_record(file: Path) -> tuple[str, ...]:
    """Return the Java options that write an archive when Java ends."""
    return (f"-XX:ArchiveClassesAtExit={file}", *_SILENT)


def build_in_background(archive: Archive | None) -> None:
    """Start a process of low priority that builds the archive, unless it is there or failed recently."""
    if archive is None or archive.usable or _age(archive.failed) < _RETRY_SECONDS:
        return
    quiet = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        builder = subprocess.Popen(
            [sys.executable, "-m", "ematix_flow.run.spark.class_archive_training"],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
        builder.returncode = 0  # no code waits for it, and Python need not warn of that


@contextlib.contextmanager
def sole_builder(archive: Archive) -> Iterator[bool]:
    """Hold the lock of the cache folder; return False when another process builds any archive already."""
    with archive.file.with_name(LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        # The holder of the lock is the only builder: parts are of one that was killed.
        for part in archive.file.parent.glob("spark-*.part"):
            part.unlink(missing_ok=True)
        yield True


def publish(archive: Archive, recorded: Path) -> None:
    """Rename a recorded archive to its final name, stamp it, and remove those that were not used for a month."""
    archive.stamp.unlink(missing_ok=True)
    recorded.replace(archive.file)
    draft = recorded.with_suffix(".draft")
    draft.write_text(_identity(archive.file), "ascii")
    draft.replace(archive.stamp)
    archive.failed.unlink(missing_ok=True)
    for stamp in archive.file.parent.glob("spark-*.ok"):
        if _age(stamp) > _UNUSED_SECONDS:
            stamp.unlink(missing_ok=True)
            stamp.with_suffix(".jsa").unlink(missing_ok=True)


def discard(archive: Archive | None) -> None:
    """Make sure that this archive is not used again."""
    if archive is not None:
        archive.stamp.unlink(missing_ok=True)


def _key(java: Java, jars: Sequence[str]) -> str:
    digest = hashlib.sha256(f"{java.command}\n{java.build}\n".encode())
    for jar in jars:
        digest.update(f"{jar} {_identity(Path(jar))}\n".encode())
    return digest.hexdigest()[:24]


def _identity(file: Path) -> str:
    state = file.stat()
    return f"{state.st_size} {state.st_mtime_ns}"


def _age(file: Path) -> float:
    """Return the seconds since the file was written; endless for one that is not there."""
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return float("inf")
