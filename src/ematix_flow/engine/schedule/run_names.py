"""What a name on the command line means: a pipeline, a workflow, a slot or a run, by the beginning of its id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.workflow import workflow_key
from ematix_flow.errors import UnknownNameError, did_you_mean
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.records import RunRecord


@dataclass(frozen=True, slots=True)
class Meant:
    """A pipeline or workflow, under the name that the run log knows it by, and the run of it that was named, if one was."""

    pipeline: str
    run: RunRecord | None = None


def meant(log: RunLog, reference: str) -> Meant:
    """Return what a name means: something declared first, then a name of the run log, then a slot or a run."""
    if reference in PROJECT.pipelines or reference in PROJECT.streams:
        return Meant(reference)
    if reference in PROJECT.workflows:
        return Meant(workflow_key(reference))
    states = {state.pipeline for state in log.all(PipelineState)}
    known = next(
        (name for name in (reference, workflow_key(reference), reference.partition("@")[0]) if name in states), None
    )
    if known is not None:
        return Meant(known)
    run = log.get_run(reference)
    if run is not None:
        return Meant(run.pipeline, run)
    if log.list_runs(pipeline=reference, limit=1)[0]:
        return Meant(reference)
    hint = did_you_mean(reference, {*PROJECT.pipelines, *PROJECT.workflows, *states})
    raise UnknownNameError(f"no pipeline and no single run is named {reference!r}", hint=hint)
