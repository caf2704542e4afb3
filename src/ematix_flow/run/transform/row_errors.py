"""Asks Spark which rows of a view a query fails at, and why, in one query; it needs a session that runs our Java classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.lake_engine import JAR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLASS = "ematix.flow.RowErrors"


def can_tell(spark: SparkSession) -> bool:
    """Return whether a session can be taught functions in Java; one of a Connect server cannot."""
    return hasattr(spark, "_jsparkSession")


def errors_frame(spark: SparkSession, sql: str) -> DataFrame:
    """Return the answer of a query that uses functions by which rows tell their errors."""
    session: Any = spark
    java, gateway = session._jsparkSession, session.sparkContext._gateway  # noqa: SLF001 - the way to Java
    if not java.sessionState().functionRegistry().functionExists(_named(gateway, "flow_error")):
        spark.sql(f"ADD JAR '{JAR}'")
        loader = java.sharedState().jarClassLoader()
        found = gateway.jvm.java.lang.Class.forName(_CLASS, True, loader)  # noqa: FBT003 - as Java has it
        arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
        arguments[0] = java
        next(one for one in found.getMethods() if one.getName() == "register").invoke(None, arguments)
    return spark.sql(sql)


def _named(gateway: Any, name: str) -> Any:
    return gateway.jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
