"""The relation that a commit applies: staged or from the source query, without duplicates; no target changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ematix_flow.commit.row_numbers import Only, numbered
from ematix_flow.connect.base.stage import StageColumn, WorkTable
from ematix_flow.connect.config.redact import redact
from ematix_flow.declare.table.types import String, Text
from ematix_flow.errors import BadRowsError, CommitError
from ematix_flow.plan.columns import FAILED, RAW
from ematix_flow.plan.shape.row_reasons import reason_of
from ematix_flow.plan.sql.program import INCOMING
from ematix_flow.plan.sql.render import bind_staged, native_column
from ematix_flow.records import Counts
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.request import CommitRequest, Excluded
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import SqlTarget, TargetSystem
    from ematix_flow.records import TaskReport


KEY_TEXT = 255
"""Characters of a key that scratch tables have room for at least."""
MAX_CHARS = 300
"""Characters of a row that an error shows."""


def work_tables(request: CommitRequest, database: TargetSystem, session: Session) -> dict[str, str]:
    """Create scratch tables before the transaction, because some databases commit at any DDL."""
    tables = list(request.program.work_tables)
    if request.inline and _materializes_inline(request):
        tables.append(WorkTable(INCOMING, _incoming_columns(request)))
    incarnation = f"{request.token.tag}_{request.fence.epoch}"
    # Only targets that answer SQL have programs with such tables.
    rows = cast("SqlTarget", database)
    return {table.name: rows.create_work_table(session, table, incarnation) for table in tables}


def _materializes_inline(request: CommitRequest) -> bool:
    return request.program.materializes_incoming(marked=request.marked, audited=bool(request.audit.measures))


def _incoming_columns(request: CommitRequest) -> tuple[StageColumn, ...]:
    if not request.marked:
        return request.columns
    return (*map(_roomy, request.columns), StageColumn(FAILED, Text()), StageColumn(RAW, Text()))


def _roomy(column: StageColumn) -> StageColumn:
    """Return a column that also holds a text which is too long, until the row is refused for it."""
    if not isinstance(column.type, String):
        return column
    # An index of MySQL holds only so much.
    return replace(column, type=String(max(column.type.length, KEY_TEXT)) if column.in_key else Text())


def staged_rows(
    request: CommitRequest, database: TargetSystem, session: Session, names: dict[str, str]
) -> tuple[str, Counts]:
    """Return the relation of rows to apply and how many there are."""
    if request.stage is not None:
        database.verify_stage(session, request.stage, request.reports)
        rows, rejected = sum(p.rows for p in request.reports), sum(p.rejected for p in request.reports)
        # Those that the database has refused are in the staging still.
        refuse_empty(request, rows - len(request.excluded), rejected + len(request.excluded), request.excluded)
        relation = database.staged_relation(session, request.stage, request.reports)
        if request.excluded:
            relation = numbered(
                request.columns, database.dialect, relation, Only(tuple(row.number for row in request.excluded))
            )
            rows, rejected = rows - len(request.excluded), rejected + len(request.excluded)
        return relation, Counts(staged=rows, rejected=rejected)
    if not _materializes_inline(request):
        return f"({request.inline})", Counts()
    listed = ", ".join(native_column(column.name, database.dialect) for column in _incoming_columns(request))
    rows = session.execute(f"INSERT INTO {names[INCOMING]} ({listed}) {request.inline}")
    refuse_empty(request, rows)
    _check_inline(request, database, session, names[INCOMING])
    return names[INCOMING], Counts(staged=rows)


def _check_inline(request: CommitRequest, database: TargetSystem, session: Session, relation: str) -> None:
    """Refuse rows that could not be parsed or have no key; the Spark path checks the same in its tasks."""
    conditions = [f"{native_column(name, database.dialect)} IS NULL" for name in request.required]
    if request.marked:
        conditions.append(f"{native_column(FAILED, database.dialect)} IS NOT NULL")
    if not conditions:
        return
    bad = f"FROM {relation} WHERE {' OR '.join(conditions)}"
    count = int(session.query(f"SELECT COUNT(*) {bad}")[0][0])
    if not count:
        return
    names = [column.name for column in _incoming_columns(request)]
    listed = ", ".join(native_column(name, database.dialect) for name in names)
    rows = [dict(zip(names, row, strict=True)) for row in session.query(f"SELECT {listed} {bad} LIMIT 5")]
    first = "".join(f"\n  {_inline_reason(request, row)}" for row in rows)
    message = f"{quantity(count, 'row')} {'does' if count == 1 else 'do'} not fit the target:{first}"
    raise BadRowsError(message, hint='nothing was loaded. Fix the source, or declare on_bad_row="reject".')


def _inline_reason(request: CommitRequest, row: dict[str, object]) -> str:
    failed, raw = row.pop(FAILED, None), row.pop(RAW, None)
    source = redact(str(raw) if raw else json.dumps(row, default=str, ensure_ascii=False))
    source = source if len(source) <= MAX_CHARS else f"{source[:MAX_CHARS]}..."
    if failed:
        column, reason = reason_of(str(failed), source if raw is None else str(raw))
        return f"{column}: {redact(reason)}; row {source}"
    missing = [name for name in request.required if row.get(name) is None]
    return f"{', '.join(missing)}: is NULL but needs a value; row {source}"


def in_own_types(request: CommitRequest, database: TargetSystem, relation: str) -> str:
    """Return the relation with values of the target's own types where rows carry them in another one.

    Only what is applied is cast, so a row that was set aside cannot fail.
    """
    if not any(column.native for column in request.columns):
        return relation
    names = [(column, native_column(column.name, database.dialect)) for column in request.columns]
    values = ", ".join(
        f"{database.existing.typed(c.native, name) if c.native else name} AS {name}" for c, name in names
    )
    return f"(SELECT {values} FROM {relation} AS carried_rows)"


def refuse_empty(request: CommitRequest, rows: int, rejected: int = 0, excluded: Sequence[Excluded] = ()) -> None:
    """Refuse a load without rows that would clear the target, unless that is allowed; tell why rows were rejected."""
    clears = not rejected or request.program.retaining is None
    if rows != 0 or not request.refuse_empty or not clears:
        return
    clearing = f"{request.mode} would remove every row of the target"
    if not rejected:
        message = f"the source of {request.token.pipeline} is empty, and {clearing}"
        raise CommitError(message, hint="if that is wanted, declare allow_empty=True.")
    first = first_rejects(request.reports, excluded)
    message = f"no row of the source of {request.token.pipeline} can be loaded ({rejected:,} rejected), and {clearing}:{first}"
    hint = "nothing was loaded, nor kept as rejects. Fix the source, or declare allow_empty=True to clear the target and keep these."
    raise CommitError(message, hint=hint)


def first_rejects(reports: Sequence[TaskReport], excluded: Sequence[Excluded] = ()) -> str:
    """Return the lines of a message that tell the first rejected rows with their reasons."""
    texts = [report.first_reject for report in reports if report.first_reject]
    texts += [
        f"{f'{one.column}: ' if one.column else ''}{one.reason}; row {one.row_json[:MAX_CHARS]}" for one in excluded
    ]
    return "".join(f"\n  {redact(text)}" for text in texts[:5])


def without_duplicates(request: CommitRequest, database: TargetSystem, session: Session, relation: str) -> str:
    """Fold equal duplicates of a key, or take the last where rows have an order; refuse others that differ, with the keys named."""
    checks, rows = request.program.duplicates, database.data(session)
    if checks is None or not rows.query(bind_staged(checks.repeated_keys, database.dialect, relation)):
        return relation
    distinct = bind_staged(checks.distinct, database.dialect, relation)
    conflicts = () if checks.ordered else rows.query(bind_staged(checks.repeated_keys, database.dialect, distinct))
    if conflicts:
        keys = "; ".join(", ".join(str(value) for value in row) for row in conflicts)
        message = f"the load has different rows for the same key: {keys}"
        hint = "say which row wins: order_by= of a stream, transforms_pre=[deduplicate_by(keys, order_by=...)] of a pipeline."
        raise CommitError(message, hint=hint)
    return distinct
