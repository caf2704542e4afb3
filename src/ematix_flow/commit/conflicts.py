"""Takes snapshots of a target's tables, and refuses a commit that finds something else than its plan did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger
from ematix_flow.commit.request import TableSnapshot
from ematix_flow.connect.types.fingerprint import EMPTY
from ematix_flow.errors import StalePlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem

HINT = "nothing was changed; review the difference again: flow plan NAME --diff."


def take_snapshot(database: TargetSystem, session: Session, table_name: TableName) -> TableSnapshot:
    """Return a table as it is now."""
    existing = database.find_table(session, table_name)
    if existing is None:
        return TableSnapshot(table_name)
    columns = tuple(column.name for column in existing.columns)
    return TableSnapshot(table_name, columns, database.fingerprint(session, table_name, columns))


def refuse_changed(expected: Sequence[TableSnapshot], database: TargetSystem, session: Session) -> None:
    """Refuse when a table has other rows than it had; columns that came since then do not count."""
    for snapshot in expected:
        if not _same(snapshot, database, session):
            name = ".".join(part for part in (snapshot.place.schema, snapshot.place.name) if part)
            message = f"the target {name} changed since the plan was made"
            raise StalePlanError(message, hint=HINT)


def refuse_moved(request: CommitRequest, database: TargetSystem, session: Session) -> None:
    """Refuse when another load has moved the watermark since."""
    if request.watermark_after is None:
        return
    stored_as = request.watermark_from or request.watermark_name
    if Ledger(database).watermark(session, stored_as) != request.watermark_before:
        message = f"another load of {request.watermark_name} moved its watermark since the plan was made"
        raise StalePlanError(message, hint=HINT)


def _same(snapshot: TableSnapshot, database: TargetSystem, session: Session) -> bool:
    existing = database.find_table(session, snapshot.place)
    if existing is None:
        return snapshot.fingerprint is None
    there = tuple(column.name for column in existing.columns)
    if not {*snapshot.columns} <= {*there}:
        return False
    # An attempt that died may have created a table that was missing; without rows it is as good as that.
    return database.fingerprint(session, snapshot.place, snapshot.columns or there) == (snapshot.fingerprint or EMPTY)
