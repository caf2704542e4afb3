"""What happened during a run, as values that subscribers read; nothing here acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ematix_flow.records import Audited, Counts


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events: which pipeline and which target."""

    pipeline: str
    target: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table or a folder as lineage names it: its namespace and its name there."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """A column that another one is computed from."""

    dataset: Dataset
    field: str
    changed: bool
    """False when its values are taken over as they are."""


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """What a load reads and writes, as far as its plan knows."""

    inputs: tuple[Dataset, ...]
    output: Dataset
    columns: tuple[tuple[str, str], ...]
    """Names and types of the columns that are written."""
    origins: Mapping[str, tuple[ColumnOrigin, ...]]


@dataclass(frozen=True, slots=True)
class RunPlanned(Event):
    """A load has its plan."""

    run_id: str
    job: str
    """The name of the job in lineage."""
    facts: Callable[[], LoadFacts]
    """Computes what the load reads and writes; that takes a while, so only subscribers that need it call it."""


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A load has its token and begins."""

    run_id: str
    path: str
    by: str = "spark"
    """The engine that stages the rows."""
    reason: str = ""
    """Why."""


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """A request that did not end well is taken up again."""

    request: str
    ended: str = ""
    """failed or stopped; empty when the attempt before recorded no end, as after a kill."""


@dataclass(frozen=True, slots=True)
class RunAlreadyFinished(Event):
    """An earlier run had committed everything and ended before its result was delivered; nothing is loaded."""

    request: str
    loaded: str
    """What it had loaded, as text."""


@dataclass(frozen=True, slots=True)
class StageProgress(Event):
    """Rows that tasks have staged so far, and how many tasks have begun."""

    rows: int
    tasks: int


@dataclass(frozen=True, slots=True)
class RowsStaged(Event):
    """All rows of the load wait in staging."""

    rows: int
    rejected: int


@dataclass(frozen=True, slots=True)
class QualityMeasured(Event):
    """The expectations of a load were measured; emitted before the load is known to be committed or to fail."""

    run_id: str
    audited: Audited
    alert_on_warn: bool = False
    """True when a mere warning alerts too."""


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
class AttemptBegan(Event):
    """A thread begins to work on an attempt; its log output from now on belongs to it."""

    slot: str
    attempt: int = 1
    of_stream: bool = False
    """Whether it is the run of a stream; the loads of its batches are told by it alone."""


@dataclass(frozen=True, slots=True)
class AttemptEnded(Event):
    """The thread is done with the attempt, whatever became of it."""

    slot: str
    failed: bool = False
    traceback: str = ""
    """Where the error came from, without secrets; empty after a success."""


@dataclass(frozen=True, slots=True)
class PipelineBegan(Event):
    """A pipeline begins, with all its targets, because it was due or requested."""

    slot: str
    """The scheduled instant in ISO form, or the id of the request."""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class PipelineEnded(Event):
    """A pipeline has ended; alerts and metrics of runs are based on this event."""

    slot: str
    at: datetime
    seconds: float
    attempt: int = 1
    max_attempts: int = 1
    gave_up: bool = False
    """True when no attempt of this slot follows by itself."""
    error_message: str = ""
    error_type: str = ""
    """The class of the error; empty after a success."""
    run_ids: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Return whether everything was done."""
        return not self.error_type


@dataclass(frozen=True, slots=True)
class PipelineSkipped(Event):
    """A pipeline was due and does not run now."""

    reason: str


@dataclass(frozen=True, slots=True)
class SchedulerEvent(Event):
    """Something that a scheduler did, or an error it had."""

    what: str
    """leader, dispatched, dispatch_failed, lease_expired or tick_error."""
    text: str


@dataclass(frozen=True, slots=True)
class FreshnessChanged(Event):
    """What a pipeline loads became too old, or is fresh again."""

    state: str
    """healthy, warning or breached."""
    before: str
    """The state at the last evaluation; empty at the first one."""
    lag_seconds: float | None
    """None when there is nothing yet."""
    sla_seconds: float


@dataclass(frozen=True, slots=True)
class MaintenanceStep(Event):
    """A step of maintenance begins, or has ended with what it counted."""

    step: str
    numbers: Mapping[str, int | str] | None = None


@dataclass(frozen=True, slots=True)
class StreamStarted(Event):
    """A stream begins."""

    engine: str
    """The engine that moves its rows: spark or local."""
    reason: str


@dataclass(frozen=True, slots=True)
class BatchLoaded(Event):
    """A target of a stream has the messages of one more range."""

    counts: Counts
    seconds: float
    messages: int = 0
    """Messages of the range."""
    new_messages: int = 0
    """Those among them that no target of the stream had before."""


@dataclass(frozen=True, slots=True)
class StreamLag(Event):
    """How many messages wait for a target of a stream, by part of the source."""

    waiting: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LogLagMeasured(Event):
    """How far a target of a stream that runs is behind the log of its database."""

    lag_bytes: int
    lag_seconds: float
    retained_bytes: int | None
    """What the server keeps of its log for the stream; None where it keeps it for nobody."""


@dataclass(frozen=True, slots=True)
class LogLagChecked(Event):
    """Whether a stream is too far behind the log of its database, or has lost it; also of one that does not run."""

    problem: str
    """Empty when it is not."""


@dataclass(frozen=True, slots=True)
class StreamWatermark(Event):
    """Up to which event time a stream has everything that comes in time."""

    source: str
    at: datetime


@dataclass(frozen=True, slots=True)
class StateChanged(Event):
    """What a stream remembers has given something out."""

    windows: int
    """Windows and sessions that were closed, or given out again."""
    late: int
    """Rows that came after their window was closed, or after everything that they could be joined with."""
    policy: str
    """What happens to such rows."""


@dataclass(frozen=True, slots=True)
class WindowsOpen(Event):
    """How many windows of a fixed length a target of a stream has not given out yet."""

    windows: int


@dataclass(frozen=True, slots=True)
class RowsWithoutTime(Event):
    """Rows of a stream with windows have no event time, so they are in no window."""

    rows: int


@dataclass(frozen=True, slots=True)
class StreamIdle(Event):
    """A stream found nothing new."""


@dataclass(frozen=True, slots=True)
class StreamWarning(Event):
    """A stream goes on, and an operator should know something of it."""

    message: str


@dataclass(frozen=True, slots=True)
class StreamFailed(Event):
    """A stream, or one target of it, failed; what was under way did not happen."""

    message: str
    pause: float | None = None
    """Seconds until it is tried again; None when it is not."""
    traceback: str = ""
    """Where the error came from, without secrets; empty where the end of the stream tells it."""
