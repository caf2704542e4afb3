"""What metadata tables record about maintenance, and which rows about loads may go; user tables are not touched."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger, parse_instant, transaction
from ematix_flow.connect.base.retry import OVERTAKEN, attempts
from ematix_flow.plan.sql.render import instant

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem

NAME = "flow maintain"
"""Stands in the run history in place of a pipeline's name."""

DONE, FAILED = "maintain_success", "maintain_failed"


@dataclass(frozen=True, slots=True)
class LoadRetention:
    """Which loads the metadata tables retain: the newest and the recent ones."""

    loads: int
    age: timedelta


LOADS = LoadRetention(10_000, timedelta(days=90))
"""A load that is neither so new nor among so many of its pipeline is not queried any more: no run repeats so late."""

BATCHES = LoadRetention(1_000, timedelta(days=1))
"""Streams load many times a minute, and what they loaded follows from their position alone."""


@dataclass(frozen=True, slots=True)
class _Record:
    """A metadata table whose rows are about loads: the columns of pipeline and time."""

    table: str
    owner: tuple[str, ...]
    at: str


_RECORDS = {
    "tokens": _Record("ledger", ("pipeline_name", "target_name"), "committed_at"),
    "history": _Record("run_history", ("pipeline_name",), "started_at"),
}


def last_success(ledger: Ledger, session: Session, schema: str, table: str) -> datetime | None:
    """Return when a table was last maintained; None when it never was."""
    latest = ledger.as_text("MAX(finished_at)")
    rows = session.query(
        f"SELECT {latest} FROM {ledger.name('run_history')} WHERE pipeline_name = ? AND status = ? "
        "AND target_schema = ? AND target_table = ?",
        (NAME, DONE, schema, table),
    )
    return parse_instant(rows[0][0]) if rows and rows[0][0] is not None else None


def forget(ledger: Ledger, session: Session, now: datetime) -> dict[str, int]:
    """Remove tokens and history that no run can query any more, and return how many rows there were."""
    return {name: _forget(ledger, session, record, now, LOADS) for name, record in _RECORDS.items()}


def forget_batches(database: TargetSystem, stream: str, history: str, now: datetime) -> dict[str, int]:
    """Remove tokens and history of old batches of one stream; a target that is away keeps them until the next time."""
    ledger = Ledger(database)
    try:
        session = database.session()
    except database.failures:
        return {}
    try:
        for attempt in attempts(OVERTAKEN):
            with attempt:
                removed = _forget_batches(ledger, session, {"tokens": stream, "history": history}, now)
    except database.failures:
        return {}
    finally:
        session.close()
    return removed


def _forget_batches(ledger: Ledger, session: Session, names: Mapping[str, str], now: datetime) -> dict[str, int]:
    with transaction(session):
        return {name: _forget(ledger, session, _RECORDS[name], now, BATCHES, of) for name, of in names.items()}


def forgettable(ledger: Ledger, session: Session, now: datetime) -> dict[str, int]:
    """Count the tokens and the history that no run can query any more."""
    counts = {}
    for name, record in _RECORDS.items():
        counts[name] = sum(
            int(session.query(f"SELECT COUNT(*) {condition}", owner)[0][0])
            for condition, owner in _old(ledger, session, record, now, LOADS)
        )
    return counts


def _forget(
    ledger: Ledger, session: Session, record: _Record, now: datetime, retention: LoadRetention, of: str = ""
) -> int:
    old_rows = list(_old(ledger, session, record, now, retention, of))
    return sum(session.execute(f"DELETE {condition}", owner) for condition, owner in old_rows)


def _old(
    ledger: Ledger, session: Session, record: _Record, now: datetime, retention: LoadRetention, of: str = ""
) -> list[tuple[str, tuple[str, ...]]]:
    """Return a FROM clause with its parameters for the rows of every pipeline, or one, that are not retained."""
    table, owner = ledger.name(record.table), ", ".join(record.owner)
    one = " WHERE pipeline_name = ?" if of else ""
    many = session.query(
        f"SELECT {owner} FROM {table}{one} GROUP BY {owner} HAVING COUNT(*) > {retention.loads}", (of,) if of else ()
    )
    mine = " AND ".join(f"{column} = ?" for column in record.owner)
    result = []
    for names in many:
        rows = session.query(
            f"SELECT {ledger.as_text(record.at)} FROM {table} WHERE {mine} ORDER BY {record.at} DESC "
            f"LIMIT 1 OFFSET {retention.loads - 1}",
            names,
        )
        before = min(parse_instant(rows[0][0]), now - retention.age)
        result.append((f"FROM {table} WHERE {mine} AND {record.at} < {instant(before, ledger.dialect)}", names))
    return result
