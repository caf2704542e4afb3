"""Positions of streams in a file of this machine, for targets that cannot remember them; a move is durable when it returns."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.state_folder import state_folder
from ematix_flow.connect.base.stream_source import as_text, from_text, refuse_other_source
from ematix_flow.errors import FencedError, RunError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.connect.base.sink import SinkCheckpointKey
    from ematix_flow.connect.base.stream_source import Position

FILE = "positions.db"
LOCK_WAIT_SECONDS = 30.0

_TABLE = (
    "CREATE TABLE IF NOT EXISTS positions "
    "(name TEXT, place TEXT, source TEXT NOT NULL, position TEXT NOT NULL, PRIMARY KEY (name, place))"
)
_OF_ONE = "WHERE name = ? AND place = ?"


@dataclass(frozen=True, slots=True)
class LocalPositions:
    """How far streams have come in one target."""

    address: str

    def position(self, checkpoint_key: SinkCheckpointKey) -> Position | None:
        """Return how far a stream has come, None before its first messages."""
        with closing(_open_database()) as file:
            row = file.execute(
                f"SELECT source, position FROM positions {_OF_ONE}", (checkpoint_key.name, self.address)
            ).fetchone()
        if row is None:
            return None
        refuse_other_source(checkpoint_key.name, row[0], checkpoint_key.source)
        return from_text(row[1])

    def move(self, checkpoint_key: SinkCheckpointKey, before: Position, after: Position) -> None:
        """Move a position that still is where it was; a stream that another process moved meanwhile is refused."""
        with closing(_open_database()) as file, file:
            file.execute("BEGIN IMMEDIATE")
            known = file.execute(
                f"SELECT position FROM positions {_OF_ONE}", (checkpoint_key.name, self.address)
            ).fetchone()
            if known is not None and known[0] != as_text(before):
                message = f"another run of stream {checkpoint_key.name!r} has written to {self.address!r} meanwhile"
                raise FencedError(message, hint="messages that both have sent carry the same ids.")
            self._put(file, checkpoint_key, after)

    def remember(self, checkpoint_key: SinkCheckpointKey, position: Position) -> None:
        """Set a position, whatever it was before."""
        with closing(_open_database()) as file, file:
            self._put(file, checkpoint_key, position)

    def _put(self, file: sqlite3.Connection, checkpoint_key: SinkCheckpointKey, position: Position) -> None:
        row = (checkpoint_key.name, self.address, checkpoint_key.source, as_text(position))
        file.execute("INSERT OR REPLACE INTO positions (name, place, source, position) VALUES (?, ?, ?, ?)", row)


def _open_database() -> sqlite3.Connection:
    path: Path = state_folder() / FILE
    try:
        file = sqlite3.connect(path, timeout=LOCK_WAIT_SECONDS, isolation_level=None)
        file.execute("PRAGMA synchronous = FULL")
        file.execute(_TABLE)
    except sqlite3.Error as error:
        message = f"the positions of streams cannot be kept in {path}: {error}"
        raise RunError(message, hint="name another folder: EMATIX_FLOW_STATE_DIR.") from None
    return file
