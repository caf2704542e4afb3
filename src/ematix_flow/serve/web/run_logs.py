"""The captured log of a run, read in parts; log lines are text and are shown as such."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import redact
from ematix_flow.serve.cli.common.log_files import find_logs, slot_log

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.records import RunRecord

PART = 256 << 10
"""Bytes of a log that one response holds at most."""


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
        data = opened.read(PART)
    whole = data if over and start + len(data) >= size else data[: data.rfind(b"\n") + 1]
    end = start + len(whole)
    return {
        "text": redact(whole.decode("utf-8", "replace")),
        "offset": start,
        "next_offset": end,
        "size": size,
        "complete": over and end >= size,
        "available": True,
    }


def log_of(run: RunRecord) -> Path | None:
    """Return the file of a run's log: by its id, or by the slot that it answers."""
    slot = slot_log(run.request_id, run.attempt) if run.request_id else None
    for reference in filter(None, (run.run_id, slot, run.request_id)):
        files = find_logs(reference)
        if len(files) == 1:
            return files[0]
    return None
