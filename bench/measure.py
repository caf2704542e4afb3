"""Runs one command and gives its wall time, its processor time and its memory; it knows no contender."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Sample:
    """One command, measured."""

    seconds: float
    cpu: float
    """Seconds of processor time of the command and its children, without the database server."""
    python_mib: int
    """The most memory that its Python processes, and those of the warm engine, had together (0 when not watched)."""
    java_mib: int
    total_mib: int
    """The most that all of them had at one moment."""
    load: float
    """Load average of the machine when it began."""
    moments: dict[str, float] = field(default_factory=dict)
    """Seconds from the start to each named moment, where the command notes them."""


class CommandError(Exception):
    """A measured command failed; the message ends with what it said."""


def run(
    command: Sequence[str | Path],
    env: Mapping[str, str],
    notes: Path | None = None,
    *,
    watch: Callable[[], Iterable[int]] | None = None,
) -> Sample:
    """Run a command to its end; `notes` is a file in which it writes moments.

    With `watch` its memory is looked at, and that of the processes which `watch` gives: the engine works for it, and is
    none of its children.
    """
    load = os.getloadavg()[0]
    if notes is not None:
        notes.unlink(missing_ok=True)
    log = Path(env["HOME"]) / "command.log"
    began, clock = time.time(), time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=dict(env), cwd=env["HOME"], stdout=out, stderr=subprocess.STDOUT)
        peaks = _Peaks(process.pid, watch or tuple)
        if watch is not None:
            peaks.start()
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - clock
    peaks.stop.set()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise CommandError(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Sample(seconds, cpu, peaks.python, peaks.java, peaks.total, load, _times(notes, began))


def _times(notes: Path | None, began: float) -> dict[str, float]:
    """Return the first time of each moment."""
    first_times: dict[str, float] = {}
    if notes is not None and notes.exists():
        for line in notes.read_text().splitlines():
            name, at = line.split()
            first_times.setdefault(name, round(float(at) - began, 3))
    return first_times


class _Peaks(threading.Thread):
    """Looks at the memory of trees of processes a few times a second."""

    def __init__(self, root: int, others: Callable[[], Iterable[int]]) -> None:
        super().__init__(daemon=True)
        self.root, self.others, self.stop = root, others, threading.Event()
        self.python = self.java = self.total = 0

    def run(self) -> None:
        while not self.stop.wait(0.25):
            memory = {"python": 0, "java": 0}
            for name, kib in _trees(self.root, *self.others()):
                memory["java" if name == "java" else "python"] += kib
            self.python = max(self.python, memory["python"] // 1024)
            self.java = max(self.java, memory["java"] // 1024)
            self.total = max(self.total, sum(memory.values()) // 1024)


def tree_memory(root: int) -> int:
    """Return the memory of a process and everything below it, in KiB."""
    return sum(kib for _, kib in _trees(root))


def _trees(*roots: int) -> list[tuple[str, int]]:
    """Return the name and the proportional memory of some processes and of every one below them, each once."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    processes, waiting, visited = [], [*roots], set[int]()
    while waiting:
        pid = waiting.pop()
        if pid in visited:
            continue
        visited.add(pid)
        waiting += children.get(pid, [])
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        shared = [int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")]
        processes.append((name, shared[0] if shared else 0))
    return processes
