"""The commit order, once: fence, token, verification, audit, watermark and files, rejects, mode, history, COMMIT."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.commit.conflicts import refuse_changed, refuse_moved
from ematix_flow.commit.interrupts import uninterrupted
from ematix_flow.commit.ledger import Ledger
from ematix_flow.commit.quality import UnmeasuredError, audit
from ematix_flow.commit.rejects import Rejects
from ematix_flow.commit.staged_rows import in_own_types, refuse_empty, staged_rows, without_duplicates, work_tables
from ematix_flow.connect.base.cancellation import current, unwatched
from ematix_flow.connect.base.retry import COMMIT_OUTCOME, OVERTAKEN, attempts
from ematix_flow.connect.base.stage import NULL_REASON
from ematix_flow.connect.config.redact import redact, safe_text
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
    from ematix_flow.commit.request import Order
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import Target
    from ematix_flow.connect.lake.table import LakeTable
    from ematix_flow.records import Audited, Counts, Part


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a load would do, and what was measured of its rows."""

    counts: Counts
    audited: Audited | None = None


def publish(order: Order, database: Target, clock: Clock) -> Committed:
    """Commit the load, or return the commit that an earlier attempt already made."""
    committed = None
    while committed is None:
        try:
            for turn in attempts(OVERTAKEN):
                with turn:
                    committed = _publish(order, database, clock)
        except UnmeasuredError as again:
            order = again.order
    return committed


def _publish(order: Order, database: Target, clock: Clock) -> Committed:
    session = database.session()
    try:
        failpoint("commit.connected")
        try:
            names = work_tables(order, database, session)
            if order.expected:
                database.begin_alone(session, [seen.place for seen in order.expected])
            else:
                session.begin()
            done = _apply(order, database, session, names, clock)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the whole transaction goes, and it is raised again
            session.rollback()
            return _refused(order, database, error)
        return _send_commit(order, database, session, done, clock)
    finally:
        session.close()


def _apply(order: Order, database: Target, session: Session, names: dict[str, str], clock: Clock) -> Simulation:
    now, ledger = clock.now(), Ledger(database)

    def write_down(counts: Counts) -> None:
        ledger.finish_token(session, order.token, counts, *_range(order))
        done = replace(order.history, status="success", finished_at=now, counts=counts)
        ledger.record(session, replace(done, metrics=metrics_of(done, passed.audited)))

    _take_token(order, ledger, session, now)
    _mark_replayed(order, ledger, session, now)
    relation, counts = staged_rows(order, database, session, names)
    failpoint("commit.verified")
    passed = audit(order, database, session, without_duplicates(order, database, session, relation), counts)
    if passed.excluded:
        refuse_empty(order, passed.counts.staged)
    _ask_permit(order)
    _refuse_stale(order, database, session)
    _remember(order, ledger, session, now)
    failpoint("commit.watermark")
    _reject(order, database, ledger, session, now)
    Rejects(ledger).insert_audited(session, order.token, passed.excluded, now)
    failpoint("commit.dlq")
    if order.program.adds:
        counts = _add_staged(order, database, session, passed.counts, write_down)
    else:
        relation = in_own_types(order, database, passed.relation)
        counts = run_program(order, database, session, relation, passed.counts, names, write_down)
    failpoint("commit.applied")
    write_down(counts)
    failpoint("commit.before_commit")
    _ask_permit(order)
    return Simulation(counts, passed.audited)


def _take_token(order: Order, ledger: Ledger, session: Session, now: datetime) -> None:
    """Hold the fence until the end of the transaction, and write the token, which can be there once."""
    ledger.lock_fence(session, order.fence)
    failpoint("commit.fence_locked")
    ledger.insert_token(session, order.token, order.fence, order.schema_hash, now)
    failpoint("commit.ledger_inserted")


def _refuse_stale(order: Order, database: Target, session: Session) -> None:
    """Refuse what a plan has staged when its target is not as the plan has seen it."""
    if order.expected:
        refuse_moved(order, database, session)
        refuse_changed(order.expected, database, session)


