"""Expressions of users that another system evaluates than the one they were written for."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pytest

from ematix_flow.plan.sql.user.query import read_expression


@pytest.mark.parametrize(
    ("written", "written_in", "dialect", "expected"),
    [
        ("a::NUMERIC", "postgres", "duckdb", "CAST(a AS DECIMAL(38, 9))"),
        ("a::NUMERIC", "postgres", "spark", "CAST(a AS DECIMAL(38, 18))"),
        ("TRY_CAST(a AS DECIMAL)", "spark", "duckdb", "TRY_CAST(a AS DECIMAL(10, 0))"),
        ("CAST(a AS DECIMAL)", "mysql", "postgres", "CAST(a AS DECIMAL(10, 0))"),
        ("a::NUMERIC", "postgres", "postgres", "CAST(a AS DECIMAL)"),
    ],
)
def test_decimals_have_the_digits_that_were_meant(written: str, written_in: str, dialect: str, expected: str) -> None:
    assert read_expression(written, written_in, dialect).sql(dialect=dialect) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("119.99::numeric * 3::numeric", Decimal("359.97")),
        ("'1234567.89'::numeric * '1000000.5'::numeric", Decimal("1234568507283.945")),
        ("119.99::numeric * 3::numeric * 1.19::numeric", Decimal("428.3643")),
        ("'0.000001'::numeric * 1e9::numeric", Decimal(1000)),
        ("99999999999::numeric + 0.5", Decimal("99999999999.5")),
    ],
)
def test_products_of_numbers_without_digits_fit_into_decimals_of_duckdb(written: str, expected: Decimal) -> None:
    sql = read_expression(written, "postgres", "duckdb").sql(dialect="duckdb")
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT {sql}").fetchall() == [(expected,)]
