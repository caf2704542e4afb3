"""Quick loads for random histories: a mode is planned once per database and then published again and again.

Plan, staging and commit are the product's; only the instant and the id of a load are put into the planned statements
afterwards, because planning costs more than the load itself.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import Clock
from ematix_flow.commit.ledger import HistoryRow, open_run
from ematix_flow.commit.publish import publish
from ematix_flow.engine.batch.commit_request import commit_request_for
from ematix_flow.engine.frames.columns import frame_columns
from ematix_flow.plan.batch import Inspection, PlanRequest, plan_target
from ematix_flow.plan.columns import EVENT
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.sql.render import native_column, native_name
from ematix_flow.records import Token
from tests.contracts.flows import START
from tests.contracts.loads import Loader, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.plan.sql.program import Program
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Counts, Fence
    from tests.contracts.flows import Flow, Row

PLANNED = datetime(2001, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
"""The instant that stands in planned statements until a load has one."""

ANYONE = Token("lane", "target", "planned")
HOUR = timedelta(hours=1)


@dataclass
class SystemTable:
    """One database with one table, ready to be loaded in any of several ways."""

    flow: Flow
    staged: bool = False
    """Whether the next loads are staged, or read from a source table by the target itself."""
    plans: dict[str, TargetPlan] = field(default_factory=dict)
    count: int = 0
    fence: Fence | None = None

    @property
    def name(self) -> str:
        return f"{self.flow.database.kind} {'staged' if self.staged else 'inline'}"

    def clear(self) -> None:
        """Forget all rows; the bookkeeping goes on."""
        self.count = 0
        dialect = self.flow.database.dialect
        table_names = {plan.ensure.wanted.place for plan in self.plans.values()}
        table_names |= {plan.commit.load.points for plan in self.plans.values() if plan.commit.load.points}
        self.flow.execute(*(f"DELETE FROM {native_name(table_name, dialect)}" for table_name in table_names))

    def load(self, rows: Sequence[Row], **options: Any) -> Counts:
        """Load rows an hour after the last load."""
        plan = self._planned(options)
        self.count += 1
        at = START + self.count * HOUR
        token = Token("lane", "target", uuid.uuid4().hex)
        loader = Loader(self.flow.database, self.flow.table, options)
        history = HistoryRow(token.run_id, "lane", "s", "t", options["mode"], "cross_db", at, "running")
        if self.staged:
            spec, parts = loader.stage(plan, rows, 2)
            order = commit_request_for(plan, self._fence(history), history, spec, tuple(parts))
        else:
            self.flow.give(rows)
            order = commit_request_for(plan, self._fence(history), history, None, ())
            order = replace(order, inline=self._inline(plan), marked=False)
        order = replace(order, token=token, program=_dated(plan.commit.program, at, token))
        try:
            return publish(order, self.flow.database, Clock(now=lambda: at)).counts
        finally:
            if self.staged:
                assert self.flow.held is not None
                self.flow.database.drop_stage(self.flow.held, spec)

    def _planned(self, options: Row) -> TargetPlan:
        known = repr(sorted(options.items()))
        if known not in self.plans:
            flow = replace(self.flow, write=options)
            request = PlanRequest(
                flow.pipeline, flow.target, SourceValue(None, frame=()), flow.database, ANYONE, PLANNED
            )
            columns = frame_columns(typed(flow.table, ()))
            inspection = Inspection("source", "target", "spark", source_columns=columns, target_known=True)
            self.plans[known] = plan_target(request, inspection)
            Loader(flow.database, flow.table).expand(self.plans[known])
        return self.plans[known]

    def _fence(self, history: HistoryRow) -> Fence:
        if self.fence is None:
            self.fence, _, _ = open_run(self.flow.database, ANYONE, "lane", history, "lane")
        return self.fence

    def _inline(self, plan: TargetPlan) -> str:
        event = plan.commit.write.event_timestamp_column or ""
        names = [event if column.name == EVENT else column.name for column in plan.stage.columns]
        dialect = self.flow.database.dialect
        return f"SELECT {', '.join(native_column(name, dialect) for name in names)} FROM {self.flow.source_name}"


def _dated(program: Program, at: datetime, token: Token) -> Program:
    """Return the planned statements with the instant and the id of a load."""

    def dated(sql: str) -> str:
        for planned in (timedelta(0), timedelta(hours=2, minutes=30), timedelta(days=30)):
            sql = sql.replace(_text(PLANNED - planned), _text(at - planned))
        return sql.replace(ANYONE.run_id, token.run_id)

    return replace(program, statements=tuple(replace(one, sql=dated(one.sql)) for one in program.statements))


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")
