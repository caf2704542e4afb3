"""The files of captured logs: how they are named, found, kept small and removed when they are old; others decide what is written.

The log of an attempt is `<pipeline>-<UTC>-<attempt>.log`, with the instant of its slot or else of its start. The ids of its
runs are links to it. Names that are no plain file names are written so that no two of them share a file. Every project has a
folder of its own.
"""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.objects.names import safe_name
from ematix_flow.connect.config.project_name import current_project, project_digest

if TYPE_CHECKING:
    from datetime import datetime

LARGEST = 10 << 20
"""Bytes of one log; of a longer one the beginning and the end are retained."""
FILES = 200
DAYS = timedelta(days=14)
HELD_FILES = 200
HELD_DAYS = timedelta(days=60)
"""The bounds of logs of runs that failed or never ended, which those of other runs do not push out."""

_HEAD = LARGEST // 10
_TAIL = LARGEST // 2
_ATTEMPT = re.compile(r"-\d{8}T\d{6}(?:\.\d+)?Z-(\d+)$")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_FOLDER = 100
_LONGEST_FILE = 250
"""Characters of a file name, without its ending, that every system takes."""


def log_folder() -> Path:
    """Return the folder of the captured logs of this project."""
    return _folder_of(current_project().name)


def _folder_of(project: str) -> Path:
    """Return the folder of a project: one below that of all logs, which has those of none and of earlier versions."""
    folder = Path(os.environ.get("EMATIX_FLOW_LOGS_DIR") or Path.home() / ".ematix-flow" / "logs")
    name = _NOT_PLAIN.sub("_", Path(project).name)[:_LONGEST_FOLDER]  # the digest distinguishes them
    return folder / f"{name}-{project_digest(project)}" if project else folder


def log_file(name: str) -> Path:
    """Return the file of a name, which may hold characters that a file name may not."""
    return log_folder() / f"{file_stem(name)}.log"


def file_stem(name: str) -> str:
    """Return a name as a file name without its ending: another one for every name, and never too long."""
    attempt = _ATTEMPT.search(name)
    return safe_name(name) if attempt is None else f"{safe_name(name[: attempt.start()])}{attempt[0]}"


def _stems(reference: str) -> tuple[str, ...]:
    """Return the file names that a reference may have: ours, and that of earlier versions, unless others shared it."""
    pipeline = _ATTEMPT.sub("", reference.rpartition("@")[0] or reference)
    shared = _NOT_PLAIN.search(pipeline) is not None or len(reference) > _LONGEST_FILE
    earlier = () if shared else (_NOT_PLAIN.sub("_", reference),)
    return tuple(dict.fromkeys((file_stem(reference), *earlier)))


def started_log(pipeline: str, at: datetime, attempt: int = 1) -> str:
    """Return the name of the log of an attempt that began at an instant, or that belongs to the slot of that instant."""
    at = at.astimezone(UTC)
    return f"{pipeline}-{at:%Y%m%dT%H%M%S}{f'.{at:%f}' if at.microsecond else ''}Z-{attempt}"


def slot_log(slot: str, attempt: int) -> str | None:
    """Return the name of the log of an attempt at a slot, which is named `pipeline@instant`; None for other requests."""
    from ematix_flow.plan.schedule.cron import instant_of

    pipeline, _, instant = slot.rpartition("@")
    try:
        return started_log(pipeline, instant_of(instant), attempt) if pipeline else None
    except ValueError:
        return None


def new_log(pipeline: str, at: datetime, attempt: int = 1) -> str:
    """Return the name of the log of an attempt that begins now without a slot; others of that second have a number."""
    at = at.replace(microsecond=0)
    while log_file(started_log(pipeline, at, attempt)).exists():
        attempt += 1
    return started_log(pipeline, at, attempt)


def append(file: Path, text: str) -> None:
    """Write to the end of a log; only its owner may read it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(handle, "a", encoding="utf-8") as log:  # noqa: PTH123 - of a handle, for the mode
        log.write(text)
        size = log.tell()
    if size > LARGEST:
        _shorten(file)


def also_named(file: Path, name: str) -> None:
    """Link a log under another name too."""
    link = file.with_name(f"{file_stem(name)}.log")
    if link == file or (link.is_symlink() and link.readlink() == Path(file.name)):
        return
    link.unlink(missing_ok=True)
    link.symlink_to(file.name)


def hold(file: Path) -> None:
    """Keep a log longer than others until its run is known to have succeeded."""
    os.close(os.open(_hold_file(file), os.O_WRONLY | os.O_CREAT, 0o600))


def let_go(file: Path) -> None:
    """Keep a log no longer than others: its run has succeeded."""
    _hold_file(file).unlink(missing_ok=True)


def _hold_file(file: Path) -> Path:
    return file.with_name(f"{file.name.removesuffix('.log')}.held")


def prune() -> None:
    """Remove the logs beyond the bounds of succeeded runs and of others, with dangling links and markers."""
    folder = log_folder()
    if not folder.is_dir():
        return
    entries = list(folder.glob("*.log"))
    held = {hold_file.name.removesuffix(".held") for hold_file in folder.glob("*.held")}
    logs = sorted(((_changed(file), file) for file in entries if not file.is_symlink()), reverse=True)
    _bound([(changed, file) for changed, file in logs if file.name.removesuffix(".log") not in held], FILES, DAYS)
    _bound([(changed, file) for changed, file in logs if file.name.removesuffix(".log") in held], HELD_FILES, HELD_DAYS)
    for link in entries:
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)


def _bound(logs: list[tuple[float, Path]], files: int, age: timedelta) -> None:
    """Remove the oldest of logs that come newest first."""
    oldest = time.time() - age.total_seconds()
    for number, (changed, file) in enumerate(logs):
        if number >= files - 1 or changed < oldest:  # one more is about to be written
            file.unlink(missing_ok=True)
            let_go(file)


def find_logs(reference: str) -> list[Path]:
    """Return the logs that a reference may mean: an id, a slot, a pipeline (its newest), or the beginning of an id."""
    from ematix_flow.plan.schedule.cron import without_project

    project, reference = current_project(), without_project(reference)
    stems = _stems(reference)
    candidates = (_logs_in(_folder_of(name), stem) for name in (project.name, *project.legacy) for stem in stems)
    return next((logs for logs in candidates if logs), [])


def _logs_in(folder: Path, stem: str) -> list[Path]:
    exact = folder / f"{stem}.log"
    if exact.is_file():
        return [exact.resolve()]
    newest = _newest(folder, stem)
    if newest is not None:
        return [newest]
    return sorted({file.resolve() for file in folder.glob(f"{stem}*.log") if file.is_file()})


def pipeline_of(file: Path) -> str:
    """Return the name of the pipeline whose log a file is, as it is in the name of the file."""
    return _ATTEMPT.sub("", file.stem)


def _newest(folder: Path, pipeline: str) -> Path | None:
    """Return the log of a pipeline that was written last."""
    logs = [file for file in folder.glob(f"{pipeline}-*.log") if pipeline_of(file) == pipeline]
    return max(logs, key=lambda file: (_changed(file), file.name), default=None)


def _shorten(file: Path) -> None:
    """Keep the beginning and the end of a log, with a line between that marks the gap."""
    whole = file.read_bytes()
    cut = len(whole) - _HEAD - _TAIL
    notice = f"\n... {cut:,} bytes are left out here ...\n".encode()
    short = file.with_suffix(".short")
    handle = os.open(short, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "wb") as output:  # noqa: PTH123 - of a handle, for the mode
        output.write(whole[:_HEAD] + notice + whole[-_TAIL:])
    short.replace(file)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
