"""Who hears of runs that commands and programs begin, with the rules that pipelines declare for their alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.declare.project import PROJECT
from ematix_flow.observe.wiring import book_in, observers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ematix_flow.observe.alerts.event import Alerter
    from ematix_flow.observe.incidents import AlertRules
    from ematix_flow.observe.run_metrics import MetricsSink
    from ematix_flow.observe.wiring import Observers


def observed(
    log: object,
    alerters: Sequence[Alerter | str] = (),
    metrics: MetricsSink | str | None = None,
    traces: str | None = None,
    lineage: str | None = None,
) -> AbstractContextManager[Observers]:
    """Give those who hear of runs; incidents are remembered by the run log, so that nobody is told twice."""
    return observers(alerters, metrics, traces, lineage, incidents=book_in(log), rules=_rules)


def _rules(name: str) -> AlertRules:
    from ematix_flow.observe.incidents import AlertRules

    declared = PROJECT.pipelines.get(name)
    return AlertRules(declared.realert_after, declared.alert_every_attempt) if declared else AlertRules()
