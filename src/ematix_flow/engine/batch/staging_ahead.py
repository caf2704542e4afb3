"""Stages the rows of a load while the load before it commits; they count only if the load is then planned as they were."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ematix_flow.engine.batch.planner import load_inspector, plan_load
from ematix_flow.engine.batch.stager import Staging, stage, stage_name
from ematix_flow.plan.steps import SPARK
from ematix_flow.run.streams.threads import start_thread

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.clock import Clock
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.engine.batch.planner import LoadRequest
    from ematix_flow.engine.spark.session import SessionFactory
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import TaskReport

Ahead: TypeAlias = "tuple[TargetPlan, StageSpec, tuple[TaskReport, ...]]"
"""The plan by which rows are staged, where they are and what tasks have reported."""

_DEADLINE = 5.0
"""Seconds: a source that does not answer does not keep a stream from ending."""


class StagingAhead:
    """The staging of one load by a thread of its own. It writes staging and nothing else: no run is opened, nothing is committed."""

    def __init__(self, load_request: LoadRequest, spark: SessionFactory, clock: Clock) -> None:
        self._request = load_request
        self._spark = spark
        self._clock = clock
        self._future: Future[Ahead] | None = None
        self.now: datetime | None = None
        """The time that its plan has; None until it begins, so that loads have times in the order in which they come."""

    def begin(self, before: TargetPlan) -> None:
        """Begin, once; by the engine that has staged the load before it."""
        if self._future is None:
            self._future = Future()
            self.now = self._clock.now()
            self._request = replace(self._request, now=self.now)
            spark = self._spark() if before.stage.by.value == SPARK else None
            start_thread("flow-stage-ahead", partial(self._run, self._future), spark)

    def take(self, plan: TargetPlan) -> tuple[StageSpec, tuple[TaskReport, ...]] | None:
        """Return what is staged, once; None where it was not begun, has failed or was planned in another way."""
        future, self._future = self._future, None
        if future is None:
            return None
        # What went wrong is raised by the load itself, which stages again.
        with suppress(Exception):
            planned, spec, reports = future.result()
            if planned == plan:
                return spec, reports
        self._drop(future)
        return None

    def discard(self) -> None:
        """Remove what is staged, if nobody took it; wait a moment for a thread that is still at work."""
        future, self._future = self._future, None
        if future is not None:
            with suppress(Exception):
                future.result(_DEADLINE)
            future.add_done_callback(self._drop)

    def _run(self, future: Future[Ahead]) -> None:
        try:
            plan, load_inspection = plan_load(self._request, load_inspector(self._spark, ahead=True))
            staging = Staging(
                stage_name(plan.token), plan, self._request.source, load_inspection, self._request.database
            )
            future.set_result((plan, *stage(staging, self._spark)))
        except BaseException as error:  # noqa: BLE001 - looked at where the rows are needed
            future.set_exception(error)

    def _drop(self, future: Future[Ahead]) -> None:
        # What stays is removed with the other staging of this load, or by its age.
        with suppress(Exception):
            _, spec, _ = future.result()
            session = self._request.database.session()
            try:
                self._request.database.drop_stage(session, spec)
            finally:
                session.close()
