"""How far a load is and how long its steps take: noted as they begin and end, stored with the run; it decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.clock import Clock

OPEN, PLAN, EXPAND, STAGE, COMMIT, CLEAN_UP = "open", "plan", "expand", "stage", "commit", "clean up"


@dataclass(slots=True)
class StepTimes:
    """The steps of one load, in the order they began; one that is tried again is there again."""

    clock: Clock = SYSTEM_CLOCK
    watched: bool = False
    """Whether rows are counted while they are staged, for another process that shows them."""
    rows: int = 0
    """Rows that are staged so far."""
    _unfinished: tuple[str, datetime] | None = None
    """One value, so that another thread never sees a step with the time of the one before."""
    _ended: list[dict[str, Any]] = field(default_factory=list)

    @property
    def current(self) -> str | None:
        """Return the step that is under way; None before the first and after the last."""
        return None if self._unfinished is None else self._unfinished[0]

    def begin(self, name: str) -> None:
        """End the step before, and begin the next one."""
        self.end()
        self.rows = 0
        self._unfinished = (name, self.clock.now())

    def end(self) -> None:
        """End the step that is under way."""
        if self._unfinished is None:
            return
        name, began = self._unfinished
        seconds = (self.clock.now() - began).total_seconds()
        self._ended.append({"step": name, "started_at": began.isoformat(), "seconds": round(seconds, 3)})
        self._unfinished = None

    def so_far(self) -> dict[str, Any]:
        """Return the steps that have ended, and the one under way with the rows that it has staged; from any thread."""
        unfinished, known = self._unfinished, {"steps": list(self._ended)}
        if unfinished is None:
            return known
        name, began = unfinished
        return {**known, "current_step": {"step": name, "started_at": began.isoformat()}, "rows_staged": self.rows}

    def as_extras(self) -> dict[str, Any]:
        """Return the steps as the run log stores them; the one under way ends now."""
        self.end()
        return {"steps": self._ended} if self._ended else {}
