"""Measures how fresh the tables of pipelines are, also of those that do not run; it reads, and changes nothing."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.commit.ledger import parse_instant
from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.pipeline.keywords import duration
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import FlowError, RunError
from ematix_flow.events import FreshnessChanged
from ematix_flow.observe.bus import Bus
from ematix_flow.plan.schedule.freshness import BREACHED, LAST_SUCCESS, Freshness, lag_of, state_of
from ematix_flow.plan.sql.render import native_column, native_name
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration

EVERY = timedelta(minutes=1)
_FAR_YEAR = re.compile(r"\d{5,}-")
RECENT = 500
"""How many of the newest successful runs are searched for one of a target."""


@dataclass(frozen=True, slots=True)
class _Sla:
    """A limit with its pipeline and target."""

    pipeline: str
    sla: timedelta
    target: TargetDeclaration | None = None
    key: str = ""

    @property
    def column(self) -> str | None:
        """Return the column whose newest value counts; None where the last success does."""
        return None if self.target is None else self.target.quality.column


def register_freshness_sla(pipeline: str, sla: Any) -> None:
    """Register a limit for the age of a pipeline's last success, besides its declared one."""
    PROJECT.slas[pipeline] = duration("freshness_sla", sla)


def registered_slas() -> dict[str, timedelta]:
    """Return the limits by the names of their pipelines; of several targets the strictest one."""
    limits: dict[str, timedelta] = {}
    for one in _slas():
        limits[one.pipeline] = min(one.sla, limits.get(one.pipeline, one.sla))
    return limits


def evaluate_freshness(
    names: Iterable[str] | None = None, *, now: datetime | None = None, run_log: RunLog | None = None
) -> list[Freshness]:
    """Return how fresh every table with a limit is, or those of some pipelines."""
    log, selected = run_log or open_run_log(), None if names is None else set(names)
    at = now or SYSTEM_CLOCK.now()
    return [_evaluated(one, at, log) for one in _slas() if selected is None or one.pipeline in selected]


class FreshnessEvaluator:
    """Keeps the states from one evaluation to the next and emits those that changed."""

    def __init__(self, bus: Bus | None = None, run_log: RunLog | None = None) -> None:
        self._bus = bus or Bus()
        self._log = run_log
        self._states: dict[tuple[str, str], str] = {}

    def evaluate(self, now: datetime | None = None) -> list[Freshness]:
        """Evaluate everything with a limit; a state that becomes or leaves `breached` is emitted on the bus."""
        results = evaluate_freshness(now=now, run_log=self._log)
        for one in results:
            before = self._states.get((one.pipeline, one.target), "")
            self._states[one.pipeline, one.target] = one.state
            if (one.state == BREACHED) != (before == BREACHED):
                self._bus.emit(_freshness_event(one, before))
        return results


class FreshnessWatch:
    """Evaluates repeatedly, also when nothing runs; a scheduler calls it in every tick."""

    def __init__(self, bus: Bus, run_log: RunLog) -> None:
        self._bus, self._log = bus, run_log
        self._evaluated_at: datetime | None = None

    def __call__(self, now: datetime) -> None:
        """Emit the state of everything with a limit, once a minute; alerting knows what was reported before."""
        if self._evaluated_at is not None and now - self._evaluated_at < EVERY:
            return
        self._evaluated_at = now
        for one in evaluate_freshness(now=now, run_log=self._log):
            self._bus.emit(_freshness_event(one, ""))


def _freshness_event(one: Freshness, before: str) -> FreshnessChanged:
    lag = None if one.lag is None else one.lag.total_seconds()
    return FreshnessChanged(one.pipeline, one.target, one.state, before, lag, one.sla.total_seconds())


def last_success(log: RunLog, pipeline: str, target: str) -> datetime | None:
    """Return when a pipeline, or one target of it, last succeeded."""
    declared = PROJECT.pipelines.get(pipeline)
    state = log.find(PipelineState, pipeline) if declared is None or len(declared.targets) <= 1 else None
    if state is not None and state.last_success_at:
        return parse_instant(state.last_success_at)
    runs, _ = log.list_runs(pipeline=pipeline, status="succeeded", limit=RECENT)
    for run in runs:
        if run.finished_at and (not target or run.target == target):
            return parse_instant(run.finished_at)
    return None


def _slas() -> Iterator[_Sla]:
    for pipeline in PROJECT.pipelines.values():
        for target in pipeline.targets:
            if target.quality.sla is not None:
                yield _Sla(pipeline.name, target.quality.sla, target, pipeline.key_of(target))
    for name, sla in PROJECT.slas.items():
        yield _Sla(name, sla)


def _evaluated(one: _Sla, now: datetime, log: RunLog) -> Freshness:
    last, basis, note = _last(one, log)
    state = state_of(last, now, one.sla)
    return Freshness(one.pipeline, one.key, state, one.sla, lag_of(last, now), last, basis, note)


def _last(one: _Sla, log: RunLog) -> tuple[datetime | None, str, str]:
    """Return the instant that counts, what it is and why there is no better one."""
    note = ""
    if one.target is not None and one.column is not None:
        try:
            return _newest(one.target, one.column), f"newest {one.column}", ""
        except FlowError as error:
            note = f"the table could not be queried: {safe_text(error)}"
    return last_success(log, one.pipeline, one.key), LAST_SUCCESS, note


def _newest(target: TargetDeclaration, column: str) -> datetime | None:
    """Query a table for the newest value of a column; None where there is no table or no value."""
    database = target_for(target.connection, target.table, session_for(Options()))
    table_name = database.table_name(target.table.schema, target.table.name)
    name = native_column(column, database.dialect)
    try:
        if not database.exists():
            return None
        with closing(database.read_only_session()) as session:
            if database.find_table(session, table_name) is None:
                return None
            session.show_all_values()
            sql = f"SELECT MAX({name}) FROM {native_name(table_name, database.dialect)}"
            value = database.data(session).query(sql)[0][0]
    except database.failures as error:
        raise RunError(safe_text(error)) from None
    return None if value is None else _instant(value, column)


def _instant(value: Any, column: str) -> datetime:
    """Return the instant of a value; one that Python cannot hold is the last or the first that it can."""
    try:
        return parse_instant(value)
    except (ValueError, OverflowError):
        text = str(value).strip()
    if text == "-infinity" or text.endswith(" BC"):
        return datetime.min.replace(tzinfo=UTC)
    if text == "infinity" or _FAR_YEAR.match(text):
        return datetime.max.replace(tzinfo=UTC)
    message = f"the newest {column} is {text!r}, which is no instant"
    raise RunError(message)
