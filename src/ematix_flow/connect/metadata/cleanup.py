"""Clean-up of metadata in a store; rows of tables are not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.maintenance import MaintenanceTask

if TYPE_CHECKING:
    from ematix_flow.connect.metadata.session import StoreSession


def metadata_task(session: StoreSession) -> MaintenanceTask:
    """Return the removal of states and records that no session can begin from."""
    return MaintenanceTask(
        "metadata", lambda: {"removed": session.clean_up()}, lambda: {"removed": len(session.superseded())}
    )
