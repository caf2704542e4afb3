"""Compares a staged load with its target, key by key, in the transaction of a simulation that is rolled back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.conflicts import refuse_changed, take_snapshot
from ematix_flow.commit.constraint_violations import searchable, without_violations
from ematix_flow.commit.measurements import verdicts_of
from ematix_flow.commit.request import staged_alone
from ematix_flow.commit.simulate import simulate
from ematix_flow.declare.table.types import Boolean, Numeric
from ematix_flow.engine.batch.ddl import can_simulate, expand
from ematix_flow.errors import RefusedError, StalePlanError, TransientError, UnsupportedError
from ematix_flow.plan.explain.diff import Diff, Sample
from ematix_flow.plan.sql.diff import ADDED, KINDS, REMOVED, diff_queries, repeated_keys
from ematix_flow.plan.sql.render import bind_staged, native_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.request import CommitRequest, TableSnapshot
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.plan.sql.diff import DiffQueries
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Audited, Counts

BY_COUNT = "rows of one key are there more than once, so that rows are counted and not compared"
WITHOUT_KEY = "the table has no key, so that rows are counted and not compared"

RETAINED = "some rows are rejected, so that no key counts as absent"

FILES_COUNTED = "rows of a folder of files are counted and not compared"


@dataclass(frozen=True, slots=True)
class Compared:
    """A staged load after its comparison: what it would change, what it was compared with and the request to commit."""

    diff: Diff
    expected: tuple[TableSnapshot, ...]
    request: CommitRequest


def compare(request: CommitRequest, database: TargetSystem, plan: TargetPlan, sample: int) -> Compared:
    """Compare a load with its target; rows that the target's constraints refuse are set aside as a run would."""
    comparison = _LoadComparison(database, plan, sample)
    try:
        return _compared(request, comparison)
    except RefusedError:
        if not searchable(request, database) or plan.ensure.statements:
            raise
    return _compared(without_violations(request, database), comparison)


def _compared(request: CommitRequest, comparison: _LoadComparison) -> Compared:
    database = comparison.database
    if comparison.countable:
        done = simulate(request, database, comparison.prepare, inspect=comparison.inspect)
        counts = done.counts
    else:
        # Where the table cannot be prepared and rolled back, the staged rows are all that can be simulated.
        done = simulate(staged_alone(request), database, comparison.prepare, inspect=comparison.inspect)
        counts = comparison.derived(done.counts)
    comparison.record_verdicts(done.audited)
    return Compared(comparison.diff(counts), comparison.expected, request)


