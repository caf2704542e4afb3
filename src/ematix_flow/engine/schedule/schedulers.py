"""A scheduler for programs that start one themselves, from plain values; what it does is in `scheduler`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.clock import SYSTEM_CLOCK, Clock
from ematix_flow.commit.runlog.open import from_url as run_log_from_url
from ematix_flow.declare.project import PROJECT, load_module
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.executors.open import from_url as executor_from_url
from ematix_flow.engine.schedule.freshness import FreshnessWatch
from ematix_flow.engine.schedule.lease import default_worker
from ematix_flow.engine.schedule.pools import pool_sizes
from ematix_flow.engine.schedule.scheduler import Scheduler, SchedulerSettings
from ematix_flow.engine.schedule.slot_run import SlotRunner
from ematix_flow.engine.stream.change_lag import LagWatch
from ematix_flow.observe.bus import Bus
from ematix_flow.observe.observers import incident_store_in, observers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.executors.base import Executor
    from ematix_flow.observe.alerts.alert import Alerter
    from ematix_flow.observe.metrics.run import MetricsSink


def run_scheduler(  # noqa: PLR0913 - the keywords that programs know
    *,
    module: str,
    run_log: RunLog | None = None,
    run_log_url: str = "",
    executor: Executor | str | None = None,
    alerter_urls: Sequence[str] | None = None,
    metrics_url: str | None = None,
    alerters: Sequence[Alerter | str] | None = None,
    metrics: MetricsSink | str | None = None,
    poll_interval_seconds: float = 10,
    lease_seconds: float = 300,
    leader_lease_seconds: float = 60,
    interval_seconds: float = 60,
    worker_id: str | None = None,
    history: object = None,
    max_iterations: int | None = None,
    now_fn: Callable[[], datetime] | None = None,
    sleep_fn: Callable[[float], None] | None = None,
) -> None:
    """Have the pipelines of a module run when they are due, until `max_iterations` ticks are done.

    `executor` is an object, a URL or None for threads of this process. The run log keeps the history of runs, so
    `history` is taken and not needed.
    """
    del history
    load_module(module)
    log = run_log if run_log is not None else run_log_from_url(run_log_url)
    clock = Clock(now_fn or SYSTEM_CLOCK.now, sleep_fn or SYSTEM_CLOCK.sleep)
    settings = SchedulerSettings(
        module=module,
        executor=executor_from_url(executor) if isinstance(executor, str) else executor,
        poll_seconds=poll_interval_seconds,
        leader_seconds=leader_lease_seconds,
        window=timedelta(seconds=interval_seconds),
        run_log_url=run_log_url or str(log.path or ""),
        alerter_urls=tuple(alerter_urls or ()),
        metrics_url=metrics_url,
        max_iterations=max_iterations,
        sleep=sleep_fn,
    )
    heard = [*(alerters or ()), *(alerter_urls or ())]
    sink = metrics if metrics is not None else metrics_url
    with observers(heard, sink, incidents=incident_store_in(log)) as heard_by:
        bus = Bus()
        heard_by.subscribe_to(bus)
        worker = worker_id or default_worker("scheduler")
        runner = SlotRunner(log, Options(run_log=log, bus=bus, clock=clock), worker, lease_seconds, pool_sizes(PROJECT))
        Scheduler(runner, settings, checks=(FreshnessWatch(bus, log), LagWatch(bus))).run()
