"""Whether a process runs what is due: a scheduler that leads, or a `flow run-due` that was called lately."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.records import Claim, PeriodicJob, format_instant, instant
from ematix_flow.declare.project import SCHEDULER_LEASE
from ematix_flow.errors import RunLogError
from ematix_flow.plan.schedule.cron import slot_text

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog

LEADER = SCHEDULER_LEASE
"""The lease that one scheduler has at a time."""

LATELY = timedelta(minutes=5)
"""A `flow run-due` that was called earlier than this is not called regularly any more."""


@dataclass(frozen=True, slots=True)
class SchedulerLiveness:
    """The process that runs what is due."""

    alive: bool
    text: str
    """As text: which process it is, or when the last one was active."""


def scheduler_liveness(log: RunLog) -> SchedulerLiveness:
    """Return the process that runs what is due, by the clock of the run log."""
    lead, round_, now = log.find(Claim, LEADER), log.find(PeriodicJob, _job_name(log)), log.backend.now()
    if lead is not None and lead.claim_token and instant(lead.expires_at) > now:
        return SchedulerLiveness(alive=True, text=f"{lead.worker_id} leads")
    timestamps = [instant(lead.claimed_at)] if lead is not None and lead.claimed_at else []
    if round_ is not None:
        last = instant(round_.done_at)
        if now - last < LATELY:
            return SchedulerLiveness(alive=True, text=f"flow run-due was called at {slot_text(last)}")
        timestamps.append(last)
    ever = f"the last one was seen at {slot_text(max(timestamps))}" if timestamps else "the run log has never seen one"
    return SchedulerLiveness(alive=False, text=f"no scheduler is alive and no flow run-due was called lately; {ever}")


def note_round(log: RunLog) -> None:
    """Record that this process has run what is due; a run log that is away gets nothing."""
    with suppress(RunLogError):
        previous = log.find(PeriodicJob, _job_name(log))
        log.swap(previous, PeriodicJob(_job_name(log), format_instant(log.backend.now())))


def _job_name(log: RunLog) -> str:
    return f"run-due {log.project.digest}".strip()
