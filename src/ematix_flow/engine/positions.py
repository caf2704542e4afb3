"""How far a stream has come, as each target remembers it; positions move with the rows, or because an operator said so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger, transaction
from ematix_flow.connect.stream import as_text, from_text, refuse_other_source
from ematix_flow.errors import StreamLostError
from ematix_flow.records import Watermark

TURN = "turn"
"""Key under which a position that an operator chose says how often that has happened.

The same messages may be read again after that, so their loads must not be taken for those of before.
"""

if TYPE_CHECKING:
    from ematix_flow.clock import Clock
    from ematix_flow.connect.base import Database
    from ematix_flow.connect.stream import Position


@dataclass(frozen=True, slots=True)
class Books:
    """Where a target remembers how far a stream has come, and under which name."""

    database: Database
    name: str


def position_in(database: Database, name: str, source_id: str) -> Position | None:
    """Give the position that a target remembers under a name, None before the first load."""
    if not database.exists():
        return None
    ledger, session = Ledger(database), database.session()
    try:
        mark = ledger.watermark(session, name) if ledger.exists(session) else None
    finally:
        session.close()
    if mark is None:
        return None
    refuse_other_source(name, mark.column, source_id)
    return from_text(mark.value)


def onward(position: Position, end: Position) -> Position:
    """Give the end of a stretch with what its beginning says beside the place."""
    return end | {TURN: position[TURN]} if TURN in position else end


def remember(database: Database, name: str, source_id: str, position: Position, clock: Clock) -> None:
    """Write a position without rows: the beginning of a stream, or where an operator wants it to go on."""
    ledger, session, now = Ledger(database), database.session(), clock.now()
    try:
        ledger.ensure(session)
        ledger.ensure_fence(session, name, now)
        with transaction(session):
            # Whoever runs this stream meanwhile may not commit any more.
            ledger.take_fence(session, name, now)
            before = ledger.watermark(session, name)
            at = position if before is None else position | {TURN: _turn(before.value) + 1}
            ledger.move_watermark(session, name, before, Watermark(source_id, as_text(at)), now)
    finally:
        session.close()


def _turn(kept: str) -> int:
    """Give how often an operator has moved a position; a pipeline of this name may have kept something else."""
    try:
        return int(from_text(kept).get(TURN, 0))
    except (ValueError, StreamLostError):
        return 0