def _ask_permit(order: Order) -> None:
    """Refuse to go on when the run is no longer the one that may."""
    if order.permit is not None:
        order.permit()


def _remember(order: Order, ledger: Ledger, session: Session, now: datetime) -> None:
    """Note how far the source was read."""
    if order.watermark_after is not None:
        ledger.move_watermark(session, order.watermark_name, order.watermark_before, order.watermark_after, now)
    if order.files is not None:
        ledger.remember_files(session, order.files, order.token, now)


def metrics_of(row: HistoryRow, audited: Audited | None) -> str | None:
    """Return who moved the rows, why, and what was measured, as the run history keeps it."""
    known: dict[str, Any] = {"engine": row.engine, "engine_reason": row.engine_reason} if row.engine else {}
    if audited is not None:
        known["quality"] = audited.to_dict()
    return json.dumps(known, default=str, ensure_ascii=False) if known else None


def _mark_replayed(order: Order, ledger: Ledger, session: Session, now: datetime) -> None:
    for reject_id in order.replays:
        if not Rejects(ledger).mark_replayed(session, reject_id, now):
            message = f"reject {reject_id} was replayed by another run"
            raise CommitError(message, hint="nothing was changed; flow rejects list shows what is still pending.")


def _range(order: Order) -> tuple[str | None, str | None]:
    """Return the range that an incremental load read; one that starts with another column has no lower bound."""
    before, after = order.watermark_before, order.watermark_after
    if after is None:
        return None, None
    return before.value if before is not None and before.column == after.column else None, after.value


def run_program(  # noqa: PLR0913, PLR0917 - what a program is run over
    order: Order,
    database: Target,
    session: Session,
    relation: str,
    counts: Counts,
    names: dict[str, str],
    write_down: Callable[[Counts], None] | None = None,
) -> Counts:
    """Run the statements and give the counts; `write_down` is told those that are known before the final one."""
    program, rows = order.program, database.data(session)

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
        told = int(rows.query(bound(statement.counted))[0][0]) if statement.counted else None
        changed = rows.run(replace(statement, sql=bound(statement.sql)))
        if statement.final and program.tells:
            counts = counts.with_all(rows.numbers.items())
        if statement.counts:
            counts = counts.plus(statement.counts, changed if told is None else told)
        if index == 0:
            failpoint("commit.applied_first_stmt")
    return balanced(order, counts)


def _add_staged(
    order: Order, database: Target, session: Session, counts: Counts, write_down: Callable[[Counts], None]
) -> Counts:
    """Let the table take the staged files."""
    counts = replace(counts, inserted=counts.staged)
    if order.stage is not None:
        write_down(counts)
        # Only lakes have programs that add files.
        cast("LakeTable", database).add_staged(session, order.stage, order.parts)
        failpoint("commit.applied_first_stmt")
    return counts


def balanced(order: Order, counts: Counts) -> Counts:
    """Check that every staged row is accounted for."""
    if order.mode in ("append", "truncate"):
        if order.stage is None:
            counts = replace(counts, staged=counts.inserted)
            refuse_empty(order, counts.inserted)
        if counts.inserted != counts.staged:
            message = f"rows staged: {counts.staged}, but inserted: {counts.inserted}"
            raise CommitError(message, hint="the load was rolled back.")
        return counts
    touched = counts.inserted + counts.updated if order.mode == "merge" else counts.inserted
    return replace(counts, unchanged=max(0, counts.staged - touched))


def _reject(order: Order, database: Target, ledger: Ledger, session: Session, now: datetime) -> None:
    if order.rejects_dropped:
        return
    for row in order.excluded:
        Rejects(ledger).insert(session, order.token, row, now)
    expected = sum(part.rejected for part in order.parts)
    if not expected or order.stage is None:
        return
    refuse_rejects(order, database, session)
    relation = database.reject_relation(session, order.stage, order.parts)
    status = "parked" if order.last_attempt else "pending"
    written = Rejects(ledger).insert_staged(
        session, order.token, relation, now, once=order.may_lack, attempt=order.attempt, status=status
    )
    if written != expected and not order.may_lack:
        message = f"rows rejected: {expected}, but written to the rejects table: {written}"
        raise CommitError(message)


