"""Measures the expectations of an audit on the staged rows and returns the verdicts; it does not act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import redact, safe_text
from ematix_flow.declare.quality.checks import FRESHNESS, PYTHON, ROW_COUNT
from ematix_flow.errors import FlowError, RunError
from ematix_flow.plan.columns import EVENT
from ematix_flow.plan.sql.quality import SAMPLE, over_rows, staged
from ematix_flow.plan.sql.render import bind_staged, native_column
from ematix_flow.records import CheckResult
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.plan.steps import Measure
    from ematix_flow.records import Audited

LONGEST = 200
"""Characters of a value that a sample shows."""


class StagedRows:
    """The rows of a load, as a function of the user sees them."""

    def __init__(self, ruler: Ruler, columns: Sequence[str]) -> None:
        self._ruler = ruler
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return self._ruler.total

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Return the rows one by one; all of them are fetched, so `query` is better for many."""
        names = ", ".join(native_column(name, self._ruler.dialect) for name in self.columns)
        for row in self._ruler.rows(f"SELECT {names} FROM {staged(self._ruler.dialect)} AS s"):
            yield dict(zip(self.columns, row, strict=True))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the table `rows`, in the SQL of the target."""
        dialect = self._ruler.dialect
        return self._ruler.rows(over_rows(sql, self.columns, dialect, dialect)[0])


class Ruler:
    """Measures the staged rows of one load; counts that were queried together are cached."""

    def __init__(self, request: CommitRequest, database: TargetSystem, session: Session, relation: str) -> None:
        self.dialect = database.dialect
        self._database = database
        self._rows, self._relation = database.data(session), relation
        self._columns = [column.name for column in request.columns if column.name != EVENT]
        self._known: dict[str, int] = {}
        self._total: int | None = None

    @property
    def total(self) -> int:
        """Return how many rows there are."""
        if self._total is None:
            self.count_together(())
        return self._total or 0

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the staged rows."""
        return self._rows.query(bind_staged(sql, self.dialect, self._relation))

    def count_together(self, measures: Sequence[Measure]) -> None:
        """Count all rows, and those that each of the measures counts, in one pass over them."""
        aggregates = ", ".join(["COUNT(*)", *(one.counted for one in measures)])
        total, *counts = self.rows(f"SELECT {aggregates} FROM {staged(self.dialect)} AS s")[0]
        self._total = int(total)
        self._known |= {one.name: int(count) for one, count in zip(measures, counts, strict=True)}

    def measured(self, one: Measure) -> CheckResult:
        """Return the result of one expectation."""
        failed, holds = self._answer(one)
        column = ", ".join(one.columns)
        if holds:
            return CheckResult(one.name, column, one.severity, "pass", 0, self.total)
        return CheckResult(one.name, column, one.severity, "fail", failed, self.total, self._sample(one))

    def _answer(self, one: Measure) -> tuple[int | None, bool]:
        """Return how many rows are to blame, if any are, and whether the expectation holds."""
        if one.holds:
            return 0, True
        if one.kind == ROW_COUNT:
            return None, (one.least or 0) <= self.total <= (self.total if one.most is None else one.most)
        if one.kind == PYTHON:
            return self._called(one)
        count = self._count(one)
        if one.kind == FRESHNESS:
            return None, bool(count) or bool(one.otherwise and self.rows(one.otherwise)[0][0])
        return count, count == 0

    def _count(self, one: Measure) -> int:
        if one.query:
            return int(self.rows(one.query)[0][0])
        if one.name not in self._known:
            self.count_together([one])
        return self._known[one.name]

    def _called(self, one: Measure) -> tuple[int | None, bool]:
        assert one.function is not None  # noqa: S101 - a plan that is carried out has its functions
        known: tuple[type[BaseException], ...] = (*self._database.errors, FlowError)
        try:
            result = one.function(StagedRows(self, self._columns))
        except known:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {safe_text(error)}"
            raise RunError(message) from error
        if isinstance(result, int) and not isinstance(result, bool):
            return result, result == 0
        return None, result is None or bool(result)

    def _sample(self, one: Measure) -> tuple[dict[str, Any], ...]:
        if not one.sample:
            return ()
        sampled = self.rows(one.sample)[:SAMPLE]
        width = len(sampled[0]) if sampled else 0
        names = one.shown if len(one.shown) == width else tuple(f"column {n}" for n in range(1, width + 1))
        return tuple({name: _redacted_value(value) for name, value in zip(names, row, strict=True)} for row in sampled)


def verdicts_of(audited: Audited) -> list[str]:
    """Return every expectation that does not hold or could not be measured, for people."""
    return [verdict_of(one) for one in audited.checks if one.verdict != "pass"]


def verdict_of(one: CheckResult) -> str:
    """Return an expectation that does not hold, for people."""
    if one.verdict == "error":
        return f"{one.name}: could not be measured: {one.message}"
    total = quantity(one.total, "row")
    blame = f"{one.failed_rows} of {total}" if one.failed_rows is not None else total
    first = f"; first: {one.sample[0]}" if one.sample else ""
    return f"{one.name}: {blame}{first}"


def _redacted_value(value: Any) -> Any:
    """Return a value as a result may hold it: short, and without secrets."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).hex()
    # Redacted first: a secret that is cut would not be known any more.
    text = redact(str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
