"""Finds the rows that a target refuses, by simulating ever smaller loads; it commits nothing.

Rows have the same numbers in every simulation. The first failing prefix ends with a violating row; it is set aside and the
search goes on, so of two rows that exclude each other the first one is loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.rejects import row_of
from ematix_flow.commit.request import Excluded, retaining
from ematix_flow.commit.row_numbers import Only, numbered
from ematix_flow.commit.simulate import simulate
from ematix_flow.commit.staged_rows import MAX_CHARS, staged_rows, work_tables
from ematix_flow.commit.unreadable_rows import unreadable_row
from ematix_flow.connect.config.redact import redact
from ematix_flow.connect.types.reject_rows import json_row
from ematix_flow.errors import CommitError, FlowError, RefusedError
from ematix_flow.plan.sql.row_json import staged_row

if TYPE_CHECKING:
    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.target import TargetSystem

MOST = 200
"""Above this many violations the load is refused: the source and the target do not fit each other."""
SEARCHED = 100_000
"""Rows up to which the first violation of a failed load is searched: each step applies a part of it again."""


def searchable(request: CommitRequest, database: Catalog) -> bool:
    """Return whether rows that the target refused can be found and rejected, so that the others load."""
    return request.rejects_allowed and request.stage is not None and database.capabilities.constraints


def without_violations(request: CommitRequest, database: TargetSystem) -> CommitRequest:
    """Return the request with every refused row set aside as a reject."""
    search = _ViolationSearch(retaining(request, 1), database)
    total = sum(report.rows for report in request.reports)
    violations: list[Excluded] = []
    while True:
        left_out = tuple(row.number for row in violations)
        reason = search.refusal(Only(left_out, total))
        if reason is None:
            return replace(request, excluded=tuple(violations))
        if len(violations) == MOST:
            message = f"the target refuses more than {MOST} rows; the last reason: {reason}"
            raise CommitError(message, hint="nothing was loaded. Fix the source or the target's constraints.")
        violations.append(search.first(left_out, total, reason))


def naming_violation(request: CommitRequest, database: TargetSystem, error: RefusedError) -> RefusedError:
    """Return a refusal together with the first row that causes it, where that can be found."""
    if not database.capabilities.constraints:
        return error
    row = _first_violation(_ViolationSearch(request, database), error)
    if row is None:
        return error
    row_text = redact(json_row(row_of(row.row_json)))
    row_text = row_text if len(row_text) <= MAX_CHARS else f"{row_text[:MAX_CHARS]}..."
    where = f"{row.column}: " if row.column else ""
    message = f"{error.what}\n  {where}refused; row {row_text}"
    return RefusedError(message, hint=error.hint, origin=error.origin)


def _first_violation(search: _ViolationSearch, error: RefusedError) -> Excluded | None:
    """Return the first refused row; an error of the search itself says less than the error that is known."""
    lost: tuple[type[BaseException], ...] = (FlowError, *search.database.failures)
    try:
        unread = unreadable_row(search.request, search.database, error.what)
        if unread is not None:
            return unread
        total = search.total()
        if total > SEARCHED or search.refusal(Only(up_to=total)) is None:
            return None
        return search.first((), total, error.what)
    except lost:
        return None


@dataclass(frozen=True, slots=True)
class _ViolationSearch:
    """Simulations of parts of one load."""

    request: CommitRequest
    database: TargetSystem

    def refusal(self, only: Only) -> str | None:
        """Return the reason why a part of the rows cannot be loaded, or None."""
        try:
            simulate(replace(self.request, refuse_empty=False), self.database, only=only)
        except RefusedError as error:
            return error.what
        return None

    def first(self, left_out: tuple[int, ...], total: int, reason: str) -> Excluded:
        """Return the first row that is refused; a load that is refused without rows has no such row."""
        nothing = self.refusal(Only(left_out, 0))
        if nothing is not None:
            raise RefusedError(nothing, hint="nothing was changed.")
        low, high = 1, total
        while low < high:
            middle = (low + high) // 2
            refused = self.refusal(Only(left_out, middle))
            low, high = (low, middle) if refused is not None else (middle + 1, high)
            reason = refused or reason
        reason = self.refusal(Only(left_out, low)) or reason
        return Excluded(low, reason, self._row_text(low), self._column(low, reason))

    def total(self) -> int:
        """Return the number of rows."""
        if self.request.stage is not None:
            return sum(report.rows for report in self.request.reports)
        return int(self._query_rows("COUNT(*)", Only())[0][0])

    def _row_text(self, number: int) -> str:
        row = staged_row(self.request.columns, self.database.dialect)
        rows = self._query_rows(row, Only(since=number, up_to=number))
        return str(rows[0][0]) if rows else "{}"

    def _column(self, number: int, reason: str) -> str:
        """Return the column whose value is refused: the one that the reason names, or that makes it vanish when it is NULL."""
        names = [column.name for column in self.request.columns]
        named = [name for name in names if re.search(rf"[\"'`.]{re.escape(name)}(?![\w])", reason)]
        if len(named) == 1:
            return named[0]
        alone = Only(since=number, up_to=number)
        if self.refusal(alone) is None:
            return ""
        return next((name for name in names if self.refusal(replace(alone, blank=name)) is None), "")

    def _query_rows(self, value: str, only: Only) -> list[tuple[Any, ...]]:
        """Return an expression over a part of the load."""
        session = self.database.session()
        try:
            names = work_tables(self.request, self.database, session)
            session.begin()
            relation, _ = staged_rows(self.request, self.database, session, names)
            subset = numbered(self.request.columns, self.database.dialect, relation, only)
            return session.query(f"SELECT {value} FROM {subset} AS some_rows")
        finally:
            session.rollback()
            session.close()
