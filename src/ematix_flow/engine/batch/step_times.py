"""How long the steps of a load take: noted as they begin and end, stored with the run; it decides nothing."""

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
    current: str | None = None
    """The step that is under way; None before the first and after the last."""
    _began: datetime | None = None
    _ended: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, name: str) -> None:
        """End the step before, and begin the next one."""
        self.end()
        self.current, self._began = name, self.clock.now()

    def end(self) -> None:
        """End the step that is under way."""
        if self.current is None or self._began is None:
            return
        seconds = (self.clock.now() - self._began).total_seconds()
        started = self._began.isoformat()
        self._ended.append({"step": self.current, "started_at": started, "seconds": round(seconds, 3)})
        self.current, self._began = None, None

    def as_extras(self) -> dict[str, Any]:
        """Return the steps as the run log stores them; the one under way ends now."""
        self.end()
        return {"steps": self._ended} if self._ended else {}
