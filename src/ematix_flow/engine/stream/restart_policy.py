"""What an error means for a stream that is to go on: a pause that grows, or the end; it runs nothing itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ematix_flow.connect.base.retry import STREAM_RESTART
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import (
    BadRowsError,
    ConnectionMissingError,
    DeclareError,
    DeclareTypeError,
    DriftError,
    FencedError,
    FlowError,
    MissingExtraError,
    MissingSecretError,
    PlanError,
    RunError,
    StreamLostError,
    UnknownNameError,
    UnsupportedError,
)
from ematix_flow.wording import quantity


class CrashLoopError(RunError):
    """A stream fails again and again without progress; trying once more would not help."""


TERMINAL = (
    BadRowsError,
    ConnectionMissingError,
    CrashLoopError,
    DeclareError,
    DeclareTypeError,
    DriftError,
    FencedError,
    MissingExtraError,
    MissingSecretError,
    PlanError,
    StreamLostError,
    UnknownNameError,
    UnsupportedError,
)
"""Errors that are the same after every pause: a person has to change something first."""

CRASHES = 8
"""So many failures without a batch in between are no accident, unless the other side is only away."""


@dataclass
class RestartPolicy:
    """How often something has failed since its last progress."""

    what: str
    """What has failed, for people."""
    longest: float
    """Seconds of the longest pause."""
    failures: int = 0
    crashes: int = 0
    """Failures that are not known to be transient."""

    def reset(self) -> None:
        """Reset the count of failures."""
        self.failures = self.crashes = 0

    def end_of(self, error: Exception) -> Exception | None:
        """Count a failure and return the error that it ends with; None when it may pass."""
        if isinstance(error, TERMINAL):
            return error
        self.failures += 1
        self.crashes += not (isinstance(error, FlowError) and error.transient)
        if self.crashes < CRASHES:
            return None
        summary = f"{self.what} failed {quantity(self.failures, 'time')} and loaded nothing in between"
        hint = "nothing is lost: what was not loaded is read again."
        return CrashLoopError(f"{summary}; the last time: {safe_text(error)}", hint=hint)

    def pause(self) -> float:
        """Return the seconds to wait now."""
        return replace(STREAM_RESTART, longest_wait=self.longest).wait_after(self.failures)
