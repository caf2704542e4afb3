from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from ematix_flow.errors import RunError, TransientError
from ematix_flow.run.failures import reason_of

SAID = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "schema_registry.py", line 1, in ask
ematix_flow.errors.{name}: schema registry http://here cannot be asked

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TransientError", TransientError),
        ("OvertakenError", TransientError),
        ("RunError", RunError),
        ("Gone", RunError),
    ],
)
def test_what_passes_by_itself_does_so_too_when_a_task_says_it(name: str, expected: type) -> None:
    found = reason_of(PythonException(SAID.format(name=name)))
    assert type(found) is expected
    assert str(found) == "schema registry http://here cannot be asked"
