"""Public names of data quality and freshness; nothing else is defined here."""

from ematix_flow.commit.measurements import StagedRows
from ematix_flow.declare.quality.checks import Expectation
from ematix_flow.declare.quality.tester import Tester
from ematix_flow.engine.schedule.freshness import (
    FreshnessEvaluator,
    evaluate_freshness,
    register_freshness_sla,
    registered_slas,
)
from ematix_flow.errors import QualityCheckFailed, QualityUnrunnable
from ematix_flow.plan.schedule.freshness import Freshness
from ematix_flow.records import Audited, CheckResult

__all__ = [
    "Audited",
    "CheckResult",
    "Expectation",
    "Freshness",
    "FreshnessEvaluator",
    "QualityCheckFailed",
    "QualityUnrunnable",
    "StagedRows",
    "Tester",
    "evaluate_freshness",
    "register_freshness_sla",
    "registered_slas",
]
