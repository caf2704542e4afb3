"""Finds the fact inside a failed Spark job, which arrives wrapped in Python and Java stack traces."""

from __future__ import annotations

import re

from ematix_flow import errors
from ematix_flow.connect.redact import redact
from ematix_flow.errors import FlowError, RunError, TransientError

_OURS = re.compile(r"ematix_flow\.errors\.(\w+): (.+?)(?:\n\s*(?:at |\n)|\Z)", re.DOTALL)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Invalid|Failure)\w*): (.+)$", re.MULTILINE)
_JAVA = re.compile(r"^(?:Caused by: |: )(?:[\w$]+\.)+(\w+): ?(.*)$", re.MULTILINE)
_FILE = re.compile(r"reading file (?:file:(?://)?)?(\S+?)\.? ")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)


def reason_of(error: BaseException) -> BaseException:
    """Give one of our errors with the innermost reason of a failed job."""
    if isinstance(error, FlowError) or not _is_spark(error):
        return error
    text = str(error)
    ours = _OURS.search(text)
    if ours:
        # What passes by itself is tried again, whoever it happened to.
        passing = getattr(getattr(errors, ours[1], None), "transient", False)
        return (TransientError if passing else RunError)(redact(ours[2].split("\n\n")[0].strip()))
    raised = _RAISED.search(text)
    if raised:
        return RunError(redact(raised[1].strip()))
    return RunError(redact(_said(error, text)))


def _said(error: BaseException, text: str) -> str:
    if "Traceback (most recent call last)" in text and (python := _PYTHON.findall(text)):
        name, fact = python[-1]
        return f"a task failed: {fact.strip()} ({name})"
    java = [f"{fact.strip()} ({name})" if fact.strip() else name for name, fact in _JAVA.findall(text)]
    file = _FILE.search(text)
    if file:
        return f"file {file[1]} cannot be read: {java[-1] if java else 'it is malformed'}"
    if java:
        return f"a task failed: {java[-1]}"
    condition = getattr(error, "getCondition", lambda: None)()
    first = next((line.strip() for line in text.splitlines() if line.strip()), "unknown")
    return f"Spark could not run the load{f' ({condition})' if condition else ''}: {first}"


def _is_spark(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j", "grpc")
