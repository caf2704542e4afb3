"""How one run of a stream was requested: until when, from where, and its observers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.engine.batch.options import Options
from ematix_flow.observe.bus import Bus

if TYPE_CHECKING:
    from ematix_flow.clock import Clock
    from ematix_flow.commit.runlog.log import RunLog


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of a run that are not part of the declaration."""

    available_now: bool = False
    """Load what is there at the start, then end."""
    begin: str | None = None
    """Where a run over a range begins: a name, an instant or a position as JSON."""
    end: str | None = None
    """Where a run over a range ends; what is at that position is not read."""
    most: int | None = None
    """Messages of one batch at most, where the declaration has no limit."""
    restart: bool = False
    """Try again after an error, with growing pauses, instead of ending."""
    max_backoff: float = 60.0
    """Seconds of the longest pause."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to end the run after its batch."""
    run_log: RunLog | None = None
    """Where the run is recorded; nowhere if neither this nor an address is given."""
    run_log_url: str | None = None
    bus: Bus = field(default_factory=Bus)
    clock: Clock = SYSTEM_CLOCK
    spark: Any = None
    """A session to borrow; the engine builds its own when it needs one."""

    @property
    def load(self) -> Options:
        """Return the options of the load of one batch."""
        return Options(bus=self.bus, clock=self.clock, spark=self.spark)

    @property
    def ranged(self) -> bool:
        """Return whether a range of the past is run over, apart from the stream itself."""
        return self.begin is not None or self.end is not None
