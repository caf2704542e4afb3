"""Clean-up of metadata that is kept in a store; rows of tables are not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.maintenance import Chore

if TYPE_CHECKING:
    from ematix_flow.connect.metadata.session import StoreSession


def books_chore(session: StoreSession) -> Chore:
    """Give the removal of states and records that no session can begin from."""
    return Chore("books", lambda: {"removed": session.tidy()}, lambda: {"removed": len(session.superseded())})
