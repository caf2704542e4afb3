"""Removes staging that no load can need any more; by age, repeatedly, never that of an unknown run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base import StageSpec
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from ematix_flow.connect.base import Database, Session

STALE_SECONDS = 24 * 3600.0
"""Older than any task can live: a day."""


def drop_stage_of(database: Database, spec: StageSpec) -> None:
    """Remove the staging of a committed load, and what crashed loads left long ago; errors here are not the load's."""
    failpoint("gc.before_drop")
    try:
        session = database.session()
    except database.failures:
        return
    try:
        database.drop_stage(session, spec)
        failpoint("gc.mid_drop")
        _drop_siblings(database, session, spec)
        collect(database, STALE_SECONDS)
    except database.failures:
        return
    finally:
        session.close()


def _drop_siblings(database: Database, session: Session, spec: StageSpec) -> None:
    """Remove what earlier attempts at the same load staged: the fence keeps them from ever committing."""
    load = spec.name.rpartition("_")[0]
    for name, _ in list(database.stages(session)):
        if name.startswith(f"{load}_"):
            database.drop_stage(session, StageSpec(name, b""))


def collect(database: Database, older_than: float) -> int:
    """Remove every staging older than this many seconds and give how many there were."""
    session = database.session()
    dropped = 0
    try:
        for name, age in list(database.stages(session)):
            if age >= older_than:
                database.drop_stage(session, StageSpec(name, b""))
                dropped += 1
    finally:
        session.close()
    return dropped