def refuse_rejects(order: Order, database: Target, session: Session) -> None:
    """Refuse a load with rows that do not fit, unless they may be rejected."""
    if order.rejects_allowed or order.stage is None or not sum(part.rejected for part in order.parts):
        return
    if order.may_lack:
        relation = database.reject_relation(session, order.stage, order.parts)
        others = f"SELECT COUNT(*) FROM {relation} AS rejected WHERE NOT (column_name = ? AND reason = ?)"
        if not int(session.query(others, (order.may_lack, NULL_REASON))[0][0]):
            return
    raise bad_rows(order.parts)


def bad_rows(parts: Sequence[Part]) -> BadRowsError:
    """Return the error for rows that do not fit, naming the first ones."""
    rejected = sum(part.rejected for part in parts)
    first = [part.first_reject for part in parts if part.first_reject][:5]
    shown = "".join(f"\n  {redact(text)}" for text in first)
    total = rejected + sum(part.rows for part in parts)
    verb = "does" if total == 1 else "do"
    message = f"{rejected:,} of {quantity(total, 'row')} {verb} not fit the target:{shown}"
    hint = (
        'nothing was loaded. Fix the source, or declare on_bad_row="reject" (of a stream transform_on_error="dlq") '
        "to load the rest and keep these."
    )
    return BadRowsError(message, hint=hint)


def _refused(order: Order, database: Target, error: BaseException) -> Committed:
    """Turn an error inside the transaction into the answer of a twin, a retryable error or a failure."""
    if isinstance(error, FlowError) or not isinstance(error, database.errors):
        raise error
    if database.is_duplicate_key(error):
        committed = ask(order, database)
        if committed is not None:
            return committed
    text = safe_text(error)
    if database.is_transient(error):
        message = f"the target could not take the load now: {text}"
        raise TransientError(message) from None
    message = f"the target refused the load: {text}"
    raise RefusedError(message, hint="nothing was changed.") from None


def _send_commit(order: Order, database: Target, session: Session, done: Simulation, clock: Clock) -> Committed:
    try:
        with uninterrupted(), current().committing():
            session.commit()
    except database.errors as error:
        return _settle(order, database, done, error, clock)
    failpoint("commit.commit_sent")
    failpoint("commit.after_commit")
    return Committed(order.token, order.token.run_id, done.counts, clock.now(), audited=done.audited)


def _settle(order: Order, database: Target, done: Simulation, error: BaseException, clock: Clock) -> Committed:
    """After an error during COMMIT only the ledger knows; its fence row also waits for a commit still under way."""
    try:
        # A run that is being stopped has to know as well whether it has committed.
        with unwatched():
            for attempt in attempts(COMMIT_OUTCOME, on=database.failures, clock=clock):
                with attempt:
                    committed = ask(order, database)
    except database.failures as last:
        message = f"the answer to COMMIT was lost and the target cannot be asked: {safe_text(last)}"
        hint = "run the pipeline again when the target is back: it asks the ledger first."
        raise UnknownOutcomeError(message, hint=hint) from None
    if committed is None:
        message = f"the commit did not happen: {safe_text(error)}"
        raise TransientError(message, hint="nothing was changed; the load can be tried again.")
    known = replace(committed, counts=done.counts, replayed=False, audited=done.audited)
    return replace(known, notes=("the answer to COMMIT was lost",))


def ask(order: Order, database: Target) -> Committed | None:
    """Ask the ledger for the token, after waiting for whoever still holds the fence row."""
    ledger = Ledger(database)
    session = database.session()
    try:
        session.begin()
        session.execute(f"UPDATE {ledger.name('fences')} SET epoch = epoch WHERE name = ?", (order.fence.name,))
        found = ledger.find(session, order.token)
        if found is None:
            # Where a commit is a numbered object, one that is still on its way may not arrive after this answer.
            session.commit()
        else:
            session.rollback()
    finally:
        session.close()
    return found
