"""Iceberg tables as sources of streams: positions are snapshots in the line that leads to the newest one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.iceberg.table import IcebergSource
from ematix_flow.connect.lake.stream_source import Appended, History, LakeCommit, LakeStream, WholeTable

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.lake.stream_source import Added
    from ematix_flow.declare.connection.registry import IcebergConnection

_CHANGES = ("added-", "deleted-", "removed-")
"""How the numbers of what a snapshot changed begin; a snapshot that changed nothing has none."""


class IcebergStream(LakeStream):
    """A table of an Iceberg catalog."""

    kind = "iceberg"
    key: ClassVar[str] = "snapshot"

    def __init__(self, connection: IcebergConnection, query: str) -> None:
        super().__init__(IcebergSource(connection), query)
        self._line: History | None = None

    def history(self, position: Position, end: Position | None = None) -> History:
        """Return the snapshots after a position, unless the end is known."""
        known = self._line if end is not None else None
        number, line = (
            position[self.key],
            known if known and end and known.until(end[self.key]) else self._read_history(),
        )
        if number is None:
            return line
        numbers = [commit.number for commit in line.commits]
        if number not in numbers:
            raise self.lost(
                f"snapshot {number} of Iceberg table {self.query!r} was expired or taken back, or the table was made again"
            )
        return History(line.commits[numbers.index(number) + 1 :], line.cut)

    def position_at(self, number: int) -> Position:
        """Return a snapshot; no other table has one of this number."""
        return {self.key: number}

    def newest(self) -> Position:
        """Return the snapshot that the table shows now; none where it was never written to."""
        commits = self._read_history().commits
        return self.position_at(commits[-1].number) if commits else {self.key: None}

    def added(self, begin: Position, end: Position) -> Added:
        """Return what was appended between two snapshots."""
        if begin[self.key] is None:
            return WholeTable(self.relation, end[self.key])
        return Appended(self.relation, begin[self.key], end[self.key])

    def _read_history(self) -> History:
        if self._line is None:
            self.lake.newest(self.engine(), self.schema, self.table)  # fails where there is no table
        table = self.relation
        rows = self.run_query(
            "SELECT snapshot_id, parent_id, operation, unix_millis(committed_at), summary, "
            f"snapshot_id IN (SELECT snapshot_id FROM {table}.refs WHERE name = 'main') FROM {table}.snapshots"
        )
        self._line = line_of(rows)
        return self._line


def line_of(rows: list[tuple[Any, ...]]) -> History:
    """Return the snapshots that lead to the newest one.

    Those of branches and those that were rolled back are not among them.
    """
    by_number = {row[0]: row for row in rows}
    at = next((row[0] for row in rows if row[5]), None)
    commits = []
    while at in by_number:
        commits.append(_lake_commit(by_number[at]))
        at = by_number[at][1]
    return History(tuple(reversed(commits)), cut=at is not None)


def _lake_commit(row: tuple[Any, ...]) -> LakeCommit:
    number, _, operation, timestamp_ms, summary, _ = row
    changed = operation != "replace" and any(name.startswith(_CHANGES) for name in summary)
    rows = max(int(summary.get("added-records", 0)), 1) if changed and operation == "append" else 0
    at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return LakeCommit(number, at, rows, removes=changed and operation != "append")
