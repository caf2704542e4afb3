"""What the engine of lake tables makes of errors: an answer of Spark, or a line to it that broke."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkAssertionError

from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.run.spark.lake_engine import _translate_errors

connect = pytest.importorskip("pyspark.errors.exceptions.connect")

CHANGED = "INVALID_HANDLE.SESSION_CHANGED"


@pytest.mark.parametrize(
    ("error", "answered", "transient"),
    [
        (AnalysisException("no such column"), True, False),
        (connect.UnknownException("[DELTA_CONCURRENT_APPEND] somebody was first"), True, True),
        (connect.SparkConnectGrpcException("failed to connect to all addresses"), False, True),
        (connect.UnknownException("the server is another one", errorClass=CHANGED), False, True),
        (PySparkAssertionError("another server side session"), False, True),
        (Py4JNetworkError("Answer from Java side is empty"), False, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_spark_itself_says_is_an_answer(error: Exception, answered: bool, transient: bool) -> None:
    with pytest.raises(EngineError) as caught, _translate_errors():
        raise error
    assert (caught.value.answered, caught.value.transient) == (answered, transient)
