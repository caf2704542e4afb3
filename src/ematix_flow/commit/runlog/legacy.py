"""The run log under the names that programs already call: attempts, outcomes and actions, in `log`'s records."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.records import Action, format_instant, instant
from ematix_flow.errors import UnknownNameError
from ematix_flow.records import PipelineState, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.runlog.records import R

REQUESTED = "requested"
ACTION_REQUESTED = "asked"
ACTION_CLAIMED = "taken"


@dataclass(frozen=True, slots=True)
class AttemptState:
    """How often a pipeline was tried since it last succeeded."""

    attempt_count: int
    last_attempt_at: datetime | None = None
    gave_up: bool = False


class LegacyNames(ABC):
    """Methods in terms of records and runs."""

    @abstractmethod
    def all(self, kind: type[R]) -> list[R]:
        """Return every record of a kind."""

    @abstractmethod
    def swap(self, before: R | None, after: R) -> R | None:
        """Write a record in place of exactly `before`."""

    @abstractmethod
    def change_state(self, pipeline: str, change: Callable[[PipelineState], PipelineState]) -> PipelineState:
        """Change the state of a pipeline."""

    @abstractmethod
    def record(self, run: RunRecord) -> None:
        """Write or replace one run."""

    @abstractmethod
    def get_run(self, run_id: str) -> RunRecord | None:
        """Return one run by its id."""

    # Outcomes and attempts

    def record_run(self, name: str, ts: datetime, success: bool) -> None:  # noqa: FBT001 - as it is called already
        """Record when a pipeline ran last and how that went."""
        at, outcome = format_instant(ts), "success" if success else "failure"

        def changed(state: PipelineState) -> PipelineState:
            succeeded = at if success else state.last_success_at
            return replace(state, last_run_at=at, last_outcome=outcome, last_success_at=succeeded)

        self.change_state(name, changed)

    def record_attempt(self, name: str, attempt: AttemptState) -> None:
        """Record how often a pipeline was tried."""
        at = format_instant(attempt.last_attempt_at) if attempt.last_attempt_at else ""
        status = "gave_up" if attempt.gave_up else "failed"
        self.change_state(
            name, lambda state: replace(state, attempt=attempt.attempt_count, last_attempt_at=at, slot_status=status)
        )

    def clear_attempt_state(self, name: str) -> None:
        """Forget how often a pipeline was tried, as after a success."""
        cleared = {"attempt": 0, "first_attempt_at": "", "last_attempt_at": "", "next_attempt_at": "", "error": ""}
        self.change_state(name, lambda state: replace(state, slot_status="succeeded", **cleared))  # type: ignore[arg-type]

    def restore_into_process(self) -> dict[str, PipelineState]:
        """Return the state of every pipeline by its name; the process itself stores nothing."""
        return {state.pipeline: state for state in self.all(PipelineState)}

    def attempt_state(self, name: str) -> AttemptState | None:
        """Return how often a pipeline was tried since it last succeeded; None when it was not."""
        state = self.restore_into_process().get(name)
        if state is None or not state.attempt:
            return None
        at = instant(state.last_attempt_at) if state.last_attempt_at else None
        return AttemptState(state.attempt, at, state.slot_status == "gave_up")

    # Requested actions

    def record_run_record(self, run: RunRecord) -> None:
        """Write or replace one run."""
        self.record(run)

    def enqueue_restart(self, prior: RunRecord | str, from_step: str | None = None) -> str:
        """Request a run that goes on where an earlier one failed; return the id of the request."""
        return self._enqueue("restart", prior, from_step or "")

    def enqueue_rerun(self, prior: RunRecord | str) -> str:
        """Request an earlier run again from the beginning; return the id of the request."""
        return self._enqueue("rerun", prior, "")

    def _enqueue(self, kind: str, prior: RunRecord | str, from_step: str) -> str:
        run = self.get_run(prior) if isinstance(prior, str) else prior
        if run is None:
            raise UnknownNameError(f"the run log has no single run {prior!r}")
        requested_at = format_instant(datetime.now(UTC))
        request = f"req-{uuid.uuid4().hex}"
        extras: dict[str, object] = {"action": kind, "prior_run_id": run.run_id, "from_step": from_step}
        self.record(RunRecord(request, run.pipeline, REQUESTED, requested_at, kind=run.kind, extras=extras))
        self.add_action(Action("", kind, run.pipeline, run.run_id, from_step, note=request, asked_at=requested_at))
        return request

    def set_pause(self, pipeline: str, paused: bool = True) -> None:  # noqa: FBT001, FBT002 - as it is called already
        """Pause a pipeline, or end its pause."""
        self.change_state(pipeline, lambda state: replace(state, paused=paused))

    def pending_actions(self, pipeline: str | None = None) -> list[Action]:
        """Return the requested actions that no process has claimed, the oldest first."""
        waiting = [a for a in self.all(Action) if a.state == ACTION_REQUESTED and pipeline in (None, a.pipeline)]
        return sorted(waiting, key=lambda action: (action.asked_at, action.id))

    def consume_requested_run(self, request_id: str) -> RunRecord | None:
        """Claim a requested run, so that no other process does; return None when there is none or it is claimed."""
        action = next((a for a in self.pending_actions() if a.note == request_id), None)
        if action is None or self.swap(action, replace(action, state=ACTION_CLAIMED)) is None:
            return None
        return self.get_run(request_id)

    def add_action(self, action: Action) -> Action:
        """Write a requested action under an id of its own."""
        stored = self.swap(None, replace(action, id=f"act-{uuid.uuid4().hex}"))
        return stored or self.add_action(action)
