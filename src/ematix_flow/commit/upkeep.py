"""What the books remember about maintenance, and what they may forget about loads; rows of tables are not touched."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import parse_instant
from ematix_flow.plan.sql.render import instant

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.commit.ledger import Ledger
    from ematix_flow.connect.base import Session

NAME = "flow maintain"
"""What stands in the run history in place of a pipeline's name."""

DONE, FAILED = "maintain_success", "maintain_failed"

KEPT_LOADS = 10_000
KEPT_FOR = timedelta(days=90)
"""A load that is neither so new nor among so many of its pipeline is asked for by nobody: no run is repeated so late."""


@dataclass(frozen=True, slots=True)
class _Record:
    """A table of the books whose rows are about loads: whose they are, and when."""

    table: str
    owner: tuple[str, ...]
    at: str


_RECORDS = {
    "tokens": _Record("ledger", ("pipeline_name", "target_name"), "committed_at"),
    "history": _Record("run_history", ("pipeline_name",), "started_at"),
}


def last_success(ledger: Ledger, session: Session, schema: str, table: str) -> datetime | None:
    """Give when a table was last maintained; None when it never was."""
    latest = ledger.as_text("MAX(finished_at)")
    rows = session.query(
        f"SELECT {latest} FROM {ledger.name('run_history')} WHERE pipeline_name = ? AND status = ? "
        "AND target_schema = ? AND target_table = ?",
        (NAME, DONE, schema, table),
    )
    return parse_instant(rows[0][0]) if rows and rows[0][0] is not None else None


def forget(ledger: Ledger, session: Session, now: datetime) -> dict[str, int]:
    """Remove tokens and history that nobody can ask for any more, and give how many rows there were."""
    return {name: _forget(ledger, session, record, now) for name, record in _RECORDS.items()}


def forgettable(ledger: Ledger, session: Session, now: datetime) -> dict[str, int]:
    """Count the tokens and the history that nobody can ask for any more."""
    counts = {}
    for name, record in _RECORDS.items():
        counts[name] = sum(
            int(session.query(f"SELECT COUNT(*) {condition}", owner)[0][0])
            for condition, owner in _old(ledger, session, record, now)
        )
    return counts


def _forget(ledger: Ledger, session: Session, record: _Record, now: datetime) -> int:
    found = list(_old(ledger, session, record, now))
    return sum(session.execute(f"DELETE {condition}", owner) for condition, owner in found)


def _old(ledger: Ledger, session: Session, record: _Record, now: datetime) -> list[tuple[str, tuple[str, ...]]]:
    """Give a FROM clause with its parameters for the old rows of every pipeline that has more than are kept."""
    table, owner = ledger.name(record.table), ", ".join(record.owner)
    many = session.query(f"SELECT {owner} FROM {table} GROUP BY {owner} HAVING COUNT(*) > {KEPT_LOADS}")
    mine = " AND ".join(f"{column} = ?" for column in record.owner)
    result = []
    for names in many:
        rows = session.query(
            f"SELECT {ledger.as_text(record.at)} FROM {table} WHERE {mine} ORDER BY {record.at} DESC "
            f"LIMIT 1 OFFSET {KEPT_LOADS - 1}",
            names,
        )
        before = min(parse_instant(rows[0][0]), now - KEPT_FOR)
        result.append((f"FROM {table} WHERE {mine} AND {record.at} < {instant(before, ledger.dialect)}", names))
    return result
