"""Values that outlive a process: tokens, watermarks, counts and what a load left behind."""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Token:
    """The name of one logical load; retries and restarts of it carry the same token."""

    pipeline: str
    target: str
    slot: str

    @property
    def key(self) -> str:
        """Return the fixed-size form under which the ledger stores the token."""
        joined = f"{self.pipeline}\x1f{self.target}\x1f{self.slot}"
        return hashlib.sha256(joined.encode()).hexdigest()

    @property
    def run_id(self) -> str:
        """Return the id of the load's run and the `_batch_id` of its rows: the same after every restart."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, self.key))

    @property
    def tag(self) -> str:
        """Return the part of the run's id that the names of the load's staging and scratch tables hold."""
        return run_tag(self.run_id)


def run_tag(run_id: str) -> str:
    """Return the part of a run's id that the names of its staging hold."""
    return run_id.replace("-", "")[:16]


ROW_COUNTS = ("staged", "inserted", "updated", "unchanged", "deleted", "closed", "rejected")
"""The counts of a load that are about rows of its target."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a load did to its target, row by row."""

    staged: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    closed: int = 0
    rejected: int = 0
    creates: int = 0
    updates: int = 0
    deletes: int = 0
    """Changes that were applied, by what they do; several of one key may be one row of the target."""
    repeated: int = 0
    """Changes that the target had already, or one that came after them."""
    skipped: int = 0
    """Messages that change no row."""
    late: int = 0
    """Changes among the repeated ones that are older than what their key has by more than is tolerated."""
    left_out: int = 0
    """Values of changes whose columns the table lacks."""

    @property
    def changes(self) -> dict[str, int]:
        """Return how many changes of another database there were, by what became of them."""
        return {
            "creates": self.creates,
            "updates": self.updates,
            "deletes": self.deletes,
            "skipped": self.skipped,
            "idempotent_skipped": self.repeated,
            "late": self.late,
            "left_out": self.left_out,
        }

    def plus(self, name: str, rows: int) -> Counts:
        """Return the counts with `rows` added under `name`."""
        return replace(self, **{name: getattr(self, name) + rows})

    def with_all(self, more: Iterable[Sequence[Any]]) -> Counts:
        """Return the counts with every pair of a name and rows added."""
        result = self
        for name, rows in more:
            result = result.plus(str(name), int(rows or 0))
        return result


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """How far a pipeline has read its source, in the source column's own precision."""

    column: str
    value: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source: its key below the source's root, and what distinguishes its content from another one."""

    key: str
    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class FileScope:
    """The scope of loaded files: those that one pipeline brought into one table."""

    pipeline: str
    table: str

    @property
    def prefix(self) -> str:
        """Return the beginning that the ids of all these files share."""
        return hashlib.sha256(f"{self.pipeline}\x1f{self.table}".encode()).hexdigest()[:24]

    def id_of(self, key: str) -> str:
        """Return the fixed-size form of a file in the metadata tables: keys may be longer than any index takes."""
        return self.prefix + hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()[:40]


KNOWN_REJECTS = 1 << 20
"""The first partition of rejects that no task has found among rows."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of one winning staging attempt."""

    partition: int
    attempt: int
    rows: int
    rejected: int = 0
    path: str = ""
    """File with the rows, where a system stages in files."""
    reject_path: str = ""
    first_reject: str = ""
    """Text about the first rejected row, for the error message under the policy `fail`."""

    @property
    def was_known(self) -> bool:
        """Return whether its rejects were known before there were rows."""
        return self.partition >= KNOWN_REJECTS


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to commit: the newest epoch wins, an older one is refused."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one expectation."""

    name: str
    column: str
    severity: str
    verdict: str
    """pass, fail, or error when it could not be measured."""
    failed_rows: int | None
    """None where no row alone is to blame."""
    total: int
    sample: tuple[Mapping[str, Any], ...] = ()
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "message" or self.message}
        return known | {"sample": [dict(row) for row in self.sample]}


@dataclass(frozen=True, slots=True)
class Audited:
    """What was measured of the rows of a load before they became visible."""

    outcome: str
    """fail when an expectation failed, warn when one could not be measured, pass, empty without rows, or skipped."""
    checks: tuple[CheckResult, ...] = ()
    rejected: int = 0
    """Rows that were set aside."""

    def to_dict(self) -> dict[str, Any]:
        """Return what was measured as plain data."""
        return {"outcome": self.outcome, "checks": [check.to_dict() for check in self.checks]}


