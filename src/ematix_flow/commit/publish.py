"""The commit order, once: fence, token, verification, audit, watermark and files, rejects, mode, history, COMMIT."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.commit.conflicts import refuse_changed, refuse_moved
from ematix_flow.commit.feature_views import sync_view
from ematix_flow.commit.interrupts import uninterrupted
from ematix_flow.commit.ledger import Ledger
from ematix_flow.commit.quality import UnmeasuredError, audit
from ematix_flow.commit.redeclared import rename_watermark
from ematix_flow.commit.rejects import Rejects
from ematix_flow.commit.request import retaining
from ematix_flow.commit.staged_rows import (
    first_rejects,
    in_own_types,
    refuse_empty,
    staged_rows,
    without_duplicates,
    work_tables,
)
from ematix_flow.connect.base.cancellation import current, unwatched
from ematix_flow.connect.base.retry import COMMIT_OUTCOME, OVERTAKEN, attempts
from ematix_flow.connect.base.stage import NULL_REASON
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.pipeline.write import CHANGES
from ematix_flow.errors import (
    BadRowsError,
    CommitError,
    FlowError,
    RefusedError,
    TransientError,
    UnknownOutcomeError,
)
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.sql.render import bind_staged, native_column
from ematix_flow.records import Committed
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ematix_flow.clock import Clock
    from ematix_flow.commit.ledger import HistoryRow
    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.session import Session, Statement
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.lake.table import LakeTable
    from ematix_flow.records import Audited, Counts, TaskReport


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a load would do, and what was measured of its rows."""

    counts: Counts
    audited: Audited | None = None


def publish(request: CommitRequest, database: TargetSystem, clock: Clock) -> Committed:
    """Commit the load, or return the commit that an earlier attempt already made."""
    committed = None
    while committed is None:
        try:
            for turn in attempts(OVERTAKEN):
                with turn:
                    committed = _publish(request, database, clock)
        except UnmeasuredError as again:
            request = again.request
    return committed


def _publish(request: CommitRequest, database: TargetSystem, clock: Clock) -> Committed:
    session = database.session()
    try:
        failpoint("commit.connected")
        try:
            names = work_tables(request, database, session)
            if request.expected:
                database.begin_alone(session, [snapshot.place for snapshot in request.expected])
            else:
                session.begin()
            done = _apply(request, database, session, names, clock)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the whole transaction goes, and it is raised again
            session.rollback()
            return _refused(request, database, error)
        return _send_commit(request, database, session, done, clock)
    finally:
        session.close()


def _apply(
    request: CommitRequest, database: TargetSystem, session: Session, names: dict[str, str], clock: Clock
) -> Simulation:
    now, ledger = clock.now(), Ledger(database)

    def write_down(counts: Counts) -> None:
        ledger.finish_token(session, request.token, counts, *_range(request))
        done = replace(request.history, status="success", finished_at=now, counts=counts)
        ledger.record(session, replace(done, metrics=metrics_of(done, passed.audited)))
        if request.view is not None:
            sync_view(database, session, request.view, now)

    _take_token(request, ledger, session, now)
    _set_replayed(request, ledger, session, now)
    relation, counts = staged_rows(request, database, session, names)
    failpoint("commit.verified")
    passed = audit(request, database, session, without_duplicates(request, database, session, relation), counts)
    if passed.excluded:
        refuse_empty(request, passed.counts.staged, passed.counts.rejected, passed.excluded)
    _check_permit(request)
    _refuse_stale(request, database, session)
    _remember(request, ledger, session, now)
    failpoint("commit.watermark")
    _reject(request, database, ledger, session, now)
    Rejects(ledger).insert_audited(session, request.token, passed.excluded, now, alters=request.alters)
    failpoint("commit.dlq")
    if request.program.adds:
        counts = _add_staged(request, database, session, passed.counts, write_down)
    else:
        relation = in_own_types(request, database, passed.relation)
        counts = run_program(request, database, session, relation, passed.counts, names, write_down)
    failpoint("commit.applied")
    write_down(counts)
    failpoint("commit.before_commit")
    _check_permit(request)
    return Simulation(counts, passed.audited)


def _take_token(request: CommitRequest, ledger: Ledger, session: Session, now: datetime) -> None:
    """Hold the fence until the end of the transaction, and write the token, which can be there once."""
    ledger.lock_fence(session, request.fence)
    failpoint("commit.fence_locked")
    ledger.insert_token(session, request.token, request.fence, request.schema_hash, now)
    failpoint("commit.ledger_inserted")


def _refuse_stale(request: CommitRequest, database: TargetSystem, session: Session) -> None:
    """Refuse what a plan has staged when its target is not as the plan has seen it."""
    if request.expected:
        refuse_moved(request, database, session)
        refuse_changed(request.expected, database, session)


def _check_permit(request: CommitRequest) -> None:
    """Refuse to go on when the run may no longer commit."""
    if request.permit is not None:
        request.permit()


