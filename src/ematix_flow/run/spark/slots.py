"""How many tasks a running session of Spark has room for; it decides nothing about loads."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNKNOWN = 2
"""What is assumed of an engine that does not report it: Spark's `defaultParallelism` of a cluster without executors."""

_ROWS = 1 << 16
"""More rows than a cluster has slots, so that none of the partitions of a range is empty."""

_known: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()
"""What is known about sessions of Connect servers, each of which is queried once."""


def session_slots(spark: SparkSession) -> int:
    """Return the `defaultParallelism` of a session."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        return spark.sparkContext.defaultParallelism
    if spark not in _known:
        _known[spark] = _server_parallelism(spark)
    return _known[spark]


def _server_parallelism(spark: SparkSession) -> int:
    """Return into how many partitions a server cuts a range: Connect sessions have no other way to report it."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sf

    try:
        row = spark.range(_ROWS).select(sf.max(sf.spark_partition_id())).first()
    except PySparkException:
        return UNKNOWN
    return UNKNOWN if row is None or row[0] is None else int(row[0]) + 1
