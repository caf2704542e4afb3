"""Inspects executors: one task for each slot reports its Python, its packages, its clock and what it reaches."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from ematix_flow.run.spark.slots import session_slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

_CONNECT_SECONDS = 3.0
_STAY_SECONDS = 1.0
"""How long a task stays: long enough for the others to be given to other slots."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What every task has to report."""

    packages: tuple[str, ...]
    endpoints: Mapping[str, tuple[str, int]]
    """Name of a connection -> host and port."""


def probe_executors(spark: SparkSession, questions: Questions) -> list[dict[str, Any]]:
    """Return the report of each executor, and by how many seconds its clock is outside of the time of the request."""
    slots = session_slots(spark)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            report_json = json.dumps(answer(questions))
            time.sleep(_STAY_SECONDS)
            yield pa.RecordBatch.from_pydict({"said": [report_json]})

    begun = time.time()
    rows = spark.range(0, slots, 1, slots).mapInArrow(task, "said string").collect()
    ended = time.time()
    reports = [json.loads(row["said"]) for row in rows]
    first = {(one["host"], one["process"]): one for one in reversed(reports)}
    return [one | {"skew": max(0.0, begun - one["now"], one["now"] - ended)} for one in first.values()]


def answer(questions: Questions) -> dict[str, Any]:
    """Return what this process is and reaches."""
    return {
        "host": socket.gethostname(),
        "process": os.getppid(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: installed(name) for name in questions.packages},
        "now": time.time(),
        "unreached": {name: why for name, endpoint in questions.endpoints.items() if (why := _unreached(*endpoint))},
        "scratch": tempfile.gettempdir(),
        "scratch_error": _scratch_error(),
    }


def installed(name: str) -> str | None:
    """Return the version of a package in this Python."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _unreached(host: str, port: int) -> str:
    """Return why no server answers at an address; empty where one does."""
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        return f"{host}:{port} {error.strerror or error}"
    return ""


def _scratch_error() -> str:
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return str(error)
    return ""
