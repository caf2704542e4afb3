"""Which engine moves the rows of a load, and in how many tasks: by its slots and by what databases allow."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.spark.session import SessionFactory, spark_settings
from ematix_flow.plan.steps import IN_PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.session import Session
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.run.engine import Engine, SparkEngine

SHARE = 4
"""Of its free connections a load takes one in so many: other loads run too, and a task may have one to either side."""

DEFAULT_CONNECTIONS = 8
"""Connections that are taken where a server does not report how many are free, as behind a proxy."""


def engine_for(plan: TargetPlan, spark: Callable[..., Any]) -> Engine:
    """Return the engine that the plan names."""
    if plan.stage.by.value == IN_PROCESS:
        from ematix_flow.run.local.threads import LocalEngine

        return LocalEngine()
    return spark_engine(spark)


def spark_engine(spark: Callable[..., Any]) -> SparkEngine:
    """Return Spark as the engine; it starts when it is first needed."""
    from ematix_flow.run.engine import SparkEngine

    return SparkEngine(spark, partial(slots_of, spark))


def slots_of(spark: Callable[..., Any]) -> int:
    """Return how many tasks Spark runs at a time."""
    if isinstance(spark, SessionFactory):
        return spark.slots()
    from ematix_flow.run.spark.slots import session_slots

    return session_slots(spark())


def most_connected(database: Catalog, session: Session) -> int | None:
    """Return how many tasks may be connected to a database at a time; None where there is no server."""
    try:
        free = session.free_connections()
    except database.errors:
        free = SHARE * DEFAULT_CONNECTIONS
    if free is None:
        return None
    return spark_settings().max_connections or max(1, free // SHARE)


def fewest(*limits: int | None) -> int | None:
    """Return the smallest of some limits; None where there is none."""
    return min((limit for limit in limits if limit is not None), default=None)
