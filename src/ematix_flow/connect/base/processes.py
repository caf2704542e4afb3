"""What this machine knows about a process by its number; a process of another host is not known here."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def process_start(pid: int) -> str:
    """Return what distinguishes a process from a later one with the same number.

    Empty when it is gone, or cannot be inspected.
    """
    try:
        fields = (_PROC / str(pid) / "stat").read_text("ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    # A dead process whose parent has not waited for it yet is gone all the same.
    return "" if len(fields) < 20 or fields[0] in ("Z", "X") else fields[19]  # noqa: PLR2004 - as proc(5) counts


def may_run(pid: int) -> bool:
    """Return whether a process runs, or whether that cannot be known."""
    return bool(process_start(pid)) or not (_PROC / "self" / "stat").exists()
