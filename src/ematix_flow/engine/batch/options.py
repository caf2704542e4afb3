"""How one run was requested: its bus, its clock and its run log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.observe.bus import Bus

if TYPE_CHECKING:
    from ematix_flow.clock import Clock
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.connect.base.cancellation import Halt


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run that are not part of the declaration."""

    new: bool = False
    """Begin a new load even if an earlier request was interrupted."""
    slot: str | None = None
    """The scheduled instant of the run; None for a requested run."""
    run_log: RunLog | None = None
    bus: Bus = field(default_factory=Bus)
    clock: Clock = SYSTEM_CLOCK
    spark: Any = None
    """A session to borrow; the engine builds its own when it needs one."""
    source_frame: Any = None
    """Rows to use instead of the declared source; for tests of a user's pipeline."""
    request: str = ""
    """The key of an interrupted request, where the pipeline's name is not enough."""
    attempt: int = 1
    """Which attempt it is for the rows of `replays`."""
    last_attempt: bool = False
    """What is rejected now is not tried again."""
    replays: tuple[str, ...] = ()
    """Rejects whose rows `source_frame` has; the load marks them as replayed."""
    shaped: bool = False
    """The rows of `source_frame` went through the pipeline before and are in the shape of the target."""
    retain_result: bool = False
    """Leave a finished request unclosed, with its result, until the caller has delivered that."""
    halt: Halt | None = None
    """Stops the run, and is checked right before a commit; a run by hand has one of its own."""
    user_dialect: str = ""
    """What the user's expressions are written in, when the source of this run is a stand-in."""