def _remember(request: CommitRequest, ledger: Ledger, session: Session, now: datetime) -> None:
    """Record how far the source was read."""
    if request.watermark_after is not None:
        if request.watermark_from:
            rename_watermark(ledger, session, request.watermark_from, request.watermark_name)
        ledger.move_watermark(session, request.watermark_name, request.watermark_before, request.watermark_after, now)
    if request.files is not None:
        ledger.remember_files(session, request.files, request.token, now)


def metrics_of(row: HistoryRow, audited: Audited | None) -> str | None:
    """Return the engine that moved the rows, why, and what was measured, as the run history stores it."""
    known: dict[str, Any] = {"engine": row.engine, "engine_reason": row.engine_reason} if row.engine else {}
    if audited is not None:
        known["quality"] = audited.to_dict()
    return json.dumps(known, default=str, ensure_ascii=False) if known else None


def _set_replayed(request: CommitRequest, ledger: Ledger, session: Session, now: datetime) -> None:
    for reject_id in request.replays:
        if not Rejects(ledger).set_replayed(session, reject_id, now):
            message = f"reject {reject_id} was replayed by another run"
            raise CommitError(message, hint="nothing was changed; flow rejects list shows what is still pending.")


def _range(request: CommitRequest) -> tuple[str | None, str | None]:
    """Return the range that an incremental load read; one that starts with another column has no lower bound."""
    before, after = request.watermark_before, request.watermark_after
    if after is None:
        return None, None
    return before.value if before is not None and before.column == after.column else None, after.value


def run_program(  # noqa: PLR0913, PLR0917 - what a program is run over
    request: CommitRequest,
    database: TargetSystem,
    session: Session,
    relation: str,
    counts: Counts,
    names: dict[str, str],
    write_down: Callable[[Counts], None] | None = None,
) -> Counts:
    """Run the statements and return the counts; `write_down` gets those that are known before the final one."""
    program, rows = retaining(request, counts.rejected).program, database.data(session)

    def bound(sql: str) -> str:
        for work, actual in names.items():
            sql = sql.replace(native_column(work, database.dialect), actual)
        # Bound last: the relation may itself hold the name of a work table.
        return bind_staged(sql, database.dialect, relation)

    for index, statement in enumerate(program.statements):
        if statement.final and not program.tells:
            counts = counts.with_all(rows.query(bound(program.tally)))
        if statement.final and write_down is not None:
            write_down(counts)
        counts = _run_statement(statement, rows, bound, counts)
        if statement.final and program.tells:
            counts = counts.with_all(rows.numbers.items())
        if index == 0:
            failpoint("commit.applied_first_stmt")
    return balanced(request, counts)


def _run_statement(statement: Statement, rows: Session, bound: Callable[[str], str], counts: Counts) -> Counts:
    """Run one statement, unless there is nothing for it, and return the counts with its own."""
    if statement.when and not rows.query(bound(statement.when)):
        return counts
    counted_rows = int(rows.query(bound(statement.counted))[0][0]) if statement.counted else None
    changed = rows.run(replace(statement, sql=bound(statement.sql)))
    if statement.counts:
        counts = counts.plus(statement.counts, changed if counted_rows is None else counted_rows)
    return counts.with_all(rows.query(bound(statement.tally))) if statement.tally else counts


def _add_staged(
    request: CommitRequest,
    database: TargetSystem,
    session: Session,
    counts: Counts,
    write_down: Callable[[Counts], None],
) -> Counts:
    """Add the staged files to the table."""
    counts = replace(counts, inserted=counts.staged)
    if request.stage is not None:
        write_down(counts)
        # Only lakes have programs that add files.
        cast("LakeTable", database).add_staged(session, request.stage, request.reports)
        failpoint("commit.applied_first_stmt")
    return counts


def balanced(request: CommitRequest, counts: Counts) -> Counts:
    """Check that every staged row is accounted for."""
    if request.mode in ("append", "truncate"):
        if request.stage is None:
            counts = replace(counts, staged=counts.inserted)
            refuse_empty(request, counts.inserted)
        if counts.inserted != counts.staged:
            message = f"rows staged: {counts.staged}, but inserted: {counts.inserted}"
            raise CommitError(message, hint="the load was rolled back.")
        return counts
    if request.mode == CHANGES:
        return replace(counts, unchanged=counts.repeated + counts.skipped)
    touched = counts.inserted + counts.updated if request.mode == "merge" else counts.inserted
    return replace(counts, unchanged=max(0, counts.staged - touched))


