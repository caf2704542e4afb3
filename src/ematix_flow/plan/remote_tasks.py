"""Tasks that run on other machines: which paths they do not see, and how what they stage comes to the driver; pure functions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.errors import PlanError
from ematix_flow.plan.steps import SPARK, Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.target import TargetSystem

RESULTS, STORE = "results", "store"
"""How staged rows come to a target that only the driver can write to."""


@dataclass(frozen=True, slots=True)
class Away:
    """Where tasks run that see no disk of the driver, apart from folders that both have."""

    master: str
    """For people; without a token."""
    shared: tuple[str, ...] = ()
    staging: str = ""
    """The store that tasks and the driver both reach, as the user wrote it."""

    def unseen(self, paths: Sequence[str]) -> str:
        """Return the first of the paths that tasks do not see; empty where they see all of them."""
        return next((path for path in paths if not self._sees(path)), "")

    def _sees(self, path: str) -> bool:
        real = os.path.realpath(path)
        folders = [os.path.realpath(Path(folder).expanduser()) for folder in self.shared]
        return any(os.path.commonpath((real, folder)) == folder for folder in folders)


def refuse_unseen(away: Away | None, by: Choice, read: Sequence[str], written: Sequence[str], *, lake: bool) -> None:
    """Refuse a load whose tasks would have to read or write what only the driver has; a lake is changed by tasks in any case."""
    if away is None:
        return
    if by.value == SPARK:
        refuse_unread(away, read)
    if (by.value == SPARK or lake) and (path := away.unseen(written)):
        message = f"tasks run on {away.master} and cannot write to {path}, which only this machine has"
        hint = "write to a bucket; or, if executors see the same folder, name it under `shared_paths` of [spark]."
        raise PlanError(message, hint=hint)


def refuse_unread(away: Away | None, read: Sequence[str]) -> None:
    """Refuse to let tasks read what only the driver has."""
    path = away.unseen(read) if away is not None else ""
    if away is None or not path:
        return
    message = f"tasks run on {away.master} and cannot read {path}, which only this machine has"
    hint = (
        "put it where executors reach it (a database, a bucket); or let this machine move the rows with "
        'engine = "local"; or, if executors see the same folder, name it under `shared_paths` of [spark].'
    )
    raise PlanError(message, hint=hint)


def carried(away: Away | None, by: Choice, database: TargetSystem) -> Choice | None:
    """Choose how staged rows come to the driver; none where tasks stage in a location that the target reads itself."""
    if away is None or by.value != SPARK or not away.unseen(database.staging_paths):
        return None
    if away.staging:
        return Choice(
            STORE, f"executors cannot write next to {database.staging_paths[0]}, and staging is {away.staging}"
        )
    return Choice(RESULTS, f"executors cannot write next to {database.staging_paths[0]}")
