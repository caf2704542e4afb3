"""What a query fails at: whether its error is about rows, and which ones, found by our Java classes in one query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.errors import TransientError
from ematix_flow.run.spark.errors import raised_in_python, reason_of
from ematix_flow.run.spark.java_classes import JavaClasses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLASS = "ematix.flow.RowErrors"


def can_report_errors(spark: SparkSession) -> bool:
    """Return whether a session can be taught functions in Java; one of a Connect server cannot."""
    return hasattr(spark, "_jsparkSession")


def errors_frame(spark: SparkSession, sql: str) -> DataFrame:
    """Return the result of a query that uses functions by which rows report their errors."""
    session: Any = spark
    java, gateway = session._jsparkSession, session.sparkContext._gateway  # noqa: SLF001 - the way to Java
    if not java.sessionState().functionRegistry().functionExists(_named(gateway, "flow_error")):
        JavaClasses(spark).call(_CLASS, "register", java)
    return spark.sql(sql)


def _named(gateway: Any, name: str) -> Any:
    return gateway.jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)


def is_about_rows(error: BaseException) -> bool:
    """Return whether a query failed at a value, and not because it cannot work at all."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if not isinstance(error, PySparkException) or isinstance(error, AnalysisException | ParseException):
        return False
    # Tasks read the messages: a source that is away for a while is no error of a row.
    return not isinstance(reason_of(error), TransientError)


def first_line(error: Exception) -> str:
    """Return the first line of an error, or what code of the user raised in it; the rest of it is a stack."""
    python = raised_in_python(str(error))
    if python is not None:
        return ": ".join(python)[:500]
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
