"""Formats of times: what is surely the same in Java's, and what is refused."""

from __future__ import annotations

import pytest

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.stream import spark_sql


@pytest.mark.parametrize(
    ("dialect", "written", "expected"),
    [
        ("postgres", "to_char(s, 'YYYY-MM-DD HH24:MI:SS.MS')", "DATE_FORMAT(s, 'yyyy-MM-dd HH:mm:ss.SSS')"),
        ("postgres", "to_char(s, 'FMDay, FMDD Mon DDD')", "DATE_FORMAT(s, 'EEEE, d MMM DDD')"),
        ("postgres", "to_char(s, 'yyyy-mm-dd\"T\"hh24')", r"DATE_FORMAT(s, 'yyyy-MM-dd\'T\'HH')"),
        ("postgres", "to_timestamp(t, 'DD Mon YYYY')", "TO_TIMESTAMP(t, 'd MMM yyyy')"),
        ("postgres", "to_char(s, 'YYYY年MM月_DD')", "DATE_FORMAT(s, 'yyyy年MM月_dd')"),
        ("datafusion", "to_char(s, '%Y-%m-%d %H%.3f')", "DATE_FORMAT(s, 'yyyy-MM-dd HH.SSS')"),
        ("datafusion", "to_date(t)", "TO_DATE(t)"),
        ("datafusion", "to_timestamp(t)", "CAST(t AS TIMESTAMP)"),
        ("duckdb", "strftime(s, '%j at %Hh')", r"DATE_FORMAT(s, 'DDD \'at\' HH\'h\'')"),
        ("duckdb", "strftime(s, 'of''%H')", r"DATE_FORMAT(s, '\'of\'\'\'HH')"),
        ("mysql", "date_format(s, '%j %i')", "DATE_FORMAT(CAST(s AS TIMESTAMP), 'DDD mm')"),
        ("mysql", "from_unixtime(a, '%Y %%')", r"FROM_UNIXTIME(a, 'yyyy \'%\'')"),
    ],
)
def test_a_format_is_javas(dialect: str, written: str, expected: str) -> None:
    assert spark_sql(f"SELECT {written} AS v FROM source", dialect) == f"SELECT {expected} AS v FROM source"


@pytest.mark.parametrize(
    ("dialect", "written", "expected"),
    [
        ("datafusion", "to_date(t, '%d/%m/%Y')", "TO_DATE(t, 'd/M/yyyy')"),
        ("datafusion", "to_timestamp(t, '%F %T%.3f')", "TO_TIMESTAMP(t, 'yyyy-M-d H:m:s.SSS')"),
        ("postgres", "to_date(t, 'YYYY-MM-DD')", "TO_DATE(t, 'yyyy-M-d')"),
        ("postgres", "to_date(t, 'YYYYMMDD')", "TO_DATE(t, 'yyyyMMdd')"),
        ("mysql", "str_to_date(t, '%m/%d/%Y')", "TO_DATE(t, 'M/d/yyyy')"),
        ("mysql", "str_to_date(t, '%Y-%m-%d %H%i')", "TO_TIMESTAMP(t, 'yyyy-M-d HHmm')"),
        ("duckdb", "strptime(t, '%d%b%Y %I:%M%p')", "TO_TIMESTAMP(t, 'dMMMyyyy h:ma')"),
        ("duckdb", "strptime(t, '%Y%m-%d')", "TO_TIMESTAMP(t, 'yyyyMM-d')"),
        ("duckdb", "strptime(t, '%H1%M-%j')", "TO_TIMESTAMP(t, 'HH1mm-D')"),
    ],
)
def test_a_number_is_read_with_fewer_digits_too_unless_another_is_next_to_it(
    dialect: str, written: str, expected: str
) -> None:
    assert spark_sql(f"SELECT {written} AS v FROM source", dialect) == f"SELECT {expected} AS v FROM source"


def test_an_offset_at_the_end_is_read_with_a_colon_and_without() -> None:
    value = "REGEXP_REPLACE(t, '([+-][0-9]{2}):([0-9]{2})$', '$1$2')"
    expected = f"SELECT TO_TIMESTAMP({value}, 'yyyy-M-d H:m:sx') AS v FROM source"
    assert spark_sql("SELECT strptime(t, '%Y-%m-%d %H:%M:%S%z') AS v FROM source", "duckdb") == expected


@pytest.mark.parametrize(
    ("dialect", "written", "part"),
    [
        ("postgres", "to_char(s, 'Day')", "'D'"),
        ("postgres", "to_char(s, 'IYYY-IW')", "'I'"),
        ("postgres", "to_char(s, 'SSSS')", "'SSSS'"),
        ("postgres", "to_char(s, 'DDth')", "'t'"),
        ("postgres", "to_char(s, 'YYYY\"year\"')", "year"),
        ("postgres", "to_date(t, 'DD/MM/YY')", "'YY'"),
        ("postgres", "to_char(s, t)", "computed"),
        ("datafusion", "to_char(s, '%f')", "'%f'"),
        ("duckdb", "strftime(s, '%V')", "'%V'"),
        ("duckdb", "strftime(s, '%H%z')", "'%z'"),
        ("duckdb", "strptime(t, '%z %Y')", "'%z'"),
        ("datafusion", "to_date(t, t)", "computed"),
        ("mysql", "json_extract(t, '$.a') IN ('b', 'c')", "quotes"),
        ("mysql", "date_format(s, '%D')", "'%D'"),
    ],
)
def test_a_part_without_an_equal_is_refused(dialect: str, written: str, part: str) -> None:
    with pytest.raises(PlanError, match=rf"\({dialect}, line 1, column 8\) cannot be translated: .*{part}"):
        spark_sql(f"SELECT {written} AS v FROM source", dialect)
