from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.engine.spark.executor_health import _report, executor_health
from ematix_flow.run.spark.executor_probe import Questions, answer, installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_spark_of_this_machine_answers_that_all_is_fine(spark: SparkSession) -> None:
    del spark
    whole, *executors = executor_health()
    assert (whole.kind, whole.status) == ("spark", "ok")
    assert [report.status for report in executors] == ["ok"] * len(executors)
    assert executors[0].extras["python"] == platform.python_version()
    assert executors[0].extras["process"] != os.getpid()


@pytest.mark.parametrize(
    ("answered", "message"),
    [
        ({"python": "3.9.1"}, "Python 3.9.1 there"),
        ({"packages": {"pyarrow": None}}, "package pyarrow is missing"),
        ({"packages": {"pyarrow": "1.0.0"}}, "pyarrow 1.0.0 there"),
        ({"packages": {"no-such-package": None}}, ""),
        ({"skew": 31.0}, "its clock differs by 31 s"),
        ({"unreached": {"pg": "h:5432 refused"}}, "connection pg is out of reach (h:5432 refused)"),
        ({"scratch_error": "disk full"}, "cannot be written: disk full"),
    ],
)
def test_what_is_wrong_with_an_executor_is_said(answered: dict[str, Any], message: str) -> None:
    report = _report(answer(Questions(("pyarrow",), {})) | {"skew": 0.0} | answered)
    assert report.status == ("fail" if message else "ok")
    assert message in report.detail


def test_a_process_says_which_packages_it_has_and_what_it_reaches() -> None:
    answered = answer(Questions(("pyarrow", "no-such-package"), {"shut": ("127.0.0.1", 1)}))
    assert answered["packages"] == {"pyarrow": installed("pyarrow"), "no-such-package": None}
    assert answered["unreached"]["shut"].startswith("127.0.0.1:1 ")
    assert not answered["scratch_error"]
