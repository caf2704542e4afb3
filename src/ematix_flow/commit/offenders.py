"""Finds the staged rows that a target's constraints refuse, by rehearsing ever smaller loads; it commits nothing.

Rows have the same numbers in every rehearsal. The first failing prefix ends with an offender; it is set aside and the
search goes on, so of two rows that exclude each other the first one is loaded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.numbering import numbered
from ematix_flow.commit.order import Excluded
from ematix_flow.commit.publish import rehearse
from ematix_flow.commit.rejects import row_json
from ematix_flow.errors import CommitError, RefusedError

if TYPE_CHECKING:
    from ematix_flow.commit.order import Order
    from ematix_flow.connect.base import Database

MOST = 200
"""Above this many offenders the load is refused: the source and the target do not fit each other."""


def searchable(order: Order, database: Database) -> bool:
    """Say whether rows that the target refused can be found and rejected, so that the others load."""
    return order.rejects_allowed and order.stage is not None and database.capabilities.constraints


def without_offenders(order: Order, database: Database) -> Order:
    """Give the order with every refused row set aside as a reject."""
    total = sum(part.rows for part in order.parts)
    found: list[Excluded] = []
    while True:
        reason = _refusal(order, database, found, total)
        if reason is None:
            return replace(order, excluded=tuple(found))
        if len(found) == MOST:
            message = f"the target refuses more than {MOST} rows; the last reason: {reason}"
            raise CommitError(message, hint="nothing was loaded. Mend the source or the target's constraints.")
        low, high = 1, total
        while low < high:
            middle = (low + high) // 2
            refusal = _refusal(order, database, found, middle)
            low, high = (low, middle) if refusal is not None else (middle + 1, high)
            reason = refusal or reason
        reason = _refusal(order, database, found, low) or reason
        found.append(Excluded(low, reason, _row(order, database, low)))


def _refusal(order: Order, database: Database, found: list[Excluded], up_to: int) -> str | None:
    """Give the reason why the first rows cannot be loaded, or None."""
    try:
        rehearse(order, database, only=([row.number for row in found], up_to))
    except RefusedError as error:
        return error.what
    return None


def _row(order: Order, database: Database, number: int) -> str:
    session = database.session()
    try:
        assert order.stage is not None  # noqa: S101 - only staged loads have offenders
        staged = database.staged_relation(session, order.stage, order.parts)
        upto = numbered(order.columns, database.dialect, staged, range(1, number), number)
        rows = session.query(f"SELECT * FROM {upto} AS refused_row")
        names = [column.name for column in order.columns]
        return row_json(names, rows[0]) if rows else "{}"
    finally:
        session.close()
