"""Finds the source row at which the query of a load inside one database breaks off; it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.request import Excluded
from ematix_flow.connect.base.database import Database
from ematix_flow.connect.types.reject_rows import json_row
from ematix_flow.plan.sql.render import native_column
from ematix_flow.plan.sql.shape.query import NORMALIZED, USER

if TYPE_CHECKING:
    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.target import TargetSystem

RAISING = ("postgres", "duckdb")
"""Dialects in which a value can break off a query; the others return NULL for it."""
SEARCHED = 100_000
"""Source rows up to which the one that breaks the query is searched."""
_NUMBER = "_flow_row"


def unreadable_row(request: CommitRequest, database: TargetSystem, reason: str) -> Excluded | None:
    """Return the first source row that the query cannot read, with the column; None where there is none to be found."""
    begin, end = f"WITH {USER} AS (", f"), {NORMALIZED} AS ("
    start = request.inline.find(begin) + len(begin)
    stop = request.inline.find(end, start)
    if not isinstance(database, Database) or database.dialect not in RAISING or start < len(begin) or stop < 0:
        return None
    return _UnreadableSearch(request, database, start, stop).first(reason)


@dataclass(frozen=True, slots=True)
class _UnreadableSearch:
    """The query of a load, and where the user's own part of it is."""

    request: CommitRequest
    database: Database
    start: int
    stop: int

    def first(self, reason: str) -> Excluded | None:
        """Return the first row at which the query breaks off."""
        total = int(self._query_rows(f"SELECT COUNT(*) FROM ({self._user}) AS counted")[0][0])
        if not 0 < total <= SEARCHED or not self._fails(1, total):
            return None
        low, high = 1, total
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fails(low, middle) else (middle + 1, high)
        broken = (name for name in self._names if self._fails(low, low, native_column(name, self.database.dialect)))
        return Excluded(low, reason, self._row_text(low), next(broken, ""))

    @property
    def _user(self) -> str:
        return self.request.inline[self.start : self.stop]

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.request.columns]

    def _rows(self, low: int, high: int) -> str:
        """Return the user's query with numbers that every transaction gives alike, between two of them."""
        numbers = f"ROW_NUMBER() OVER (ORDER BY CAST(all_rows AS VARCHAR)) AS {_NUMBER}"
        numbered = f"SELECT all_rows.*, {numbers} FROM ({self._user}) AS all_rows"
        return f"SELECT * FROM ({numbered}) AS numbered_rows WHERE {_NUMBER} BETWEEN {low} AND {high}"

    def _fails(self, low: int, high: int, value: str = "shaped_rows") -> bool:
        inline = self.request.inline
        narrowed = inline[: self.start] + self._rows(low, high) + inline[self.stop :]
        try:
            self._query_rows(f"SELECT COUNT(CAST({value} AS VARCHAR)) FROM ({narrowed}) AS shaped_rows")
        except self.database.errors:
            return True
        return False

    def _row_text(self, number: int) -> str:
        sql = self._rows(number, number)
        session = self.database.session()
        try:
            names = [column.name for column in self.database.describe(session, sql)]
        finally:
            session.close()
        pairs = zip(names, self._query_rows(sql)[0], strict=True)
        return json_row({name: value for name, value in pairs if name != _NUMBER})

    def _query_rows(self, sql: str) -> list[tuple[Any, ...]]:
        session = self.database.session()
        try:
            return session.query(sql)
        finally:
            session.close()
