"""Expressions of users that another system evaluates than the one they were written for."""

from __future__ import annotations

import pytest

from ematix_flow.plan.sql.user.query import read_expression


@pytest.mark.parametrize(
    ("written", "written_in", "dialect", "expected"),
    [
        ("a::NUMERIC", "postgres", "duckdb", "CAST(a AS DECIMAL(38, 18))"),
        ("TRY_CAST(a AS DECIMAL)", "spark", "duckdb", "TRY_CAST(a AS DECIMAL(10, 0))"),
        ("CAST(a AS DECIMAL)", "mysql", "postgres", "CAST(a AS DECIMAL(10, 0))"),
        ("a::NUMERIC", "postgres", "postgres", "CAST(a AS DECIMAL)"),
    ],
)
def test_decimals_have_the_digits_that_were_meant(written: str, written_in: str, dialect: str, expected: str) -> None:
    assert read_expression(written, written_in, dialect).sql(dialect=dialect) == expected
