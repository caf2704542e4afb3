"""Removes staging that no load can need any more; repeatedly, by age, never that of a run which may be under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.base.stage import StageSpec
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.records import Token

STALE_SECONDS = 24 * 3600.0
"""Older than any task can live, and how long a plan waits to be applied: a day."""


def drop_stages_of(database: TargetSystem, token: Token) -> None:
    """Remove all staging of a committed load, and what crashed loads left long ago; errors here are not the load's.

    Staging of earlier attempts at the same load goes too: the fence keeps them from ever committing.
    """
    failpoint("gc.before_drop")
    try:
        session = database.session()
    except database.failures:
        return
    try:
        for name, _ in list(database.stages(session)):
            if token.tag in name:
                database.drop_stage(session, StageSpec(name, b""))
                failpoint("gc.mid_drop")
        _drop_older(database, session, STALE_SECONDS)
    except database.failures:
        return
    finally:
        session.close()


def collect(database: TargetSystem, older_than: float) -> int:
    """Remove all staging older than this many seconds and return how many there were; open runs keep theirs."""
    session = database.session()
    try:
        return _drop_older(database, session, older_than)
    finally:
        session.close()


def stale(database: TargetSystem, session: Session, older_than: float) -> list[str]:
    """Return the names of staging that is older than this many seconds and that no open run may need."""
    ledger = Ledger(database)
    # Staging is listed before runs: a run that had staging by then and has not ended is among the open runs.
    old_stages = [(name, age) for name, age in database.stages(session) if age >= older_than]
    open_runs = ledger.open_run_tags(session) if old_stages and ledger.exists(session) else set()
    # A killed run counts as open until the next one of its pipeline; a day later nothing waits for it any more.
    return [name for name, age in old_stages if age >= STALE_SECONDS or not any(tag in name for tag in open_runs)]


def _drop_older(database: TargetSystem, session: Session, older_than: float) -> int:
    names = stale(database, session, older_than)
    for name in names:
        database.drop_stage(session, StageSpec(name, b""))
    return len(names)
