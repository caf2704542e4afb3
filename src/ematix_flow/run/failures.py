"""Finds the fact inside a failed Spark job, which arrives wrapped in Python and Java stack traces."""

from __future__ import annotations

import re

from ematix_flow.connect.redact import redact
from ematix_flow.errors import FlowError, RunError

_OURS = re.compile(r"ematix_flow\.errors\.(\w+): (.+?)(?:\n\s*(?:at |\n)|\Z)", re.DOTALL)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Invalid|Failure)\w*): (.+)$", re.MULTILINE)


def reason_of(error: BaseException) -> BaseException:
    """Give one of our errors with the innermost reason of a failed job."""
    if isinstance(error, FlowError) or not _is_spark(error):
        return error
    text = str(error)
    ours = _OURS.search(text)
    if ours:
        return RunError(redact(ours[2].split("\n\n")[0].strip()))
    condition = getattr(error, "getCondition", lambda: None)()
    python = _PYTHON.findall(text)
    if python:
        name, fact = python[-1]
        return RunError(f"a task failed: {redact(fact.strip())} ({name})")
    first = next((line for line in text.splitlines() if line.strip()), "unknown")
    return RunError(f"Spark could not run the load{f' ({condition})' if condition else ''}: {redact(first.strip())}")


def _is_spark(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j", "grpc")
