"""Gives a run its Spark session, built when the first load needs it; settings come from files and environment."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.places import project_file, user_file
from ematix_flow.declare.spark_settings import settings_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.engine.options import Options


def spark_settings() -> SparkSettings:
    """Give the settings of the project file, the user file and the environment, the nearest one winning."""
    table: dict[str, Any] = {}
    for file in (user_file(), project_file()):
        if file.is_file():
            table |= tomllib.loads(file.read_text(encoding="utf-8")).get("spark", {})
    return settings_from(table, os.environ)


def spark_is_chosen(options: Options) -> bool:
    """Say whether the user named the Spark that loads run on, or left it to us."""
    return options.spark is not None or spark_settings().chosen


def session_for(options: Options) -> Callable[..., Any]:
    """Give the function that a load calls when it needs Spark; it may name modules for workers to have at hand."""

    def session(imports: Sequence[str] = ()) -> Any:
        if options.spark is not None:
            return options.spark
        from ematix_flow.run.session import spark_session

        return spark_session(replace(spark_settings(), worker_imports=tuple(imports)))

    return session
