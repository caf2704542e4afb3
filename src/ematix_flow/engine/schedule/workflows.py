"""Starts and ends workflows in the run log; what their jobs do then is decided like for every other pipeline."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.engine.schedule.message_triggers import new_messages
from ematix_flow.errors import FlowError
from ematix_flow.plan.schedule.workflows import advanced, set_off

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.schedule.workflow import Workflow
    from ematix_flow.plan.schedule.decide import Situation
    from ematix_flow.records import PipelineState


def advance_workflows(at: Situation, log: RunLog) -> Situation:
    """Return the situation after all due workflows were started or ended; one of many schedulers does each step."""
    states = dict(at.states)
    changed = True
    while changed:  # a workflow that ends may start another one
        changed = False
        for workflow in at.project.workflows.values():
            after = _after(workflow, replace(at, states=states))
            if after is None:
                continue
            stored = log.swap(states.get(workflow.key), after)
            states[workflow.key] = stored or log.find(type(after), workflow.key) or after
            changed = changed or stored is not None
    return replace(at, states=states)


def _after(workflow: Workflow, at: Situation) -> PipelineState | None:
    state = at.state(workflow.key)
    if workflow.on_message is None or state.slot_status == "running":
        return advanced(workflow, at)
    if state.paused:
        return None
    try:
        trigger_result = new_messages(workflow.on_message, state.trigger)
    except FlowError as error:
        # One broker that is away must not hold up everything else that is due.
        text = f"workflow {workflow.name!r} cannot be checked for messages: {safe_text(error)}"
        warnings.warn(text, UserWarning, stacklevel=2)
        return None
    if trigger_result is None:
        return None
    return (
        set_off(workflow, trigger_result.position, at)
        if trigger_result.triggered
        else replace(state, trigger=trigger_result.position)
    )
