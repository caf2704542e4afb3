"""What a name on the command line means: a pipeline, a workflow, a slot or a run, by the beginning of its id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.records import Claim, RequestRow
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.workflow import workflow_key
from ematix_flow.errors import UnknownNameError, did_you_mean
from ematix_flow.plan.schedule.cron import instant_of, slot_id, slot_of
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.records import RunRecord


@dataclass(frozen=True, slots=True)
class Meant:
    """A pipeline or workflow, under the name that the run log knows it by, and the run or slot of it that was named, if one was."""

    pipeline: str
    run: RunRecord | None = None
    slot: str = ""

    @property
    def run_id(self) -> str:
        """Return the id of the named run; empty when none was."""
        return self.run.run_id if self.run else ""

    @property
    def named_slot(self) -> str:
        """Return the slot that was named, or that of the named run; empty for a run without one."""
        if self.run is None or self.slot:
            return self.slot
        return slot_of(self.run.request_id or self.run.run_id, self.pipeline) or ""

    def is_of(self, slot: str) -> bool:
        """Return whether a slot was named, or a run of it."""
        return bool(slot and self.named_slot) and instant_of(slot) == instant_of(self.named_slot)

    def __str__(self) -> str:
        return (
            f"run {self.run_id}" if self.run else f"slot {self.slot} of {self.pipeline}" if self.slot else self.pipeline
        )


def meant(log: RunLog, reference: str) -> Meant:
    """Return what a name means: something declared first, then a name of the run log, then a slot or a run."""
    states = {state.pipeline for state in log.all(PipelineState)}
    known = _known_as(reference, states)
    if known is not None:
        return Meant(known)
    slot = _slot_named(log, reference, states)
    if slot is not None and slot.run is not None:
        return slot
    run = log.get_run(reference)
    if run is not None:
        return Meant(run.pipeline, run)
    if slot is not None:
        return slot
    if any(log.find(kind, reference) for kind in (Claim, RequestRow)) or log.list_runs(pipeline=reference, limit=1)[0]:
        return Meant(reference)
    hint = did_you_mean(reference, {*PROJECT.pipelines, *PROJECT.workflows, *states})
    raise UnknownNameError(f"no pipeline and no single run is named {reference!r}", hint=hint)


def _known_as(name: str, states: AbstractSet[str]) -> str | None:
    """Return the name under which the run log knows a pipeline, stream or workflow."""
    if name in PROJECT.pipelines or name in PROJECT.streams:
        return name
    if name in PROJECT.workflows:
        return workflow_key(name)
    return next((key for key in (name, workflow_key(name)) if key in states), None)


def _slot_named(log: RunLog, reference: str, states: AbstractSet[str]) -> Meant | None:
    """Return what `NAME@SLOT` means: the slot of a pipeline, with its newest run where the run log has one."""
    name, _, text = reference.rpartition("@")
    pipeline = _known_as(name, states)
    if pipeline is None:
        return None
    slot = None if "#" in text else slot_of(reference, name)
    attempts = log.runs_of_request(slot_id(pipeline, slot or text, log.project.in_slots if slot else ""), pipeline)
    if slot is None and not attempts:
        return None
    return Meant(pipeline, attempts[-1] if attempts else None, slot or "")
