"""Turns the expectations of a target into what a commit measures; pure, and refused here is what cannot be measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.registry import kinds_that_answer
from ematix_flow.declare.quality import checks as q
from ematix_flow.errors import PlanError, UnsupportedError
from ematix_flow.plan.sql import quality as checks
from ematix_flow.plan.steps import Audit, Measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from ematix_flow.declare.quality.checks import Expectation
    from ematix_flow.plan.batch import PlanRequest
    from ematix_flow.plan.sql.program import Load


def plan_audit(request: PlanRequest, load: Load, *, exists: bool) -> Audit:
    """Return what is measured of the rows of one target."""
    quality, database = request.target.quality, request.database
    if not quality.expectations:
        return Audit()
    if request.skip_quality:
        return Audit(skipped=True)
    if not database.capabilities.answers_sql:
        message = f"pipeline {request.pipeline.name!r} has expectations, and rows of {database.kind} cannot be queried"
        hint = f"expectations can be measured by: {', '.join(kinds_that_answer())}."
        raise UnsupportedError(message, hint=hint, origin=request.pipeline.origin)
    planner = _Planner(request, load, exists=exists)
    return Audit(tuple(planner.measure(one) for one in quality.expectations))


def without_functions(audit: Audit) -> Audit:
    """Return the audit as it can be stored: functions of the user's stay in the user's module."""
    return replace(audit, measures=tuple(replace(one, function=None) for one in audit.measures))


def with_functions(audit: Audit, expectations: Sequence[Expectation]) -> Audit:
    """Return a stored audit with the functions of the declaration it was made from."""
    known = {one.name: one.function for one in expectations}
    missing = [one.name for one in audit.measures if one.kind == q.PYTHON and known.get(one.name) is None]
    if missing:
        message = f"the pipeline has no expectation {missing[0]!r} any more"
        raise PlanError(message, hint="plan again.")
    return replace(audit, measures=tuple(replace(one, function=known.get(one.name)) for one in audit.measures))


class _Planner:
    """What all expectations of a target share while they are planned."""

    def __init__(self, request: PlanRequest, load: Load, *, exists: bool) -> None:
        self.request = request
        self.load = load
        self.exists = exists
        self.table = request.target.table
        self.dialect = load.dialect
        self.written_in = request.target.quality.dialect or load.dialect

    def measure(self, one: Expectation) -> Measure:
        """Return one expectation as it is measured."""
        match one.kind:
            case q.ROW_COUNT:
                return self._measure(one, least=one.low, most=one.high)
            case q.UNIQUE:
                return self._unique(one)
            case q.FRESHNESS:
                return self._freshness(one)
            case q.EXISTS_IN:
                return self._relation(one)
            case q.QUERY:
                return self._query_measure(one)
            case q.PYTHON:
                return self._measure(one, function=one.function)
            case _:
                return self._values(one)

    def _measure(self, one: Expectation, columns: Sequence[str] = (), **known: object) -> Measure:
        severity = one.severity or self.request.target.quality.on_failure
        if severity == q.REJECT and one.kind not in q.BY_ROW:
            severity = q.FAIL
        return Measure(one.name, one.kind, tuple(columns) or one.columns, severity, **known)  # type: ignore[arg-type]

    def _by_row(self, one: Expectation, columns: Sequence[str], condition: str, **known: object) -> Measure:
        sampled = tuple(dict.fromkeys((*self.table.primary_key, *(c for c in columns if c in self.table.column_names))))
        sampled = sampled or self.table.column_names
        sample = checks.sample_query(condition, sampled, self.dialect)
        return self._measure(one, columns, offending=condition, sample=sample, shown=sampled, **known)

    def _values(self, one: Expectation) -> Measure:
        """Return an expectation about the values of one row."""
        violation = checks.violation(one, self.table, self.dialect, self.written_in)
        columns = one.columns or checks.columns_in(violation)
        condition = self._sql(checks.certain(violation))
        if violation.find(checks.QUERY):
            # Not every engine takes a subquery inside of an aggregate.
            return self._by_row(one, columns, condition, query=checks.count_query(condition, self.dialect))
        return self._by_row(one, columns, condition, counted=checks.counted(violation, self.dialect))

    def _unique(self, one: Expectation) -> Measure:
        if self.load.keys and {*one.columns} == {*self.load.keys} and not self.load.event:
            return self._measure(one, holds="a load with two rows for one key is refused in any case")
        query, condition = checks.repeated(one.columns, self.dialect)
        return self._by_row(one, one.columns, condition, query=query)

    def _relation(self, one: Expectation) -> Measure:
        assert one.other is not None  # noqa: S101 - the kind says so
        table_name = self.request.database.table_name(*one.other[:2])
        query, condition = checks.unrelated(one, table_name, self.dialect)
        return self._by_row(one, one.columns, condition, query=query)

    def _freshness(self, one: Expectation) -> Measure:
        assert one.within is not None  # noqa: S101 - the kind says so
        since = self.request.now - one.within
        counted = checks.counted(checks.recent(one, self.table, since, "s", self.dialect), self.dialect)
        otherwise = ""
        if self.exists and self.request.target.write.mode != "truncate":
            there = checks.recent(one, self.table, since, "t", self.dialect)
            otherwise = checks.any_recent(self.load.target, there, self.dialect)
        return self._measure(one, counted=counted, otherwise=otherwise)

    def _query_measure(self, one: Expectation) -> Measure:
        try:
            query, sampled = checks.over_rows(one.text, self.table.column_names, self.written_in, self.dialect)
        except PlanError as error:
            message = f"{one.name}: {error.what}"
            raise PlanError(message, hint=error.hint, origin=self.request.pipeline.origin) from None
        counted = f"SELECT COUNT(*) FROM ({query}) AS offenders"
        sample = f"SELECT * FROM ({query}) AS offenders LIMIT {checks.SAMPLE}"
        return self._measure(one, query=counted, sample=sample, shown=sampled)

    def _sql(self, tree: exp.Expr) -> str:
        return tree.sql(dialect=self.dialect)
