from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PythonException

from ematix_flow.errors import (
    MissingExtraError,
    OvertakenError,
    RunError,
    RunLogError,
    StreamLostError,
    TransientError,
)
from ematix_flow.run.spark.errors import reason_of

MESSAGE = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "schema_registry.py", line 1, in ask
ematix_flow.errors.{name}: schema registry http://here cannot be reached

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TransientError", TransientError),
        ("OvertakenError", OvertakenError),
        ("RunLogError", RunLogError),
        ("UnknownNameError", RunError),
        ("RunError", RunError),
        ("Gone", RunError),
    ],
)
def test_what_passes_by_itself_does_so_too_when_a_task_says_it(name: str, expected: type) -> None:
    reason = reason_of(PythonException(MESSAGE.format(name=name)))
    assert type(reason) is expected
    assert str(reason) == "schema registry http://here cannot be reached"


def test_an_error_of_a_task_keeps_its_kind_and_its_hint() -> None:
    with_hint = MESSAGE.replace(" cannot be reached\n", " cannot be reached\nHint: say where to go on.\n")
    reason = reason_of(PythonException(with_hint.format(name="StreamLostError")))
    assert type(reason) is StreamLostError
    assert (reason.what, reason.hint) == ("schema registry http://here cannot be reached", "say where to go on.")


REFUSED = """An error occurred while calling o52.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:1)
Caused by: org.apache.spark.sql.delta.schema.DeltaInvariantViolationException: [DELTA_VIOLATE] CHECK violated by row:
 - word : bad
 - id : 2
\tat org.apache.spark.sql.delta.schema.Checker.check(Checker.scala:1)
"""


@pytest.mark.parametrize(
    ("message", "fact"),
    [
        (REFUSED, "a task failed: CHECK violated by row: word : bad, id : 2 (DELTA_VIOLATE)"),
        ("[DIVIDE_BY_ZERO] Division by zero.\n== SQL ==\n1/0", "Spark could not run the load: Division by zero. (DIVIDE_BY_ZERO)"),
        (
            ("An error occurred while calling o1.sql.\n: org.apache.iceberg.RESTException: Error occurred\n\tat a.b(c:1)\n"
            "Caused by: org.apache.http.HttpHostConnectException: Connect to http://here:9 failed\n\tat a.b(c:1)\n"),
            "Spark could not run the load: Connect to http://here:9 failed (HttpHostConnectException)",
        ),
        ("Cannot find it", "Spark could not run the load: Cannot find it"),
        ("[DELTA_EARLY] It is before the earliest version of\nthis table (2026). Please use\na later one.\n\nJVM stacktrace:\nx",
         "Spark could not run the load: It is before the earliest version of this table (2026). Please use a later one. (DELTA_EARLY)"),
        ("An error occurred\n: io.delta.Gone: It is not at\nthis place\n\tat a.b(c:1)\n", "Spark could not run the load: It is not at this place (Gone)"),
    ],
)  # fmt: skip
def test_what_java_says_is_one_line_with_its_values(message: str, fact: str) -> None:
    assert str(reason_of(AnalysisException(message))) == fact


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        ("Traceback (most recent call last):\nModuleNotFoundError: No module named 'psycopg.rows'\n", MissingExtraError, "'psycopg'"),
        ("Error from python worker:\n  /usr/bin/python3: No module named pyspark\nPYTHONPATH was: x", MissingExtraError, "'pyspark'"),
        (
            ("Traceback (most recent call last):\npyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] "
             "Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions."),
            RunError, "executors run Python 3.12 and this command runs 3.11",
        ),
        ('Caused by: java.io.IOException: Cannot run program "/opt/py/bin/python": error=2, No such file', RunError, "there is no /opt/py/bin/python"),
        (MESSAGE.format(name="MissingExtraError"), MissingExtraError, "on an executor: schema registry"),
    ],
)  # fmt: skip
def test_executors_that_lack_something_are_told_with_both_ways_out(message: str, kind: type, text: str) -> None:
    reason = reason_of(PythonException(message))
    assert type(reason) is kind
    assert text in str(reason)
    assert "flow engine pack" in str(reason)
    assert "spark.pyspark.python" in str(reason) or "install it there" in str(reason)


@pytest.mark.parametrize("message", ["No space left on device", "Disk quota exceeded", "File too large"])
def test_a_full_disk_is_told_as_one_and_tried_again(message: str) -> None:
    error = AnalysisException(
        f"Job aborted due to stage failure: Task 1 in stage 0.0: java.io.IOException: {message}\n\tat x"
    )
    reason = reason_of(error)
    assert isinstance(reason, TransientError)
    assert reason.what == f"there is no room left: {message}"


def test_an_error_of_a_java_that_has_ended_is_told_as_its_end() -> None:
    from py4j.protocol import Py4JJavaError

    class GoneError(Py4JJavaError):  # type: ignore[misc]
        __module__ = "py4j.protocol"

        def __init__(self) -> None:
            pass

        def __str__(self) -> str:
            raise ConnectionRefusedError("Java is gone")

    reason = reason_of(GoneError())
    assert "has ended" in str(reason)
    assert isinstance(reason, RunError)
