"""Runs the slots of a range of the past, one by one: resumable, and during the live schedule under its lease."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog.records import Backfill
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.engine.batch.events import emitting_attempt
from ematix_flow.engine.schedule.lease import PipelineLease
from ematix_flow.engine.schedule.slot_run import leased, own_slot_id, run_leased, slot_interval
from ematix_flow.errors import DeclareError, UnknownNameError
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.schedule.cron import (
    FIRST_YEAR,
    LAST_YEAR,
    count_slots,
    instant_of,
    is_in_calendar,
    slot_id,
    slot_text,
    slots_between,
)
from ematix_flow.plan.schedule.decide import Skip
from ematix_flow.plan.schedule.retry import MIN_SLOT_GAP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.schedule.slot_run import SlotRunner

OPEN, DONE, FAILED = "open", "done", "failed"
WAIT_SECONDS = 2.0
"""Pause while the live schedule has the pipeline."""


@dataclass(frozen=True, slots=True)
class SlotDone:
    """One slot of a backfill after its run."""

    slot: str
    result: Any = None
    error: str = ""
    number: int = 0
    of: int = 0


def open_backfill(
    log: RunLog, pipeline: Pipeline, first: datetime, last: datetime, *, again: bool = False
) -> tuple[Backfill, bool]:
    """Return the backfill of a range, and whether it was interrupted; `again` loads slots that ran before too."""
    if pipeline.schedule is None:
        message = f"pipeline {pipeline.name!r} has no schedule, so there are no slots to run"
        raise DeclareError(message, hint="give it schedule=, or run it now: flow run.", origin=pipeline.origin)
    if not (is_in_calendar(first) and is_in_calendar(last)):
        message = (
            f"the interval {slot_text(first)} to {slot_text(last)} is not in the years {FIRST_YEAR} to {LAST_YEAR}"
        )
        raise DeclareError(message, hint="give the slots that the pipeline has missed.")
    if last < first:
        message = f"the interval ends ({slot_text(last)}) before it begins ({slot_text(first)})"
        raise DeclareError(message)
    key = (pipeline.name, slot_text(first), slot_text(last), "again" if again else "")
    for existing in log.all(Backfill):
        if (
            existing.state in (OPEN, FAILED)
            and (existing.pipeline, existing.first, existing.last, existing.note) == key
        ):
            return existing, True
    created = Backfill(f"bf-{uuid.uuid4().hex}", *key[:3], note=key[3])
    return log.swap(None, created) or created, False


def find_backfill(log: RunLog, backfill_id: str) -> Backfill:
    """Return a backfill by its id or a unique beginning of it."""
    matching = [one for one in log.all(Backfill) if one.id.startswith(backfill_id)]
    if len(matching) != 1:
        message = f"no single backfill has the id {backfill_id!r}"
        raise UnknownNameError(message, hint="flow backfill prints the id when it begins.")
    return matching[0]


def slots_of(pipeline: Pipeline, backfill: Backfill) -> Iterator[str]:
    """Return the slots of a backfill one by one, the first instant included and the last one not."""
    schedule = pipeline.schedule or ""
    first, last = instant_of(backfill.first), instant_of(backfill.last)
    slots = slots_between(schedule, pipeline.timezone, first - MIN_SLOT_GAP, last)
    return (slot_text(slot) for slot in slots if first <= slot < last)


def slot_count(pipeline: Pipeline, backfill: Backfill) -> int:
    """Return how many slots a backfill has, without going through all of them."""
    first, last = instant_of(backfill.first), instant_of(backfill.last)
    return count_slots(pipeline.schedule or "", pipeline.timezone, first, last)


def run_backfill(
    pipeline: Pipeline, backfill: Backfill, runner: SlotRunner, stopped: Callable[[], bool] = lambda: False
) -> Iterator[SlotDone]:
    """Run the slots that are not done yet and yield each after its run; the first failure ends it, resumably."""
    total = slot_count(pipeline, backfill)
    done: list[str] = json.loads(backfill.done or "[]")
    known = frozenset(done)
    for number, slot in enumerate(slots_of(pipeline, backfill), 1):
        if slot in known or stopped():
            continue
        error, result = _run_slot(pipeline, backfill, slot, runner)
        if not error:
            done.append(slot)
        state = FAILED if error else DONE if len(done) == total else OPEN
        stored = runner.log.swap(backfill, replace(backfill, done=json.dumps(done), state=state))
        backfill = stored or find_backfill(runner.log, backfill.id)
        failpoint("backfill.noted")
        yield SlotDone(slot, result, error, number, total)
        if error:
            return


def _run_slot(pipeline: Pipeline, backfill: Backfill, slot: str, runner: SlotRunner) -> tuple[str, Any]:
    """Run one slot with the token that the live schedule has for it; one that ran then is found in the target."""
    again = f"#{backfill.id}" if backfill.note else ""
    display_name, name = f"{slot_id(pipeline.name, slot)}{again}", f"{own_slot_id(pipeline, slot, runner)}{again}"
    if not pipeline.targets and _has_run(runner.log, name):
        return "", {"recovered": True}
    while isinstance(token := leased(pipeline, runner), Skip):
        runner.options.clock.sleep(WAIT_SECONDS)
    with PipelineLease(runner.log, pipeline.name, token, runner.lease_seconds) as lease:
        try:
            within, bus = slot_interval(pipeline, slot), runner.options.bus
            with emitting_attempt(pipeline.name, display_name, 1, bus) as outcome:
                outcome.result = run_leased(pipeline, name, runner, lease, within)
        except Exception as error:  # noqa: BLE001 - the engine's boundary: a failed slot is an outcome
            return f"{type(error).__name__}: {safe_text(error)}", None
        return "", outcome.result


def _has_run(log: RunLog, name: str) -> bool:
    """Return whether the run log has a success of a slot of a plain function; a load queries its target."""
    run = log.get_run(name)
    return run is not None and run.run_id == name and run.status == "succeeded"
