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

SAID = """An exception was thrown from the Python worker. Please see the stack trace below.
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
    found = reason_of(PythonException(SAID.format(name=name)))
    assert type(found) is expected
    assert str(found) == "schema registry http://here cannot be reached"


def test_an_error_of_a_task_keeps_its_kind_and_its_hint() -> None:
    told = SAID.replace(" cannot be reached\n", " cannot be reached\nHint: say where to go on.\n")
    found = reason_of(PythonException(told.format(name="StreamLostError")))
    assert type(found) is StreamLostError
    assert (found.what, found.hint) == ("schema registry http://here cannot be reached", "say where to go on.")


REFUSED = """An error occurred while calling o52.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:1)
Caused by: org.apache.spark.sql.delta.schema.DeltaInvariantViolationException: [DELTA_VIOLATE] CHECK violated by row:
 - word : bad
 - id : 2
\tat org.apache.spark.sql.delta.schema.Checker.check(Checker.scala:1)
"""


@pytest.mark.parametrize(
    ("said", "fact"),
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
def test_what_java_says_is_one_line_with_its_values(said: str, fact: str) -> None:
    assert str(reason_of(AnalysisException(said))) == fact


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("Traceback (most recent call last):\nModuleNotFoundError: No module named 'psycopg.rows'\n", MissingExtraError, "'psycopg'"),
        ("Error from python worker:\n  /usr/bin/python3: No module named pyspark\nPYTHONPATH was: x", MissingExtraError, "'pyspark'"),
        (
            ("Traceback (most recent call last):\npyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] "
             "Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions."),
            RunError, "executors run Python 3.12 and this command runs 3.11",
        ),
        ('Caused by: java.io.IOException: Cannot run program "/opt/py/bin/python": error=2, No such file', RunError, "there is no /opt/py/bin/python"),
        (SAID.format(name="MissingExtraError"), MissingExtraError, "on an executor: schema registry"),
    ],
)  # fmt: skip
def test_executors_that_lack_something_are_told_with_both_ways_out(said: str, kind: type, words: str) -> None:
    found = reason_of(PythonException(said))
    assert type(found) is kind
    assert words in str(found)
    assert "flow engine pack" in str(found)
    assert "spark.pyspark.python" in str(found) or "install it there" in str(found)


@pytest.mark.parametrize("said", ["No space left on device", "Disk quota exceeded", "File too large"])
def test_a_full_disk_is_told_as_one_and_tried_again(said: str) -> None:
    error = AnalysisException(
        f"Job aborted due to stage failure: Task 1 in stage 0.0: java.io.IOException: {said}\n\tat x"
    )
    told = reason_of(error)
    assert isinstance(told, TransientError)
    assert told.what == f"there is no room left: {said}"


def test_an_error_of_a_java_that_has_ended_is_told_as_its_end() -> None:
    from py4j.protocol import Py4JJavaError

    class GoneError(Py4JJavaError):  # type: ignore[misc]
        __module__ = "py4j.protocol"

        def __init__(self) -> None:
            pass

        def __str__(self) -> str:
            raise ConnectionRefusedError("Java is gone")

    told = reason_of(GoneError())
    assert "has ended" in str(told)
    assert isinstance(told, RunError)
