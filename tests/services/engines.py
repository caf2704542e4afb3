"""Warm engines of tests: in a folder of their own, and ended with the tests that use them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.warm.client import end_now, join
from ematix_flow.run.warm.state import FOLDER_VARIABLE, living_engines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ematix_flow.run.warm.state import EngineState

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""The variable by which functions of pyspark know that they speak to a server."""

_SET_BY_TESTS = ("EMATIX_FLOW_ENGINE", *(f"EMATIX_FLOW_SPARK_{name}" for name in ("WARM", "PROFILE", "CONF_")))
"""How variables begin that tests/conftest.py sets."""


_FIRST_COMPILER = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
"""For tiny loads, what Java's second compiler does is never worth its time."""


def engines_in(folder: Path) -> list[EngineState]:
    """Return the engines of a folder that live."""
    return [state for _, state in living_engines({FOLDER_VARIABLE: str(folder)})]


def end_engines(folder: Path) -> None:
    """End the engines of a folder."""
    for state in engines_in(folder):
        end_now(state)


def surroundings(folder: Path) -> dict[str, str]:
    """Return the environment as a person has it: rows are moved by Spark, and commands share the engine of a folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SET_BY_TESTS)}
    return {**environment, FOLDER_VARIABLE: str(folder)}


@contextmanager
def shared_session(folder: Path) -> Iterator[SparkSession]:
    """Return a session on the engine of a folder, which the first one starts; functions of pyspark need `CONNECT_MODE`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folder))
        session, lease = join(SparkSettings(shared=True, conf=_FIRST_COMPILER))
    try:
        yield session
    finally:
        if lease.alive:
            session.stop()
        lease.release()
