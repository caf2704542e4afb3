"""Everything that one commit needs, as a value that is fixed before it begins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ematix_flow.plan.steps import Audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.ledger import HistoryRow
    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.stage import StageColumn, StageSpec
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.plan.sql.program import Program
    from ematix_flow.plan.steps import FileChoice
    from ematix_flow.records import Fence, SourceWatermark, TaskReport, Token


@dataclass(frozen=True, slots=True)
class Excluded:
    """A staged row that a constraint of the target refuses: its number in `numbered`, the reason and the row."""

    number: int
    reason: str
    row_json: str
    column: str = ""
    """The column whose value is refused, where that is known."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table as a plan found it: the columns it had, and the fingerprint of its rows; None when it was missing."""

    place: TableName
    columns: tuple[str, ...] = ()
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Everything that one commit needs, fixed before it begins."""

    token: Token
    fence: Fence
    history: HistoryRow
    program: Program
    columns: tuple[StageColumn, ...]
    """Columns of the staged relation."""
    mode: str
    schema_hash: str
    stage: StageSpec | None = None
    reports: tuple[TaskReport, ...] = ()
    inline: str = ""
    """Source query in the target's own dialect: the same-database path."""
    watermark_name: str = ""
    watermark_before: SourceWatermark | None = None
    watermark_from: str = ""
    """The name under which that is stored, where it is another one."""
    watermark_after: SourceWatermark | None = None
    files: FileChoice | None = None
    """The files that this load brings, which the metadata tables record."""
    refuse_empty: bool = False
    rejects_allowed: bool = False
    rejects_dropped: bool = False
    """Rejects are counted and not stored."""
    known_rejects_retained: bool = False
    """Rejects that were known before the rows are stored whatever becomes of others."""
    may_lack: str = ""
    """A column whose NULLs are rejected even where rejects are not allowed; every run has them, stored once."""
    permit: Callable[[], None] | None = None
    """Called right before the commit; raises when the run may no longer commit."""
    marked: bool = False
    """True when the inline query ends with a column that names what could not be parsed."""
    required: tuple[str, ...] = ()
    """Columns that may not be NULL."""
    replays: tuple[str, ...] = ()
    """Rejects whose rows this load brings again; they are marked as replayed in the same transaction."""
    attempt: int = 1
    """Which attempt it is for the rows of a replay, as far as they become rejects again."""
    last_attempt: bool = False
    """Rows that become rejects now are not tried again."""
    excluded: tuple[Excluded, ...] = ()
    """Staged rows that the target's constraints refuse, which become rejects."""
    alters: bool = True
    """True when staged rows are not as the source has them, which their rejects have to say."""
    audit: Audit = field(default_factory=Audit)
    """What is measured of the rows before the target is touched."""
    apart: bool = False
    """True when expectations are measured one by one, because all at once they could not be."""
    broken: tuple[tuple[str, str], ...] = ()
    """Expectations that only warn and could not be measured, each with the reason."""
    expected: tuple[TableSnapshot, ...] = ()
    """What the load was compared with before it was approved; a commit that finds anything else is refused."""
    view: Table | None = None
    """The table, where it is a feature view, whose registry and online store this commit brings up to date."""


def staged_alone(request: CommitRequest) -> CommitRequest:
    """Return the request that counts the staged rows and does nothing with them."""
    program = replace(request.program, statements=(), work_tables=(), reads_staged_once=False, tally="", retaining=None)
    return replace(request, program=program, mode="merge")


def retaining(request: CommitRequest, rejected: int) -> CommitRequest:
    """Return the request; where rows are rejected it takes no key for absent, because their keys are in the source."""
    return replace(request, program=request.program.retaining or request.program) if rejected else request
