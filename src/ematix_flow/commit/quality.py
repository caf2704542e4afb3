"""Measures what is expected of the rows of a load, inside its transaction and before the target is touched.

An expectation that decides about the load and cannot be measured ends it. For one that only warns, the transaction is
begun anew without it: most databases do nothing more in a transaction in which a query failed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ematix_flow.commit.measurements import Ruler, verdict_of
from ematix_flow.commit.request import Excluded
from ematix_flow.commit.row_numbers import Only, numbered, with_numbers
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.quality.checks import FAIL, REJECT, WARN
from ematix_flow.errors import FlowError, QualityCheckFailed, QualityUnrunnable, TransientError
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.sql.render import bind_staged
from ematix_flow.plan.sql.row_json import staged_row
from ematix_flow.records import Audited, CheckResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.plan.steps import Measure
    from ematix_flow.records import Counts

MOST = 10_000
"""Above this many violating rows nothing is set aside and the load is refused: its source is wrong as a whole."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Passed:
    """The rows of a load after the audit: those that go on, and those that were set aside."""

    relation: str
    counts: Counts
    audited: Audited | None = None
    excluded: tuple[Excluded, ...] = ()


class UnmeasuredError(FlowError):
    """The transaction has to begin again with this request: without an expectation that only warns and fails itself."""

    def __init__(self, request: CommitRequest) -> None:
        super().__init__("an expectation could not be measured")
        self.request = request


def audit(
    request: CommitRequest,
    database: TargetSystem,
    session: Session,
    relation: str,
    counts: Counts,
    *,
    partly: bool = False,
) -> Passed:
    """Measure the rows; refuse the load, or set rows aside, as the expectations say.

    `partly` is for a load of some of its rows: only expectations that set rows aside are measured.
    """
    if request.audit.skipped:
        return Passed(relation, counts, Audited("skipped"))
    measures = [one for one in request.audit.measures if not partly or one.severity == REJECT]
    if not measures:
        return Passed(relation, counts)
    results = _results(request, database, session, relation, measures)
    failpoint("commit.measured")
    audited = Audited(_outcome(results), tuple(results))
    _refuse(request, audited)
    failed = [m for m, r in zip(measures, results, strict=True) if r.verdict == "fail" and m.severity == REJECT]
    excluded = _violating_rows(request, database, session, relation, failed, audited)
    if excluded:
        left_out = Only(tuple(row.number for row in excluded))
        relation = numbered(request.columns, database.dialect, relation, left_out)
        audited = replace(audited, rejected=len(excluded))
        counts = replace(counts, staged=counts.staged - len(excluded), rejected=counts.rejected + len(excluded))
    failpoint("commit.audited")
    return Passed(relation, counts, audited, excluded)


def _results(
    request: CommitRequest, database: TargetSystem, session: Session, relation: str, measures: Sequence[Measure]
) -> list[CheckResult]:
    """Measure everything; what fits into one query is measured with one query."""
    ruler, broken = Ruler(request, database, session, relation), dict(request.broken)
    whole = [one for one in measures if one.name not in broken]
    together = [] if request.apart else [one for one in whole if one.counted]
    try:
        ruler.count_together(together)
    except database.errors as error:
        _raise_if_transient(database, error)
        if request.apart:
            raise  # the rows themselves cannot be read
        raise UnmeasuredError(replace(request, apart=True)) from None
    results = []
    known: tuple[type[BaseException], ...] = (*database.errors, FlowError)
    for one in measures:
        if one.name in broken:
            results.append(_broken(one, ruler.total, broken[one.name]))
            continue
        try:
            results.append(ruler.measured(one))
        except known as error:
            _raise_if_transient(database, error)
            raise _unmeasurable(request, one, error) from None
    return results


def _raise_if_transient(database: Catalog, error: BaseException) -> None:
    away = isinstance(error, TransientError) or (isinstance(error, database.errors) and database.is_transient(error))
    if away:
        raise error


def _unmeasurable(request: CommitRequest, one: Measure, error: BaseException) -> FlowError:
    text = safe_text(error).strip()
    if one.severity == WARN:
        return UnmeasuredError(replace(request, broken=(*request.broken, (one.name, text[:500]))))
    message = f"expectation {one.name!r} could not be measured: {text}"
    return QualityUnrunnable(message, hint="nothing was loaded. Fix the expectation, or let it only warn.")


def _broken(one: Measure, total: int, reason: str) -> CheckResult:
    return CheckResult(one.name, ", ".join(one.columns), one.severity, "error", None, total, message=reason)


def _outcome(results: Sequence[CheckResult]) -> str:
    verdicts = {result.verdict for result in results}
    if verdicts <= {"pass"} and not any(result.total for result in results):
        return "empty"
    return "fail" if "fail" in verdicts else "warn" if "error" in verdicts else "pass"


def _refuse(request: CommitRequest, audited: Audited) -> None:
    failed = [one for one in audited.checks if one.verdict == "fail" and one.severity == FAIL]
    if failed:
        lines = "".join(f"\n  {verdict_of(one)}" for one in failed)
        message = f"the rows of {request.token.pipeline} are not as expected:{lines}"
        raise _refusal(message, audited, "nothing was loaded. Fix the source or the expectation.")


def _refusal(message: str, audited: Audited, hint: str) -> QualityCheckFailed:
    error = QualityCheckFailed(message, hint=hint)
    error.audited = audited
    return error


def _violating_rows(
    request: CommitRequest,
    database: TargetSystem,
    session: Session,
    relation: str,
    failed: Sequence[Measure],
    audited: Audited,
) -> tuple[Excluded, ...]:
    """Return the rows that are set aside, each with the first expectation that it does not satisfy."""
    violating: dict[int, Excluded] = {}
    row = staged_row(request.columns, database.dialect)
    for one in failed:
        source = with_numbers(request.columns, database.dialect, relation)
        sql = f"SELECT s._flow_row, {row} FROM {source} AS s WHERE {one.offending} LIMIT {MOST + 1}"
        for number, text in database.data(session).query(bind_staged(sql, database.dialect, relation)):
            violating.setdefault(int(number), Excluded(int(number), f"does not satisfy {one.name}", str(text)))
        if len(violating) > MOST:
            message = f"more than {MOST} rows of {request.token.pipeline} do not satisfy {one.name}"
            raise _refusal(message, audited, "nothing was loaded. So many are not set aside: fix the source.")
    return tuple(violating[number] for number in sorted(violating))
