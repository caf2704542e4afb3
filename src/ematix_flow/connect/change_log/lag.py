"""How far a target is behind the log of a database, and what is too far; pure values, no server is asked here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

NEARLY = 0.8
"""From this part of a limit on a lag is worth a warning."""


@dataclass(frozen=True, slots=True)
class LogLag:
    """How far a target is behind; None where that cannot be known, as before its first load."""

    bytes: int | None = None
    """How much of the log was written since the last change that it has; 0 where it lacks none."""
    seconds: float | None = None
    """How long ago the oldest change was committed that it lacks; 0 where it lacks none."""
    retained_bytes: int | None = None
    """How much of its log the server keeps for the stream, where it keeps it for anyone."""


@dataclass(frozen=True, slots=True)
class LagLimits:
    """How far a target may be behind; None where there is no limit."""

    bytes: int | None = None
    seconds: int | None = None
    retained_bytes: int | None = None

    @property
    def are_set(self) -> bool:
        """Return whether there is any limit."""
        return (self.bytes, self.seconds, self.retained_bytes) != (None, None, None)

    def exceeded(self, lag: LogLag) -> tuple[str, ...]:
        """Return what is beyond its limit, for people."""
        return tuple(text for text, part in self._parts(lag) if part > 1)

    def nearly(self, lag: LogLag) -> bool:
        """Return whether something is about to be beyond its limit."""
        return any(part >= NEARLY for _, part in self._parts(lag))

    def _parts(self, lag: LogLag) -> Iterator[tuple[str, float]]:
        """Return every measure that has a limit as text, with the part of the limit that it is."""
        if self.bytes is not None and lag.bytes is not None:
            text = f"{quantity(lag.bytes, 'byte')} of the log are not applied, at most {self.bytes:,} are wanted"
            yield text, lag.bytes / self.bytes
        if self.seconds is not None and lag.seconds is not None:
            text = f"a change waits for {quantity(round(lag.seconds), 'second')}, at most {self.seconds:,} are wanted"
            yield text, lag.seconds / self.seconds
        if self.retained_bytes is not None and lag.retained_bytes is not None:
            text = f"the server keeps {quantity(lag.retained_bytes, 'byte')} of its log, at most {self.retained_bytes:,} are wanted"
            yield text, lag.retained_bytes / self.retained_bytes
