"""Commits a load of a warehouse pipeline: rows and token in one transaction, so that a retry adds nothing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.errors import RunError, TransientError
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.warehouse import LoadFacts, create_ledger_sql, recorded_sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.warehouse.session import WarehouseSession
    from ematix_flow.plan.warehouse import WarehouseCommit


def recorded_load(session: WarehouseSession, table_name: str, token: str, pipeline: str) -> LoadFacts | None:
    """Return what an earlier attempt has committed under a token; None for a load that is still to be done."""
    for statement in create_ledger_sql(table_name, session.kind):
        session.query(statement)
    return _facts(session.query(recorded_sql(table_name, session.kind, token)), token, pipeline)


def commit_load(
    session: WarehouseSession, commit: WarehouseCommit, facts: LoadFacts, reopen: Callable[[], WarehouseSession]
) -> LoadFacts:
    """Make staged rows visible and return what is recorded: of this load, or of the attempt that was first."""
    session.begin()
    try:
        session.query(commit.lock)
        earlier = _facts(session.query(commit.recorded), facts.token, facts.pipeline)
        if earlier is not None:
            session.rollback()
            return earlier
        for statement in commit.write:
            session.query(statement)
        failpoint("warehouse.before_commit")
    except BaseException:
        session.rollback()
        raise
    try:
        session.commit()
    except TransientError as error:
        return _outcome(commit, facts, reopen, error)
    failpoint("warehouse.after_commit")
    return facts


def _outcome(
    commit: WarehouseCommit, facts: LoadFacts, reopen: Callable[[], WarehouseSession], lost: TransientError
) -> LoadFacts:
    """Return what is recorded after the answer to COMMIT was lost; the lock waits until the server has decided."""
    session = reopen()
    try:
        session.begin()
        session.query(commit.lock)
        recorded = _facts(session.query(commit.recorded), facts.token, facts.pipeline)
        session.rollback()
    except RunError:
        raise lost from None
    finally:
        session.close()
    if recorded is None:
        raise lost
    return recorded


def _facts(rows: list[tuple[object, ...]], token: str, pipeline: str) -> LoadFacts | None:
    if not rows:
        return None
    read, written, watermark = rows[0]
    return LoadFacts(token, pipeline, int(str(read)), int(str(written)), None if watermark is None else str(watermark))
