"""Loads for contract tests: the product's plan, staging and commit, with the staging done in this process.

Spark only decides where the staging function runs; what is planned, staged and committed is the same.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.clock import Clock
from ematix_flow.commit.constraint_violations import without_violations
from ematix_flow.commit.ledger import HistoryRow, open_run
from ematix_flow.commit.publish import publish
from ematix_flow.connect.base.stage import StageSpec
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.engine.batch.commit_request import commit_request_for
from ematix_flow.engine.batch.ddl import expand
from ematix_flow.engine.batch.inspect import inspect_source, inspect_target
from ematix_flow.engine.batch.planner import LoadRequest, plan_load
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.errors import RefusedError
from ematix_flow.plan.columns import EVENT
from ematix_flow.plan.source import SourceValue
from ematix_flow.records import Token
from ematix_flow.run.stage.conform import Rules
from ematix_flow.run.stage.tasks import StageWork, stage_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.database import Database
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Committed, Fence, TaskReport

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Loader:
    """Loads rows into one table of one database, each load an hour after the last one."""

    database: Database
    table: Table
    options: dict[str, Any] = field(default_factory=dict)
    name: str = "loads"
    count: int = 0

    @property
    def target(self) -> TargetDeclaration:
        return TargetDeclaration(self.table, write(**self.options), "target")

    def now(self) -> datetime:
        return START + timedelta(hours=self.count)

    def load(self, rows: Sequence[dict[str, Any]], slot: str | None = None, parts: int = 1) -> Committed:
        """Load rows under a slot of their own, or the one given."""
        self.count += 1
        return self.attempt(rows, slot or f"slot-{self.count}-{uuid.uuid4().hex}", parts)

    def attempt(self, rows: Sequence[dict[str, Any]], slot: str, parts: int = 1) -> Committed:
        """Make one attempt at the load of a slot."""
        token = Token(self.name, f"target:{self.table.qualified_name}", slot)
        now = self.now()
        history = HistoryRow(
            token.run_id, self.name, self.table.schema, self.table.name, "test", "cross_db", now, "running"
        )
        fence, committed, _ = open_run(self.database, token, self.name, history, self.name)
        if committed is not None:
            return committed
        plan = self.plan(rows, token)
        self.expand(plan)
        spec, staged = self.stage(plan, rows, parts)
        return self.commit(plan, fence, history, spec, staged)

    def plan(self, rows: Sequence[dict[str, Any]], token: Token) -> TargetPlan:
        pipeline = Pipeline(self.name, lambda: None, (self.target,))
        request = LoadRequest(
            pipeline,
            self.target,
            OpenSource(SourceValue(None, frame=typed(self.table, rows)), "rows"),
            self.database,
            token,
            self.now(),
        )
        plan, _ = plan_load(request, observe)
        return plan

    def expand(self, plan: TargetPlan) -> None:
        session = self.database.session()
        try:
            expand(self.database, session, plan)
        finally:
            session.close()

    def stage(self, plan: TargetPlan, rows: Sequence[dict[str, Any]], parts: int) -> tuple[StageSpec, list[TaskReport]]:
        schema = staged_schema(plan.stage.columns).serialize().to_pybytes()
        spec = StageSpec(f"stg_{uuid.uuid4().hex[:24]}", schema, columns=plan.stage.columns)
        session = self.database.session()
        try:
            spec = self.database.open_stage(session, spec)
        finally:
            session.close()
        rules = Rules(
            plan.stage.columns,
            frozenset(plan.check.required),
            forbidden=self.database.capabilities.cannot_store,
            times=self.database.capabilities.times,
        )
        work = StageWork(self.database, spec, rules)
        event = plan.commit.write.event_timestamp_column
        table = typed(self.table, rows)
        if event is not None:
            table = table.append_column(EVENT, table.column(event))
        staged = []
        for part in range(parts):
            chosen = table.take(pa.array([index for index in range(len(rows)) if index % parts == part], pa.int64()))
            staged.append(stage_batches(work, part, part, chosen.to_batches()))
        return spec, staged

    def commit(
        self, plan: TargetPlan, fence: Fence, history: HistoryRow, spec: StageSpec, parts: Sequence[TaskReport]
    ) -> Committed:
        order = commit_request_for(plan, fence, history, spec, tuple(parts))
        clock = Clock(now=self.now)
        try:
            return publish(order, self.database, clock)
        except RefusedError:
            if not order.rejects_allowed:
                raise
            return publish(without_violations(order, self.database), self.database, clock)

    def rows(self, *columns: str, order: str = "") -> list[tuple[Any, ...]]:
        """Return the target's rows, in the order of the first columns."""
        from ematix_flow.plan.sql.render import native_column, native_name

        table_name = self.database.table_name(self.table.schema, self.table.name)
        names = ", ".join(native_column(name, self.database.dialect) for name in columns)
        session = self.database.session()
        try:
            by = order or names
            return session.query(f"SELECT {names} FROM {native_name(table_name, self.database.dialect)} ORDER BY {by}")
        finally:
            session.close()


def observe(request: LoadRequest) -> LoadInspection:
    from dataclasses import replace

    source_inspection = inspect_source(request.source)
    inspection = inspect_target(request.pipeline, request.target, request.database, source_inspection.inspection)
    return replace(source_inspection, inspection=replace(inspection, target_name="target"))


def typed(table: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table of the declared types."""
    from ematix_flow.connect.types.arrow import arrow_type

    arrays = [pa.array([row.get(column.name) for row in rows], arrow_type(column.type)) for column in table.columns]
    return pa.table(arrays, names=[column.name for column in table.columns])
