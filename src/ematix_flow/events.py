"""What happened during a run, as values that subscribers read; nothing here acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.records import Counts


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events: which pipeline and which target."""

    pipeline: str
    target: str


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A load has its token and begins."""

    run_id: str
    path: str
    by: str = "spark"
    """Who stages the rows."""


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """An interrupted request is taken up again."""

    request: str


@dataclass(frozen=True, slots=True)
class StageProgress(Event):
    """Rows that tasks have staged so far, and how many tasks have begun."""

    rows: int
    parts: int


@dataclass(frozen=True, slots=True)
class RowsStaged(Event):
    """All rows of the load wait in staging."""

    rows: int
    rejected: int


@dataclass(frozen=True, slots=True)
class RunCommitted(Event):
    """The target holds the load."""

    run_id: str
    counts: Counts
    replayed: bool


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """The load did not happen; the target is as it was."""

    run_id: str
    message: str


@dataclass(frozen=True, slots=True)
class PostFinished(Event):
    """A post step ended."""

    step: str
    ok: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class MaintenanceStep(Event):
    """A step of maintenance begins, or has ended with what it counted."""

    step: str
    numbers: Mapping[str, int | str] | None = None


@dataclass(frozen=True, slots=True)
class StretchLoaded(Event):
    """A target of a stream has the messages of one more stretch."""

    counts: Counts
    seconds: float
    lag: int | None = None
    """Messages that are known to wait for this target."""


@dataclass(frozen=True, slots=True)
class StreamIdle(Event):
    """A stream found nothing new."""
