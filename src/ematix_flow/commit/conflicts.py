"""Sees what a target's tables are now, and refuses a commit that finds something else than its plan did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger
from ematix_flow.commit.request import Seen
from ematix_flow.connect.types.fingerprint import EMPTY
from ematix_flow.errors import StalePlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.request import Order
    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import Target

HINT = "nothing was changed; look at the difference again: flow plan NAME --diff."


def see(database: Target, session: Session, place: TableName) -> Seen:
    """Return a table as it is now."""
    found = database.find_table(session, place)
    if found is None:
        return Seen(place)
    columns = tuple(column.name for column in found.columns)
    return Seen(place, columns, database.fingerprint(session, place, columns))


def refuse_changed(expected: Sequence[Seen], database: Target, session: Session) -> None:
    """Refuse when a table has other rows than it had; columns that came since then do not count."""
    for seen in expected:
        if not _same(seen, database, session):
            name = ".".join(part for part in (seen.place.schema, seen.place.name) if part)
            message = f"the target {name} changed since the plan was made"
            raise StalePlanError(message, hint=HINT)


def refuse_moved(order: Order, database: Target, session: Session) -> None:
    """Refuse when another load has moved the watermark since."""
    if order.watermark_after is None:
        return
    if Ledger(database).watermark(session, order.watermark_name) != order.watermark_before:
        message = f"another load of {order.watermark_name} moved its watermark since the plan was made"
        raise StalePlanError(message, hint=HINT)


def _same(seen: Seen, database: Target, session: Session) -> bool:
    found = database.find_table(session, seen.place)
    if found is None:
        return seen.fingerprint is None
    there = tuple(column.name for column in found.columns)
    if not {*seen.columns} <= {*there}:
        return False
    # An attempt that died may have created a table that was missing; without rows it is as good as that.
    return database.fingerprint(session, seen.place, seen.columns or there) == (seen.fingerprint or EMPTY)