class _LoadComparison:
    """Inspects the rows of a load and its target inside the transaction of a simulation."""

    def __init__(self, database: TargetSystem, plan: TargetPlan, sample: int) -> None:
        self.database = database
        self.plan = plan
        self.load = plan.commit.load
        self.sample = sample
        self.countable = can_simulate(database, plan)
        self.expected: tuple[TableSnapshot, ...] = ()
        self.totals = dict.fromkeys(KINDS, 0)
        self.columns: tuple[tuple[str, int], ...] = ()
        self.samples: tuple[Sample, ...] = ()
        self.opened = (0, 0)
        self.old_rows = 0
        self.notes = plan.notes
        self.verdicts: tuple[str, ...] = ()

    def prepare(self, session: Session) -> None:
        """Take snapshots of the tables, then create or widen them for the load, where that is rolled back."""
        load = self.plan.commit.load
        table_names = [load.target]
        if load.points is not None and self.database.capabilities.rolls_back:
            table_names.append(load.points)
        self.expected = tuple(take_snapshot(self.database, session, table_name) for table_name in table_names)
        if self.database.capabilities.transactional_ddl:
            expand(self.database, session, self.plan)

    def inspect(self, session: Session, relation: str, counts: Counts) -> None:
        """Query everything that the difference shows; refuse to mix two states of the target."""
        if counts.rejected and self.load.delete_absent:
            self.load = replace(self.load, delete_absent=False)
        if not self.database.capabilities.answers_sql:
            return
        rows = self.database.data(session)
        queries = self._queries()
        if self.mode == "truncate" and (not queries.keys or self._repeated(rows, relation, queries.keys)):
            self._count(rows, relation, BY_COUNT if queries.keys else WITHOUT_KEY)
        else:
            self._compare(rows, relation, queries)
        try:
            refuse_changed(self.expected, self.database, session)
        except StalePlanError as error:
            raise TransientError(f"{error.what}, while it was compared", hint="plan again.") from None

    @property
    def mode(self) -> str:
        """Return the mode of the load."""
        return self.plan.commit.write.mode

    def diff(self, counts: Counts) -> Diff:
        """Return the difference, with the counts of the load."""
        if not self.database.capabilities.answers_sql:
            self.totals |= {ADDED: counts.inserted, REMOVED: counts.deleted}
            self.notes = (*self.notes, FILES_COUNTED)
        if self.load is not self.plan.commit.load:
            self.notes = (*self.notes, RETAINED)
        return Diff(
            table=self.plan.table_name,
            mode=self.plan.commit.write.spelled,
            **self.totals,
            columns=self.columns,
            samples=self.samples,
            counts=counts,
            statements=self.plan.ensure.statements,
            notes=(*self.notes, *self.verdicts),
        )

    def record_verdicts(self, audited: Audited | None) -> None:
        """Store what was measured of the rows: every expectation that does not hold is shown."""
        self.verdicts = () if audited is None else tuple(f"expectation {text}" for text in verdicts_of(audited))

    def derived(self, staged: Counts) -> Counts:
        """Return the counts that follow from the difference, for a table that has yet to be created or widened."""
        added, changed, removed = (self.totals[kind] for kind in ("added", "changed", "removed"))
        match self.mode:
            case "append":
                return replace(staged, inserted=staged.staged, unchanged=0)
            case "truncate":
                return replace(staged, inserted=staged.staged, deleted=self.old_rows, unchanged=0)
            case "merge":
                touched = {"inserted": added, "updated": changed, "deleted": removed}
                return replace(staged, **touched, unchanged=max(0, staged.staged - added - changed))
        inserted, closed = self.opened if self.load.event else (added + changed, changed + removed)
        return replace(staged, inserted=inserted, closed=closed, unchanged=max(0, staged.staged - inserted))

    def _queries(self) -> DiffQueries:
        existing_columns = None if self.countable else self.expected[0].columns
        if existing_columns and self.load.event:
            message = f"{self.database.kind} cannot show what scd2 by event time does to a table that is widened first"
            raise UnsupportedError(message, hint="run the pipeline once, or widen the table by hand, and plan again.")
        return diff_queries(self.load, self.mode, existing_columns, self.sample)

    def _compare(self, rows: Session, relation: str, queries: DiffQueries) -> None:
        def load_request(sql: str) -> list[tuple[Any, ...]]:
            return rows.query(bind_staged(sql, self.database.dialect, relation))

        self.totals |= {str(kind): int(count) for kind, count in load_request(queries.totals)}
        if queries.changes and self.totals["changed"]:
            counted = zip(queries.columns, load_request(queries.changes)[0], strict=True)
            self.columns = tuple((name, int(count)) for name, count in counted if count)
        self.samples = tuple(
            self._sampled(kind, row, queries)
            for kind, sql in queries.samples
            if self.totals[kind]
            for row in load_request(sql)
        )
        self.old_rows = sum(self.totals[kind] for kind in ("changed", "removed", "unchanged"))
        if queries.opened and not self.countable:
            inserted, closed = load_request(queries.opened)[0]
            self.opened = (int(inserted), int(closed))

    def _sampled(self, kind: str, row: Sequence[Any], queries: DiffQueries) -> Sample:
        types = {column.name: column.type for column in self.load.columns}
        keys, width = len(queries.keys), len(queries.columns)
        names = (*queries.keys, *queries.columns, *queries.columns)
        named = [(name, _json_value(value, types[name])) for name, value in zip(names, row, strict=True)]
        old, new = dict(named[keys : keys + width]), dict(named[keys + width :])
        return Sample(kind, dict(named[:keys]), None if kind == ADDED else old, None if kind == REMOVED else new)

    def _repeated(self, rows: Session, relation: str, keys: Sequence[str]) -> bool:
        load, dialect = self.load, self.database.dialect
        staged = bind_staged(repeated_keys(load, keys, staged=True), dialect, relation)
        there = self.plan.ensure.exists
        return bool(rows.query(staged)) or bool(there and rows.query(repeated_keys(load, keys)))

    def _count(self, rows: Session, relation: str, note: str) -> None:
        """Count where no key distinguishes rows: every old row goes, every new one comes."""
        name = native_name(self.load.target, self.database.dialect)
        new = int(rows.query(f"SELECT COUNT(*) FROM {relation} AS counted")[0][0])
        self.old_rows = int(rows.query(f"SELECT COUNT(*) FROM {name}")[0][0]) if self.plan.ensure.exists else 0
        self.totals |= {ADDED: new, REMOVED: self.old_rows}
        self.notes = (*self.notes, note)


def _json_value(value: Any, kind: ColumnType) -> Any:
    """Return a value as JSON can hold it, in one spelling whatever the database."""
    if value is None:
        return None
    match kind:
        case Numeric():
            number = Decimal(str(value))
            return f"{number:.{kind.scale}f}" if number.is_finite() else str(number)
        case Boolean():
            return bool(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value if isinstance(value, str | int | float) else str(value)
