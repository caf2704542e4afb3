"""The five engines that a shape must mean the same on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plan.sql import engines

if TYPE_CHECKING:
    from tests.plan.sql.engines import Engine


@pytest.fixture(
    params=[
        "sqlite",
        "duckdb",
        pytest.param("postgres", marks=pytest.mark.service),
        pytest.param("mysql", marks=pytest.mark.service),
        pytest.param("spark", marks=pytest.mark.spark),
    ]
)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Return each engine in turn."""
    match request.param:
        case "postgres":
            return engines.postgres_engine(request.getfixturevalue("postgres_url"))
        case "mysql":
            return engines.mysql_engine(request.getfixturevalue("mysql_url"))
        case "spark":
            return engines.spark_engine(request.getfixturevalue("spark"))
        case "duckdb":
            return engines.duckdb_engine()
    return engines.sqlite_engine()
