"""A change of a lake table that is made once, and what a kind of table has to do for that; no kind is named here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.base.lake_engine import LakeEngine


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a table that is to be made once: the commit it belongs to and the metadata that follows."""

    id: str
    number: int
    ledger: str
    state: str = ""


class Applier:
    """What a kind of lake table does for a session."""

    may_commit_late = False
    """True where a change can still arrive after the engine has given up on it, as over a network."""
    decides: ClassVar[bool] = False
    """True where `change` fails unless the table took it, so that the table need not be queried afterwards."""

    def prepare(self, engine: LakeEngine, change: Change) -> None:
        """Do what a change requires before its intent is written."""

    def change(self, engine: LakeEngine, sql: str, change: Change) -> dict[str, int]:
        """Run the statement so that the table remembers the change, and return the numbers that its answer names."""
        raise NotImplementedError

    def is_committed(self, engine: Callable[[], LakeEngine], change: Change) -> bool:
        """Return whether the table remembers a change; the engine is queried where the table alone does not show it."""
        raise NotImplementedError

    def refuse(self, engine: Callable[[], LakeEngine], change: Change) -> None:
        """Make sure that a change which was not made never will be."""
        raise NotImplementedError

    def clean_up(self, engine: Callable[[], LakeEngine]) -> None:
        """Remove what loads that died left in the table; the caller holds its lock."""
