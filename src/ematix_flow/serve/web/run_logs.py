"""The captured log of a run, read in parts; log lines are text and are shown as such."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from ematix_flow.connect.config.redact import redact
from ematix_flow.serve.cli.common.log_files import find_logs, slot_log

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.records import RunRecord

PART = 256 << 10
"""Bytes of a log that one response holds at most; of a line that is longer, only the beginning is shown."""
_AHEAD = 16 << 10
"""Bytes behind a part that are looked at for the rest of a secret."""


def log_part(run: RunRecord, offset: int) -> dict[str, Any]:
    """Return the whole lines of a run's log from a byte on; without an offset of a long one, its end."""
    file = log_of(run)
    over = run.finished_at is not None
    if file is None:
        return {"text": "", "offset": 0, "next_offset": 0, "size": 0, "complete": over, "available": False}
    size = file.stat().st_size
    start = min(offset, size)
    with file.open("rb") as opened:
        opened.seek(start)
        text, length = _lines(opened, over=over)
    return {
        "text": text,
        "offset": start,
        "next_offset": start + length,
        "size": size,
        "complete": over and start + length >= size,
        "available": True,
    }


def _lines(opened: BinaryIO, *, over: bool) -> tuple[str, int]:
    """Return the next whole lines as they are shown, and how many bytes they are."""
    data = opened.read(PART + _AHEAD)
    part = data[:PART]
    whole = part if over and len(data) <= PART else part[: part.rfind(b"\n") + 1]
    if whole or len(part) < PART:
        return redact(whole.decode("utf-8", "replace")), len(whole)
    length = _line_length(data, opened, over=over)
    if not length:
        return "", 0
    # A secret at the end of what is shown is replaced before it is cut off.
    shown = redact(data[:length].decode("utf-8", "replace"))[:PART]
    return f"{shown.rstrip()} ... ({length:,} bytes in one line, of which this is the beginning)\n", length


def _line_length(data: bytes, opened: BinaryIO, *, over: bool) -> int:
    """Return the bytes of a line that begins with `data`; none while it is written."""
    length = 0
    while data:
        end = data.find(b"\n") + 1
        if end:
            return length + end
        length, data = length + len(data), opened.read(PART)
    return length if over else 0


def log_of(run: RunRecord) -> Path | None:
    """Return the file of a run's log: by its id, or by the slot that it answers."""
    slot = slot_log(run.request_id, run.attempt) if run.request_id else None
    for reference in filter(None, (run.run_id, slot, run.request_id)):
        files = find_logs(reference)
        if len(files) == 1:
            return files[0]
    return None