@dataclass(frozen=True, slots=True)
class Committed:
    """A load that the ledger of its target holds."""

    token: Token
    run_id: str
    counts: Counts
    committed_at: datetime
    replayed: bool = False
    """True when an earlier attempt had committed it already."""
    notes: tuple[str, ...] = field(default=())
    audited: Audited | None = None
    """What was measured of its rows; None where nothing is expected of them, or an earlier attempt committed."""


@dataclass(frozen=True, slots=True)
class Request:
    """A run that a user requested; an interrupted one is resumed under the same id."""

    id: str
    pipeline: str
    resumed: bool = False
    opened_at: str = ""
    ended: str = ""
    """How the attempt before this one ended: failed, stopped, or empty when it was not recorded."""
    result: str = ""
    """The result as JSON when an earlier run had finished everything and ended before it delivered it."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as the run log stores it."""

    run_id: str
    pipeline: str
    status: str
    started_at: str
    finished_at: str | None = None
    attempt: int = 1
    failed_step: str | None = None
    failed_watermark: str | None = None
    error_summary: str | None = None
    kind: str = "batch"
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    rows_rejected: int | None = None
    target: str = ""
    request_id: str = ""
    extras: dict[str, object] = field(default_factory=dict)
    project: str = ""
    """The name or the folder of the project; empty where there is none."""


def record_key(run: RunRecord) -> str:
    """Return the key of the record of one attempt: the id of the run, `id#2` for its second attempt."""
    return run.run_id if run.attempt == 1 else f"{run.run_id}#{run.attempt}"


def split_key(key: str) -> tuple[str, str]:
    """Return the id of a run that a key means, and the number of its attempt as `#2`; empty when none is named."""
    match = _ATTEMPT.fullmatch(key)
    return (match[1], match[2]) if match else (key, "")


_ATTEMPT = re.compile(r"(.*\S)(#\d+)", re.DOTALL)
"""A blank before `#` begins the digest of a project, which is no attempt."""


@dataclass(frozen=True, slots=True)
class PipelineState:
    """The schedule state of a pipeline or workflow, as the run log stores it."""

    table: ClassVar[str] = "pipeline_state"
    key: ClassVar[tuple[str, ...]] = ("pipeline",)

    pipeline: str
    last_slot: str = ""
    """The newest scheduled instant that was begun, in ISO form; every slot up to it is used up for ever."""
    slot_status: str = ""
    """What became of that slot: running, succeeded, failed, gave_up, interrupted or cancelled; empty before the first."""
    attempt: int = 0
    """Attempts at that slot so far."""
    interruptions: int = 0
    """Those of them whose process died."""
    first_attempt_at: str = ""
    last_attempt_at: str = ""
    next_attempt_at: str = ""
    """When a failed slot may be tried again; empty when it is not."""
    last_run_at: str = ""
    last_outcome: str = ""
    """How the last run ended, scheduled or requested: success or failure."""
    last_success_at: str = ""
    run_id: str = ""
    error: str = ""
    paused: bool = False
    cancelled_by: str = ""
    """Who cancelled the attempt that runs; empty when it was not cancelled."""
    trigger: str = ""
    """What a workflow has seen of the messages that set it off, as JSON."""
    retained: str = ""
    """Jobs of a workflow that do not run in this slot and keep their results, as a JSON list; empty when all run."""
    waiting_slot: str = ""
    """The newest due slot that was seen where nothing else tells of it, so that it may wait; used up with `last_slot`."""
    version: int = 0
    """Grows with every change; 0 before the first."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that is wrong with a pipeline, from first failure to first success; one per pipeline and kind."""

    table: ClassVar[str] = "incidents"
    key: ClassVar[tuple[str, ...]] = ("pipeline", "kind")

    pipeline: str
    kind: str
    """failed, quality or freshness."""
    opened_at: str = ""
    alerted_at: str = ""
    """When the last alert was sent, as ISO in UTC."""
    closed_at: str = ""
    """Empty while it is open."""
    count: int = 0
    """How often it was reported."""
    gave_up: bool = False
    version: int = 0
    """Which change of the record this is; 0 while it is not stored."""
