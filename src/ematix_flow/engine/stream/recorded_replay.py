"""A replay of dead letters as a run of the run log, so that it is in the history like every other one."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.stream.stream import Stream


def recorded_replay(log: RunLog, stream: Stream, replay: Callable[[], dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Replay dead letters under a record of their own; return the id of the run and what became of them."""
    run_id = f"{stream.name}-replay-{uuid.uuid4().hex[:12]}"
    record = RunRecord(run_id, stream.name, "running", SYSTEM_CLOCK.now().isoformat(), kind="replay")
    log.record(record)
    try:
        report = replay()
    except Exception as error:
        ended = SYSTEM_CLOCK.now().isoformat()
        log.record(replace(record, status="failed", finished_at=ended, error_summary=safe_text(error)[:2000]))
        raise
    counts: dict[str, Any] = {
        "rows_inserted": int(report.get("succeeded", 0)),
        "rows_rejected": int(report.get("redeadlettered", 0)),
    }
    ended = SYSTEM_CLOCK.now().isoformat()
    log.record(replace(record, status="succeeded", finished_at=ended, extras={"report": report}, **counts))
    return run_id, report