def _reject(request: CommitRequest, database: TargetSystem, ledger: Ledger, session: Session, now: datetime) -> None:
    for row in () if request.rejects_dropped else request.excluded:
        Rejects(ledger).insert(session, request.token, row, now, alters=request.alters)
    judged = _judged(request)
    reports = tuple(one for one in request.reports if one not in judged) if request.rejects_dropped else request.reports
    expected = sum(report.rejected for report in reports)
    if not expected or request.stage is None:
        return
    refuse_rejects(request, database, session)
    relation = database.reject_relation(session, request.stage, reports)
    status = "parked" if request.last_attempt else "pending"
    written = Rejects(ledger).insert_staged(
        session, request.token, relation, now, once=request.may_lack, attempt=request.attempt, status=status
    )
    if written != expected and not request.may_lack:
        message = f"rows rejected: {expected}, but written to the rejects table: {written}"
        raise CommitError(message)


def refuse_rejects(request: CommitRequest, database: TargetSystem, session: Session) -> None:
    """Refuse a load with rows that do not fit, unless they may be rejected."""
    judged = _judged(request)
    if request.rejects_allowed or request.stage is None or not sum(report.rejected for report in judged):
        return
    if request.may_lack:
        relation = database.reject_relation(session, request.stage, judged)
        others = f"SELECT COUNT(*) FROM {relation} AS rejected WHERE NOT (column_name = ? AND reason = ?)"
        if not int(session.query(others, (request.may_lack, NULL_REASON))[0][0]):
            return
    raise bad_rows(judged)


def _judged(request: CommitRequest) -> tuple[TaskReport, ...]:
    """Return the reports whose rejects may fail the load or be dropped: not of those that are kept in any case."""
    return tuple(one for one in request.reports if not (request.known_rejects_retained and one.was_known))


def bad_rows(reports: Sequence[TaskReport]) -> BadRowsError:
    """Return the error for rows that do not fit, naming the first ones."""
    rejected = sum(report.rejected for report in reports)
    total = rejected + sum(report.rows for report in reports)
    verb = "does" if total == 1 else "do"
    message = f"{rejected:,} of {quantity(total, 'row')} {verb} not fit the target:{first_rejects(reports)}"
    hint = (
        'nothing was loaded. Fix the source, or declare on_bad_row="reject" (of a stream or a replication transform_on_error="dlq") '
        "to load the rest and keep these."
    )
    return BadRowsError(message, hint=hint)


def _refused(request: CommitRequest, database: TargetSystem, error: BaseException) -> Committed:
    """Turn an error inside the transaction into the commit of a duplicate load, a retryable error or a failure."""
    if isinstance(error, FlowError) or not isinstance(error, database.errors):
        raise error
    if database.is_duplicate_key(error):
        committed = find_commit(request, database)
        if committed is not None:
            return committed
    text = safe_text(error)
    if database.is_transient(error):
        message = f"the target could not take the load now: {text}"
        raise TransientError(message) from None
    message = f"the target refused the load: {text}"
    raise RefusedError(message, hint="nothing was changed.") from None


def _send_commit(
    request: CommitRequest, database: TargetSystem, session: Session, done: Simulation, clock: Clock
) -> Committed:
    try:
        with uninterrupted(), current().committing():
            session.commit()
    except database.errors as error:
        return _resolve_commit(request, database, done, error, clock)
    failpoint("commit.commit_sent")
    failpoint("commit.after_commit")
    return Committed(request.token, request.token.run_id, done.counts, clock.now(), audited=done.audited)


def _resolve_commit(
    request: CommitRequest, database: TargetSystem, done: Simulation, error: BaseException, clock: Clock
) -> Committed:
    """Resolve an error during COMMIT by the ledger; locking its fence row also waits for a commit still under way."""
    try:
        # A run that is being stopped has to know as well whether it has committed.
        with unwatched():
            for attempt in attempts(COMMIT_OUTCOME, on=database.failures, clock=clock):
                with attempt:
                    committed = find_commit(request, database)
    except database.failures as last:
        message = f"the answer to COMMIT was lost and the target cannot be queried: {safe_text(last)}"
        hint = "run the pipeline again when the target is back: it reads the ledger first."
        raise UnknownOutcomeError(message, hint=hint) from None
    if committed is None:
        message = f"the commit did not happen: {safe_text(error)}"
        raise TransientError(message, hint="nothing was changed; the load can be tried again.")
    known = replace(committed, counts=done.counts, replayed=False, audited=done.audited)
    return replace(known, notes=("the answer to COMMIT was lost",))


def find_commit(request: CommitRequest, database: TargetSystem) -> Committed | None:
    """Query the ledger for the token, after waiting for the transaction that still holds the fence row."""
    ledger = Ledger(database)
    session = database.session()
    try:
        session.begin()
        session.execute(f"UPDATE {ledger.name('fences')} SET epoch = epoch WHERE name = ?", (request.fence.name,))
        committed = ledger.find(session, request.token)
        if committed is None:
            # Where a commit is a numbered object, one that is still on its way may not arrive after this answer.
            session.commit()
        else:
            session.rollback()
    finally:
        session.close()
    return committed
