"""Does everything that a commit does to the user's rows, counts it and rolls it back; no metadata is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.publish import Simulation, balanced, refuse_rejects, run_program
from ematix_flow.commit.quality import UnmeasuredError, audit
from ematix_flow.commit.request import retaining
from ematix_flow.commit.row_numbers import numbered
from ematix_flow.commit.staged_rows import in_own_types, staged_rows, without_duplicates, work_tables
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import RefusedError, TransientError
from ematix_flow.plan.sql.render import bind_staged
from ematix_flow.records import Counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.commit.row_numbers import Only
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem


def simulate(
    request: CommitRequest,
    database: TargetSystem,
    prepare: Callable[[Session], None] | None = None,
    only: Only | None = None,
    inspect: Callable[[Session, str, Counts], None] | None = None,
) -> Simulation:
    """Do everything that a commit does to the user's rows, count it and roll it back; no metadata is touched.

    `prepare` creates or alters the target inside the transaction, on databases whose DDL can be rolled back. `only`
    is the part of the numbered rows that is tried. `inspect` gets the relation of rows and their counts while the
    target is as it was.
    """
    while True:
        try:
            return _simulate(request, database, prepare, only, inspect)
        except UnmeasuredError as again:
            request = again.request


def _simulate(
    request: CommitRequest,
    database: TargetSystem,
    prepare: Callable[[Session], None] | None,
    only: Only | None,
    inspect: Callable[[Session, str, Counts], None] | None,
) -> Simulation:
    session = database.session()
    try:
        names = work_tables(request, database, session)
        session.begin()
        try:
            if prepare is not None:
                prepare(session)
            return _simulated(request, database, session, names, only, inspect)
        except database.errors as error:
            if database.is_transient(error):
                message = f"the target could not be queried now: {safe_text(error)}"
                raise TransientError(message) from None
            message = f"the target would refuse the load: {safe_text(error)}"
            raise RefusedError(message) from None
        finally:
            session.rollback()
    finally:
        session.close()


def _simulated(
    request: CommitRequest,
    database: TargetSystem,
    session: Session,
    names: dict[str, str],
    only: Only | None,
    inspect: Callable[[Session, str, Counts], None] | None,
) -> Simulation:
    relation, counts = staged_rows(request, database, session, names)
    refuse_rejects(request, database, session)
    if only is not None:
        relation = numbered(request.columns, database.dialect, relation, only)
        counts = Counts(staged=int(session.query(f"SELECT COUNT(*) FROM {relation} AS counted")[0][0]))
    relation = without_duplicates(request, database, session, relation)
    passed = audit(request, database, session, relation, counts, partly=only is not None)
    relation, counts = in_own_types(request, database, passed.relation), passed.counts
    if inspect is not None:
        inspect(session, relation, counts)
    request = retaining(request, counts.rejected)
    if request.program.adds:
        counted = replace(counts, inserted=counts.staged)
    elif request.program.tally and not database.capabilities.rolls_back:
        counted = balanced(request, _counted(request, database, session, relation, counts))
    else:
        counted = run_program(request, database, session, relation, counts, names)
    return Simulation(counted, passed.audited)


def _counted(request: CommitRequest, database: TargetSystem, session: Session, relation: str, counts: Counts) -> Counts:
    """Count what the program would do where it cannot be rolled back; only scratch relations are filled."""
    rows = database.data(session)
    for statement in request.program.statements:
        if statement.cache_as:
            rows.run(replace(statement, sql=bind_staged(statement.sql, database.dialect, relation)))
    return counts.with_all(rows.query(bind_staged(request.program.tally, database.dialect, relation)))
