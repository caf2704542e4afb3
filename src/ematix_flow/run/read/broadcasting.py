"""Joins of rows that our own tasks read: Spark cannot know how many there are, and must not send them all to every task unseen."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pyspark.sql import SparkSession

PLANNED = "spark.sql.autoBroadcastJoinThreshold"
MEASURED = "spark.sql.adaptive.autoBroadcastJoinThreshold"

_lock = threading.Lock()
_changed: dict[int, _BroadcastChange] = {}
"""Sessions whose joins are measured now, by their ids."""


@dataclass(slots=True)
class _BroadcastChange:
    """What a session was set to before, and how many loads require another value."""

    before: str
    loads: int = 0


def measured_joins(spark: SparkSession, resources: ExitStack) -> None:
    """Let joins broadcast what was measured to be small, not what is taken to be, until `resources` is closed.

    Rows from our tasks look to Spark like the few numbers that the tasks are made from, and a large table would be collected.
    """
    with _lock:
        if id(spark) not in _changed:
            before = str(spark.conf.get(PLANNED))
            _changed[id(spark)] = _BroadcastChange(before)
            spark.conf.set(MEASURED, spark.conf.get(MEASURED, None) or before)
            spark.conf.set(PLANNED, "-1")
        _changed[id(spark)].loads += 1
    resources.callback(_leave, spark)


def _leave(spark: SparkSession) -> None:
    with _lock:
        changed = _changed[id(spark)]
        changed.loads -= 1
        if not changed.loads:
            del _changed[id(spark)]
            # Where the load has failed, Spark may be gone; that is not the error to report.
            with suppress(Exception):
                spark.conf.set(PLANNED, changed.before)
