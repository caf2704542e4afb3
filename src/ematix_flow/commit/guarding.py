"""Sees what a target's tables are now, and refuses a commit that finds something else than its plan did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger
from ematix_flow.commit.order import Seen
from ematix_flow.errors import StalePlanError
from ematix_flow.plan.sql.render import native_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.order import Order
    from ematix_flow.connect.base import Database, Session, TableName

HINT = "nothing was changed; look at the difference again: flow plan NAME --diff."


def see(database: Database, session: Session, place: TableName) -> Seen:
    """Give a table as it is now."""
    found = database.find_table(session, place)
    if found is None:
        return Seen(place)
    columns = tuple(column.name for column in found.columns)
    return Seen(place, columns, database.fingerprint(session, place, columns))


def refuse_changed(expected: Sequence[Seen], database: Database, session: Session) -> None:
    """Refuse when a table has other rows than it had; columns that came since then do not count."""
    for seen in expected:
        if not _same(seen, database, session):
            name = ".".join(part for part in (seen.place.schema, seen.place.name) if part)
            message = f"the target {name} changed since the plan was made"
            raise StalePlanError(message, hint=HINT)


def refuse_moved(order: Order, database: Database, session: Session) -> None:
    """Refuse when another load has moved the watermark since."""
    if order.watermark_after is None:
        return
    if Ledger(database).watermark(session, order.watermark_name) != order.watermark_before:
        message = f"another load of {order.watermark_name} moved its watermark since the plan was made"
        raise StalePlanError(message, hint=HINT)


def _same(seen: Seen, database: Database, session: Session) -> bool:
    found = database.find_table(session, seen.place)
    if seen.fingerprint is None:
        # An attempt that died may have created it; without rows it is as good as missing.
        return found is None or not _has_rows(database, session, seen.place)
    if found is None or not {*seen.columns} <= {column.name for column in found.columns}:
        return False
    return database.fingerprint(session, seen.place, seen.columns) == seen.fingerprint


def _has_rows(database: Database, session: Session, place: TableName) -> bool:
    sql = f"SELECT 1 FROM {native_name(place, database.dialect)} LIMIT 1"
    return bool(database.data(session).query(sql))
