"""Clean-up of what dead loads of a lake table left next to its metadata; rows of tables are not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.maintenance import MaintenanceTask
from ematix_flow.connect.lake.lock import EXPIRED_SECONDS, LOCKS
from ematix_flow.connect.lake.sql_session import POINTS
from ematix_flow.connect.metadata.session import UNFINISHED_SECONDS

if TYPE_CHECKING:
    from ematix_flow.connect.lake.transaction import LakeSession

FORGOTTEN_SECONDS = 24 * 3600.0
"""Readers of folded events that were replaced so long ago have been given up."""


def leftovers_task(session: LakeSession) -> MaintenanceTask:
    """Return the removal of what dead loads of a lake table left: folded events, old expiry marks of locks, drafts."""

    def work() -> dict[str, int]:
        keys = leftovers(session)
        for key in keys:
            session.store.delete(key)
        return {"removed": len(keys)}

    return MaintenanceTask("leftovers", work, lambda: {"removed": len(leftovers(session))})


def leftovers(session: LakeSession) -> list[str]:
    """Return what lies next to the metadata of a lake table and belongs to no load any more."""
    store, home = session.store, session.home
    in_use = session.value("points")
    points = store.listed(home + POINTS)
    keys = [f.key for f in points if f.age > FORGOTTEN_SECONDS and not (in_use and f.key.startswith(f"{in_use}/"))]
    dead_locks = (f for f in store.listed(home + LOCKS) if f.key.endswith(".dead"))
    keys += [f.key for f in dead_locks if f.age > EXPIRED_SECONDS]
    for folder, seconds in ((POINTS, FORGOTTEN_SECONDS), (LOCKS, UNFINISHED_SECONDS)):
        drafts = store.unfinished(home + folder)
        keys += [f.key for f in drafts if f.age > seconds and not (in_use and f.key.startswith(f"{in_use}/"))]
    return keys
