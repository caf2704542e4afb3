"""The plan of a load as a closed set of steps; preview, dry run, validate and run all read these values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.table.features import Features
    from ematix_flow.plan.sql.ddl import Difference, TableDefinition
    from ematix_flow.plan.sql.program import Load, Program
    from ematix_flow.records import FileScope, SourceFile, SourceWatermark, Token


SPARK, IN_PROCESS, IN_DATABASE, NO_ENGINE = "spark", "local", "database", "none"
"""Who stages the rows of a load."""

TASK = "task"
"""Where the shape of files is evaluated when nothing needs Spark for it: by the engine that stages the rows."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something the planner chose, with the reason."""

    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class EnsureTable:
    """Create the target or bring it up to its declaration, before any row moves."""

    wanted: TableDefinition
    statements: tuple[str, ...]
    differences: tuple[Difference, ...]
    exists: bool | None
    """None when the target could not be inspected."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The half-open range (lo, hi] of an incremental load, fixed before reading."""

    column: str
    lo: str | None
    hi: str | None
    """The highest value there was; None when there was none."""
    nulls: int = 0
    fixed: bool = True
    """False in a preview, which reads no data: the upper bound is queried when a load begins."""


@dataclass(frozen=True, slots=True)
class FileChoice:
    """Which files of a source a load reads, fixed before reading: those that were not loaded yet."""

    scope: FileScope
    policy: str
    """What happens to files that have changed since they were loaded: error, load or ignore."""
    new: tuple[SourceFile, ...] = ()
    replaced: tuple[SourceFile, ...] = ()
    known: int = 0
    """How many files are there as they were loaded."""

    @property
    def reloaded(self) -> tuple[SourceFile, ...]:
        """Return the changed files that are loaded again."""
        return self.replaced if self.policy == "load" else ()

    @property
    def chosen(self) -> tuple[SourceFile, ...]:
        """Return the files that are read, in the order of their keys."""
        return tuple(sorted((*self.new, *self.reloaded), key=lambda file: file.key))


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The range of a stream that a load brings, fixed before reading: both ends as texts of its source."""

    source: str
    begin: str
    end: str
    known: bool = True
    """False when the target remembers no position yet, so that this is the first load."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table of one connection that a query over several of them reads."""

    name: str
    """As the query calls it."""
    alias: str
    """The alias of the connection there."""
    connection: str
    kind: str
    columns: tuple[str, ...] = ()
    """What is read of it; empty where Spark finds out by itself."""
    sql: str = ""
    """The query for its database; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Read:
    """Where rows come from."""

    kind: str
    """sql, files, lake, join, stream or frame."""
    connection: str
    sql: str = ""
    """The query that is read, with bounds and shape pushed in when the kind is sql."""
    path: str = ""
    format: str = ""
    columns: tuple[SourceColumn, ...] = ()
    bounds: Bounds | None = None
    files: FileChoice | None = None
    """The files that are new, where only those are read."""
    span: OffsetRange | None = None
    """The range of a stream."""
    tables: tuple[TableRead, ...] = ()
    """What a query over several connections reads."""

    @property
    def is_empty(self) -> bool:
        """Return whether there is known to be nothing to read."""
        return self.files is not None and not self.files.chosen


@dataclass(frozen=True, slots=True)
class Shape:
    """Column map, normalisers and pre-load transforms as one query."""

    place: Choice
    """Which engine evaluates it: the source, the target, Spark, or a DuckDB inside the task that stages the rows."""
    dialect: str
    sql: str
    marked: bool = False
    """True when the query also returns a column that names what could not be parsed."""
    reads_twice: bool = False
    """True when the query reads its rows twice: for SQL of the user, and for the rows that go round it."""
    alters: bool = True
    """True when the pipeline has a column map, normalisers or pre-load transforms, so that a shaped row is no source row."""
    given: bool = False
    """True when the rows were shaped before, as those of rejects may be; the query only reads them."""


@dataclass(frozen=True, slots=True)
class Check:
    """What every row must satisfy before it is staged, and what happens to one that does not."""

    required: tuple[str, ...]
    on_bad_row: str
    may_lack: str = ""
    """A required column whose NULLs are rejected even when other bad rows fail the load."""
    filled: tuple[str, ...] = ()
    """Columns of text that may not be empty, because the target would store NULL instead of it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """How rows wait for the commit."""

    columns: tuple[StageColumn, ...]
    by: Choice
    """What moves the rows: tasks of Spark, threads of this process, the database that has both sides, or none if there are none."""
    options: tuple[tuple[str, Any], ...] = ()
    """How files are written, where the target is a folder of them."""
    carried: Choice | None = None
    """How staged rows come to the driver, where tasks cannot write next to the target: in results or a store."""

    @property
    def skipped(self) -> str:
        """Return the reason why nothing is staged; empty when rows are."""
        return self.by.reason if self.by.value in {IN_DATABASE, NO_ENGINE} else ""

    @property
    def engine(self) -> str:
        """Return what moves the rows: spark, local, database or none."""
        return self.by.value or NO_ENGINE


@dataclass(frozen=True, slots=True)
class Measure:
    """One expectation as it is measured over the staged rows."""

    name: str
    kind: str
    columns: tuple[str, ...]
    severity: str
    counted: str = ""
    """Aggregate for the one query that measures many of them: offending rows, for freshness those that are fresh."""
    query: str = ""
    """Query for the number of offending rows, where no aggregate counts them."""
    offending: str = ""
    """Condition of an offending row `s`; empty where no row alone is to blame."""
    sample: str = ""
    """Query for a few offending rows."""
    shown: tuple[str, ...] = ()
    """Columns of the sample; empty where only its query knows them."""
    otherwise: str = ""
    """Query of the target, run when the staged rows are not fresh: more than 0 when those that stay there are."""
    least: int | None = None
    most: int | None = None
    holds: str = ""
    """Why there is nothing to measure: the load itself sees to it."""
    function: Callable[[Any], Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Audit:
    """What is measured of the staged rows in the commit, before anything of the target is touched."""

    measures: tuple[Measure, ...] = ()
    skipped: bool = False
    """True when the environment leaves expectations out."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What happens in the one transaction of the target."""

    write: Write
    load: Load
    program: Program
    keys: Choice
    compare: Choice


@dataclass(frozen=True, slots=True)
class Post:
    """A step after the load, in its own transaction."""

    name: str
    kind: str
    summary: str
    step: Any


Step = EnsureTable | Read | Shape | Check | Stage | Audit | Commit | Post


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """The steps of one target."""

    pipeline: str
    table_name: str
    connection: str
    token: Token
    history_name: str
    path: Choice
    ensure: EnsureTable
    read: Read
    shape: Shape
    check: Check
    stage: Stage
    commit: Commit
    now: datetime
    connection_info: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    watermark: SourceWatermark | None = None
    """Where the last load ended."""
    watermark_from: str = ""
    """The name under which that is stored, where it is not `history_name` yet: this load moves it there."""
    audit: Audit = field(default_factory=Audit)
    features: Features | None = None
    """What the table states as a feature view; its commit registers the load."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps in the order they run."""
        return (self.ensure, self.read, self.shape, self.check, self.stage, self.audit, self.commit)


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline as it will run."""

    pipeline: str
    schedule: str | None
    source_connection: str
    source_info: dict[str, object] = field(default_factory=dict)
    source_sql: str = ""
    targets: tuple[TargetPlan, ...] = ()
    posts: tuple[Post, ...] = ()
    notes: tuple[str, ...] = ()
    timeout: float | None = None
    """Seconds that one attempt may take; None for no limit."""
