"""How far a stream has come, as each target stores it; positions move with the rows, or by an operator."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger, transaction
from ematix_flow.connect.base.stream_source import TURN, as_text, from_text, refuse_other_source
from ematix_flow.errors import StreamLostError
from ematix_flow.failpoints import failpoint
from ematix_flow.records import SourceWatermark

STATE = "state"
"""Key in a position for the query that holds the state of a stream, and the batch of it that the target has."""

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.clock import Clock
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.base.target import TargetSystem


@dataclass(frozen=True, slots=True)
class OffsetStore:
    """Where a target stores how far a stream has come, and under which names."""

    database: TargetSystem
    name: str
    """The name under which the position is stored."""
    stream: str
    target: str
    """The pipeline and target under which loads are stored."""


def position_in(offset_store: OffsetStore, source_id: str) -> Position | None:
    """Return the position that a target stores, None before the first load; one that is gone since then is refused."""
    database, name = offset_store.database, offset_store.name
    if not database.exists():
        return None
    ledger, session = Ledger(database), database.session()
    try:
        if not ledger.exists(session):
            return None
        watermark = ledger.watermark(session, name)
        gone = watermark is None and _has_loaded(ledger, session, offset_store, source_id)
    finally:
        session.close()
    if gone:
        message = f"stream {name!r} has loaded from {source_id} before, and where it stood is gone from its target"
        raise StreamLostError(message, hint="say where to go on: flow stream reset NAME --from ...")
    if watermark is None:
        return None
    refuse_other_source(name, watermark.column, source_id)
    return from_text(watermark.value)


def _has_loaded(ledger: Ledger, session: Session, offset_store: OffsetStore, source_id: str) -> bool:
    """Return whether a target has a load from a source."""
    begins = f"{source_id} "
    rows = session.query(
        f"SELECT COUNT(*) FROM {ledger.name('ledger')} "
        "WHERE pipeline_name = ? AND target_name = ? AND SUBSTR(slot, 1, ?) = ?",
        (offset_store.stream, offset_store.target, len(begins), begins),
    )
    return int(rows[0][0]) > 0


def ended_at(offset_store: OffsetStore, source_id: str, position: Position) -> bool:
    """Return whether a position is the end of a load, and not one that an operator chose."""
    ledger, session = Ledger(offset_store.database), offset_store.database.session()
    try:
        rows = session.query(
            f"SELECT slot FROM {ledger.name('ledger')} WHERE pipeline_name = ? AND target_name = ? "
            "ORDER BY committed_at DESC LIMIT 20",
            (offset_store.stream, offset_store.target),
        )
    finally:
        session.close()
    return any(slot.startswith(f"{source_id} ") and slot.endswith(f" {as_text(position)}") for (slot,) in rows)


def without_state(position: Position) -> Position:
    """Return a position without the state that belongs to it."""
    return {name: value for name, value in position.items() if name != STATE}


def advanced(position: Position, end: Position) -> Position:
    """Return the end of a range with the turn of its beginning."""
    return end | {TURN: position[TURN]} if TURN in position else end


def remember(offset_store: OffsetStore, source_id: str, position: Position, clock: Clock) -> None:
    """Write a position without rows: the beginning of a stream, or where an operator lets it go on."""
    ledger, session, now = Ledger(offset_store.database), offset_store.database.session(), clock.now()
    try:
        ledger.ensure(session)
        ledger.ensure_fence(session, offset_store.name, now)
        with transaction(session):
            # A run of this stream that is under way may not commit any more.
            ledger.take_fence(session, offset_store.name, now)
            before = ledger.watermark(session, offset_store.name)
            again = before is not None or _has_loaded(ledger, session, offset_store, source_id)
            at = position | {TURN: _turn(before, now)} if again else position
            ledger.move_watermark(session, offset_store.name, before, SourceWatermark(source_id, as_text(at)), now)
    finally:
        session.close()


def take_over(offset_store: OffsetStore, source_id: str, before: Position, after: Position, clock: Clock) -> None:
    """Let another state go on from a position, but only where the target is still there; a run under way is fenced.

    It is one transaction, so that a target has either the one state or the other.
    """
    ledger, session, now = Ledger(offset_store.database), offset_store.database.session(), clock.now()
    try:
        ledger.ensure_fence(session, offset_store.name, now)
        with transaction(session):
            ledger.take_fence(session, offset_store.name, now)
            was, will_be = (SourceWatermark(source_id, as_text(position)) for position in (before, after))
            ledger.move_watermark(session, offset_store.name, was, will_be, now)
            failpoint("redeploy.before_switch")
    finally:
        session.close()


def _turn(before: SourceWatermark | None, now: datetime) -> int:
    """Return a number that no earlier turn had; where those are not known, it is one that counting does not reach."""
    with suppress(ValueError, StreamLostError):
        if before is not None:
            return int(from_text(before.value).get(TURN, 0)) + 1
    return int(now.timestamp())
