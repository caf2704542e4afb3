"""The commit order, once: fence, token, verification, watermark and files, rejects, mode, history, COMMIT."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.guarding import refuse_changed, refuse_moved
from ematix_flow.commit.holding import uninterrupted
from ematix_flow.commit.ledger import Ledger
from ematix_flow.commit.numbering import numbered
from ematix_flow.commit.rejects import Rejects
from ematix_flow.connect.base import NULL_REASON, StageColumn, WorkTable
from ematix_flow.connect.redact import safe_text
from ematix_flow.declare.types import Text
from ematix_flow.errors import (
    BadRowsError,
    CommitError,
    FlowError,
    RefusedError,
    TransientError,
    UnknownOutcomeError,
)
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.marks import FAILED
from ematix_flow.plan.sql.program import INCOMING
from ematix_flow.plan.sql.render import bind_staged, native_column
from ematix_flow.records import Committed, Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ematix_flow.clock import Clock
    from ematix_flow.commit.order import Order
    from ematix_flow.connect.base import Database, Session
    from ematix_flow.records import Part

SETTLE_SECONDS = 60.0
"""How long a lost answer to COMMIT is looked up before the outcome counts as unknown."""


def publish(order: Order, database: Database, clock: Clock) -> Committed:
    """Commit the load, or give the commit that an earlier attempt already made."""
    session = database.session()
    try:
        failpoint("commit.connected")
        try:
            names = _work_tables(order, database, session)
            if order.expected:
                database.begin_alone(session, [seen.place for seen in order.expected])
            else:
                session.begin()
            counts = _apply(order, database, session, names, clock)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the whole transaction goes, and it is raised again
            session.rollback()
            return _refused(order, database, error)
        return _send_commit(order, database, session, counts, clock)
    finally:
        session.close()


def rehearse(
    order: Order,
    database: Database,
    prepare: Callable[[Session], None] | None = None,
    only: tuple[Sequence[int], int] | None = None,
    look: Callable[[Session, str], None] | None = None,
) -> Counts:
    """Do everything that a commit does to the user's rows, count it and roll it back; no bookkeeping is touched.

    `prepare` creates or alters the target inside the transaction, on databases whose DDL can be rolled back. `only`
    leaves some numbered rows out and ends with a number. `look` sees the relation of rows while the target is as
    it was.
    """
    session = database.session()
    try:
        names = _work_tables(order, database, session)
        session.begin()
        try:
            if prepare is not None:
                prepare(session)
            relation, counts = _staged(order, database, session, names)
            _refuse_rejects(order, database, session)
            if only is not None:
                relation = numbered(order.columns, database.dialect, relation, *only)
                counts = Counts(staged=int(session.query(f"SELECT COUNT(*) FROM {relation} AS counted")[0][0]))
            relation = _without_duplicates(order, database, session, relation)
            if look is not None:
                look(session, relation)
            if order.program.tally and not database.capabilities.rolls_back:
                return _balanced(order, _counted(order, database, session, relation, counts))
            return _run_program(order, database, session, relation, counts, names)
        except database.errors as error:
            if database.is_transient(error):
                message = f"the target could not be asked now: {safe_text(error)}"
                raise TransientError(message) from None
            message = f"the target would refuse the load: {safe_text(error)}"
            raise RefusedError(message) from None
        finally:
            session.rollback()
    finally:
        session.close()


def _work_tables(order: Order, database: Database, session: Session) -> dict[str, str]:
    """Create scratch tables before the transaction, because some databases commit at any DDL."""
    tables = list(order.program.work_tables)
    if order.inline and _kept_inline(order):
        tables.append(WorkTable(INCOMING, _incoming_columns(order)))
    incarnation = f"{order.token.mark}_{order.fence.epoch}"
    return {table.name: database.create_work_table(session, table, incarnation) for table in tables}


def _kept_inline(order: Order) -> bool:
    return order.program.keeps_incoming(marked=order.marked)


def _incoming_columns(order: Order) -> tuple[StageColumn, ...]:
    return (*order.columns, StageColumn(FAILED, Text())) if order.marked else order.columns


def _apply(order: Order, database: Database, session: Session, names: dict[str, str], clock: Clock) -> Counts:
    now, ledger = clock.now(), Ledger(database)

    def write_down(counts: Counts) -> None:
        ledger.finish_token(session, order.token, counts, *_range(order))
        ledger.record(session, replace(order.history, status="success", finished_at=now, counts=counts))

    ledger.lock_fence(session, order.fence)
    failpoint("commit.fence_locked")
    ledger.insert_token(session, order.token, order.fence, order.schema_hash, now)
    failpoint("commit.ledger_inserted")
    _mark_replayed(order, ledger, session, now)
    relation, counts = _staged(order, database, session, names)
    failpoint("commit.verified")
    relation = _without_duplicates(order, database, session, relation)
    if order.permit is not None:
        order.permit()
    if order.expected:
        refuse_moved(order, database, session)
        refuse_changed(order.expected, database, session)
    if order.watermark_after is not None:
        ledger.move_watermark(session, order.watermark_name, order.watermark_before, order.watermark_after, now)
    if order.files is not None:
        ledger.remember_files(session, order.files, order.token, now)
    failpoint("commit.watermark")
    _reject(order, database, ledger, session, now)
    failpoint("commit.dlq")
    counts = _run_program(order, database, session, relation, counts, names, write_down)
    failpoint("commit.applied")
    write_down(counts)
    if order.permit is not None:
        order.permit()
    failpoint("commit.before_commit")
    return counts


def _mark_replayed(order: Order, ledger: Ledger, session: Session, now: datetime) -> None:
    for reject_id in order.replays:
        if not Rejects(ledger).mark_replayed(session, reject_id, now):
            message = f"reject {reject_id} was replayed by another run"
            raise CommitError(message, hint="nothing was changed; flow rejects list shows what is still pending.")


def _range(order: Order) -> tuple[str | None, str | None]:
    """Give the range that an incremental load read; one that starts with another column has no lower bound."""
    before, after = order.watermark_before, order.watermark_after
    if after is None:
        return None, None
    return before.value if before is not None and before.column == after.column else None, after.value


def _staged(order: Order, database: Database, session: Session, names: dict[str, str]) -> tuple[str, Counts]:
    """Give the relation of rows to apply and how many there are."""
    if order.stage is not None:
        database.verify_stage(session, order.stage, order.parts)
        rows, rejected = sum(p.rows for p in order.parts), sum(p.rejected for p in order.parts)
        _refuse_empty(order, rows)
        relation = database.staged_relation(session, order.stage, order.parts)
        if order.excluded:
            relation = numbered(order.columns, database.dialect, relation, [row.number for row in order.excluded])
            rows, rejected = rows - len(order.excluded), rejected + len(order.excluded)
        return relation, Counts(staged=rows, rejected=rejected)
    if not _kept_inline(order):
        return f"({order.inline})", Counts()
    listed = ", ".join(native_column(column.name, database.dialect) for column in _incoming_columns(order))
    rows = session.execute(f"INSERT INTO {names[INCOMING]} ({listed}) {order.inline}")
    _refuse_empty(order, rows)
    _check_inline(order, database, session, names[INCOMING])
    return names[INCOMING], Counts(staged=rows)


def _check_inline(order: Order, database: Database, session: Session, relation: str) -> None:
    """Refuse rows that could not be parsed or have no key; the Spark path checks the same in its tasks."""
    conditions = [f"{native_column(name, database.dialect)} IS NULL" for name in order.required]
    if order.marked:
        conditions.append(f"{native_column(FAILED, database.dialect)} IS NOT NULL")
    if not conditions:
        return
    bad = f"FROM {relation} WHERE {' OR '.join(conditions)}"
    count = int(session.query(f"SELECT COUNT(*) {bad}")[0][0])
    if not count:
        return
    names = [column.name for column in _incoming_columns(order)]
    listed = ", ".join(native_column(name, database.dialect) for name in names)
    rows = [dict(zip(names, row, strict=True)) for row in session.query(f"SELECT {listed} {bad} LIMIT 5")]
    first = "".join(f"\n  {_inline_reason(order, row)}" for row in rows)
    message = f"{count} rows do not fit the target:{first}"
    raise BadRowsError(message, hint='nothing was loaded. Mend the source, or declare on_bad_row="reject".')


def _inline_reason(order: Order, row: dict[str, object]) -> str:
    failed = row.pop(FAILED, None)
    if failed:
        return f"{failed}: could not be parsed; row {row}"
    missing = [name for name in order.required if row.get(name) is None]
    return f"{', '.join(missing)}: is NULL but needs a value; row {row}"


def _refuse_empty(order: Order, rows: int) -> None:
    if rows == 0 and order.refuse_empty:
        message = (
            f"the source of {order.token.pipeline} is empty, and {order.mode} would remove every row of the target"
        )
        raise CommitError(message, hint="if that is wanted, declare allow_empty=True.")


def _without_duplicates(order: Order, database: Database, session: Session, relation: str) -> str:
    """Fold equal duplicates of a key; refuse duplicates that differ, with the keys named."""
    checks, rows = order.program.duplicates, database.data(session)
    if checks is None or not rows.query(bind_staged(checks.repeated_keys, database.dialect, relation)):
        return relation
    distinct = bind_staged(checks.distinct, database.dialect, relation)
    conflicts = rows.query(bind_staged(checks.repeated_keys, database.dialect, distinct))
    if conflicts:
        keys = "; ".join(", ".join(str(value) for value in row) for row in conflicts)
        message = f"the load has different rows for the same key: {keys}"
        hint = "say which row wins with transforms_pre=[deduplicate_by(keys, order_by=...)]."
        raise CommitError(message, hint=hint)
    return distinct


def _run_program(  # noqa: PLR0913, PLR0917 - what a program is run over
    order: Order,
    database: Database,
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
        changed = rows.execute(bound(statement.sql))
        if statement.final and program.tells:
            counts = counts.with_all(rows.numbers.items())
        if statement.counts:
            counts = counts.plus(statement.counts, changed if told is None else told)
        if index == 0:
            failpoint("commit.applied_first_stmt")
    return _balanced(order, counts)


def _counted(order: Order, database: Database, session: Session, relation: str, counts: Counts) -> Counts:
    """Count what the program would do where it cannot be rolled back; only scratch relations are filled."""
    rows = database.data(session)
    for statement in order.program.statements:
        if statement.scratch:
            rows.execute(bind_staged(statement.sql, database.dialect, relation))
    return counts.with_all(rows.query(bind_staged(order.program.tally, database.dialect, relation)))


def _balanced(order: Order, counts: Counts) -> Counts:
    """Check that every staged row is accounted for."""
    if order.mode in ("append", "truncate"):
        if order.stage is None:
            counts = replace(counts, staged=counts.inserted)
            _refuse_empty(order, counts.inserted)
        if counts.inserted != counts.staged:
            message = f"{counts.staged} rows were staged but {counts.inserted} were inserted"
            raise CommitError(message, hint="the load was rolled back.")
        return counts
    touched = counts.inserted + counts.updated if order.mode == "merge" else counts.inserted
    return replace(counts, unchanged=max(0, counts.staged - touched))


def _reject(order: Order, database: Database, ledger: Ledger, session: Session, now: datetime) -> None:
    if order.rejects_dropped:
        return
    for row in order.excluded:
        Rejects(ledger).insert(session, order.token, row.number, row.reason, row.row_json, now)
    expected = sum(part.rejected for part in order.parts)
    if not expected or order.stage is None:
        return
    _refuse_rejects(order, database, session)
    relation = database.reject_relation(session, order.stage, order.parts)
    status = "parked" if order.last_attempt else "pending"
    written = Rejects(ledger).insert_staged(
        session, order.token, relation, now, once=order.may_lack, attempt=order.attempt, status=status
    )
    if written != expected and not order.may_lack:
        message = f"{expected} rows were rejected but {written} could be written to the rejects table"
        raise CommitError(message)


def _refuse_rejects(order: Order, database: Database, session: Session) -> None:
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
    """Give the error for rows that do not fit, naming the first ones."""
    rejected = sum(part.rejected for part in parts)
    first = [part.first_reject for part in parts if part.first_reject][:5]
    shown = "".join(f"\n  {text}" for text in first)
    message = f"{rejected} of {rejected + sum(p.rows for p in parts)} rows do not fit the target:{shown}"
    hint = 'nothing was loaded. Mend the source, or declare on_bad_row="reject" to load the rest and keep these.'
    return BadRowsError(message, hint=hint)


def _refused(order: Order, database: Database, error: BaseException) -> Committed:
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


def _send_commit(order: Order, database: Database, session: Session, counts: Counts, clock: Clock) -> Committed:
    try:
        with uninterrupted():
            session.commit()
    except database.errors as error:
        return _settle(order, database, counts, error, clock)
    failpoint("commit.commit_sent")
    failpoint("commit.after_commit")
    return Committed(order.token, order.token.run_id, counts, clock.now())


def _settle(order: Order, database: Database, counts: Counts, error: BaseException, clock: Clock) -> Committed:
    """After an error during COMMIT only the ledger knows; its fence row also waits for a commit still under way."""
    text = safe_text(error)
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        try:
            committed = ask(order, database)
        except database.failures as again:
            text = safe_text(again)
            clock.sleep(1.0)
            continue
        if committed is not None:
            return replace(committed, counts=counts, replayed=False, notes=("the answer to COMMIT was lost",))
        message = f"the commit did not happen: {text}"
        raise TransientError(message, hint="nothing was changed; the load can be tried again.")
    message = f"the answer to COMMIT was lost and the target cannot be asked: {text}"
    raise UnknownOutcomeError(message, hint="run the pipeline again when the target is back: it asks the ledger first.")


def ask(order: Order, database: Database) -> Committed | None:
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
