"""Finds the fact inside a failed Spark job, which arrives wrapped in Python and Java stack traces."""

from __future__ import annotations

import re

from ematix_flow import errors
from ematix_flow.connect.config.redact import redact
from ematix_flow.errors import FlowError, MissingExtraError, RunError, TransientError

_OURS = re.compile(r"ematix_flow\.errors\.(\w+): (.+?)(?:\n\s*(?:at |\n)|\Z)", re.DOTALL)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Invalid|Failure)\w*): (.+)$", re.MULTILINE)
_GOES_ON = r"(?:(?<![.;:!?])\n(?!at )[a-z`<(].*)*"
"""The rest of a sentence that Java broke into lines."""
_JAVA = re.compile(rf"^(?:Caused by: |: )(?:[\w$]+\.)+(\w+): ?(.*{_GOES_ON}(?:\n - .*)*)$", re.MULTILINE)
_FIRST = re.compile(rf"\s*(\S.*{_GOES_ON})")
_CONDITION = re.compile(r"^\[([A-Z][A-Z0-9_.]+)\] (.+)$", re.DOTALL)
_FILE = re.compile(r"reading file (?:file:(?://)?)?(\S+?)\.? ")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w]+)[\w.]*'|: No module named '?(pyspark)")
_VERSIONS = re.compile(r"PYTHON_VERSION_MISMATCH.*?version: (\d+\.\d+).*?driver: (\d+\.\d+)", re.DOTALL)
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_NO_ROOM = re.compile(r"No space left on device|File too large|Disk quota exceeded")
_PACK = "let this environment travel with the job: `flow engine pack` makes an archive for `spark.archives`."


def reason_of(error: BaseException) -> BaseException:
    """Return one of our errors with the innermost reason of a failed job."""
    if isinstance(error, FlowError) or not _is_spark(error):
        return error
    try:
        text = str(error)
    except OSError:
        # The message of an error of Java is queried from Java.
        return RunError("the Java process of Spark has ended", hint="it may need more memory: `spark.driver.memory`.")
    return _unequipped(text) or _without_room(text) or _reason(text)


def _without_room(text: str) -> FlowError | None:
    """Return the error for a task or a Java whose disk is full; none where it is not."""
    match = _NO_ROOM.search(text)
    if match is None or _OURS.search(text):
        return None
    hint = "nothing was changed; free space where Spark writes its files: TMPDIR of the process that started it, or `spark.local.dir`."
    return TransientError(f"there is no room left: {match[0]}", hint=hint)


def _unequipped(text: str) -> FlowError | None:
    """Return the error for executors whose Python cannot run the tasks of this process; none where it can."""
    if versions := _VERSIONS.search(text):
        message = (
            f"executors run Python {versions[1]} and this command runs {versions[2]}; the minor versions must agree"
        )
        hint = f"name a Python {versions[2]} of the executors as `spark.pyspark.python` in [spark.conf], or {_PACK}"
        return RunError(message, hint=hint)
    if program := _NO_PYTHON.search(text):
        message = f"executors cannot start Python: there is no {redact(program[1])}"
        return RunError(message, hint=f"name theirs as `spark.pyspark.python` in [spark.conf], or {_PACK}")
    missing = _MISSING.search(text)
    if missing is None:
        return None
    message = (
        f"a task needs the Python package {missing[1] or missing[2]!r}, which the Python of executors does not have"
    )
    return MissingExtraError(message, hint=f"install it there (the image or environment of executors), or {_PACK}")


def _reason(text: str) -> FlowError:
    ours = _OURS.search(text)
    if ours:
        fact = redact(ours[2].split("\n\n")[0].strip())
        if ours[1] == MissingExtraError.__name__:
            return MissingExtraError(f"on an executor: {fact}", hint=f"install it there, or {_PACK}")
        what, _, hint = fact.partition("\nHint: ")
        return _kind(ours[1])(what, hint=hint or None)
    raised = _RAISED.search(text)
    if raised:
        return RunError(redact(raised[1].strip()))
    return RunError(redact(_error_text(text)))


def _kind(name: str) -> type[RunError]:
    """Return the class of an error of ours by its name, so that callers decide by it as if it had happened here."""
    kind = getattr(errors, name, RunError)
    if issubclass(kind, RunError):
        return kind
    # What passes by itself is tried again, wherever it happened.
    return TransientError if kind.transient else RunError


def raised_in_python(text: str) -> tuple[str, str] | None:
    """Return the kind and the text of the error that Python code of a task ended in, if it did."""
    matches = _PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    return (matches[-1][0], matches[-1][1].strip()) if matches else None


def _error_text(text: str) -> str:
    if python := raised_in_python(text):
        name, fact = python
        return f"a task failed: {fact} ({name})"
    java = [_fact(name, fact) for name, fact in _JAVA.findall(text)]
    file = _FILE.search(text)
    if file:
        return f"file {file[1]} cannot be read: {java[-1] if java else 'it is malformed'}"
    if java and "stage failure" in text:
        return f"a task failed: {java[-1]}"
    first = _FIRST.match(text)
    return f"Spark could not run the load: {java[-1] if java else _fact('', first[1] if first else 'unknown')}"


def _fact(name: str, text: str) -> str:
    """Return Java's message in one line: the values of a list behind it, and in brackets the condition or class."""
    head, *values = (line.strip() for line in text.split("\n - "))
    head = " ".join(head.split("\n"))
    sentence = f"{head} {', '.join(values)}" if values else head
    condition = _CONDITION.match(sentence)
    if condition:
        name, sentence = condition[1], condition[2]
    return f"{sentence} ({name})" if sentence and name else sentence or name


def _is_spark(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j", "grpc")
