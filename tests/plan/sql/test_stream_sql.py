"""The SQL of streams: read in five dialects, translated into Spark's, and refused where that cannot mean the same."""

from __future__ import annotations

import pytest

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.stream import mentioned, row_by_row, spark_sql, tables_in


@pytest.mark.parametrize(
    ("written", "dialect", "expected"),
    [
        ("SELECT id FROM source", "datafusion", "SELECT id FROM source"),
        ('SELECT "id" AS "Key" FROM source', "datafusion", "SELECT `id` AS `Key` FROM source"),
        ("SELECT make_array(a, b) AS c FROM source", "datafusion", "SELECT ARRAY(a, b) AS c FROM source"),
        ("SELECT strpos(a, 'x') AS c FROM source", "datafusion", "SELECT LOCATE('x', a) AS c FROM source"),
        ("SELECT to_timestamp_millis(a) AS c FROM source", "datafusion", "SELECT TIMESTAMP_MILLIS(a) AS c FROM source"),
        ("SELECT list_value(a) AS c FROM source", "duckdb", "SELECT ARRAY(a) AS c FROM source"),
        ("SELECT nvl(a, 0) AS c FROM source", "spark", "SELECT COALESCE(a, 0) AS c FROM source"),
        ("SELECT a::DOUBLE AS c FROM source", "duckdb", "SELECT CAST(a AS DOUBLE) AS c FROM source"),
        (
            "SELECT array_position(l, a) AS c FROM source",
            "postgres",
            "SELECT NULLIF(ARRAY_POSITION(l, a), 0) AS c FROM source",
        ),
        (
            "SELECT list_distinct(l) AS c FROM source",
            "duckdb",
            "SELECT ARRAY_DISTINCT(ARRAY_COMPACT(l)) AS c FROM source",
        ),
        ("SELECT to_hex(a) AS c FROM source", "postgres", "SELECT LOWER(HEX(a)) AS c FROM source"),
        ("SELECT to_hex(a) AS c FROM source", "duckdb", "SELECT HEX(a) AS c FROM source"),
        ("SELECT chr(8364) AS c FROM source", "postgres", "SELECT '€' AS c FROM source"),
        ("SELECT a LIKE 'b\\_' AS c FROM source", "duckdb", r"SELECT a LIKE 'b\\\\_' AS c FROM source"),
        ("SELECT a LIKE 'b\\_' AS c FROM source", "postgres", r"SELECT a LIKE 'b\\_' AS c FROM source"),
        (
            "SELECT regexp_matches(a, 'b', 'i') AS c FROM source",
            "duckdb",
            "SELECT a RLIKE CONCAT('(?i)', 'b') AS c FROM source",
        ),
        (
            "SELECT printf('%s', a) AS c FROM source",
            "duckdb",
            "SELECT IF(a IS NULL, NULL, PRINTF('%s', a)) AS c FROM source",
        ),
        (
            "SELECT a::jsonb -> 'b' ->> 'c' AS c FROM source",
            "postgres",
            "SELECT GET_JSON_OBJECT(GET_JSON_OBJECT(a, '$.b'), '$.c') AS c FROM source",
        ),
        (
            "SELECT json_unquote(json_extract(a, '$.b')) AS c FROM source",
            "mysql",
            "SELECT GET_JSON_OBJECT(a, '$.b') AS c FROM source",
        ),
        (
            "SELECT json_extract(a, '$.b') > 5 AS c FROM source",
            "mysql",
            "SELECT GET_JSON_OBJECT(a, '$.b') > 5 AS c FROM source",
        ),
        (
            "SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY a DESC) AS c FROM source",
            "postgres",
            "SELECT PERCENTILE(a, 1 - (0.25)) AS c FROM source",
        ),
        ("SELECT quantile_cont(a, 0.5) AS c FROM source", "duckdb", "SELECT PERCENTILE(a, 0.5) AS c FROM source"),
        (
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a) AS c FROM source",
            "postgres",
            "SELECT GET(SORT_ARRAY(COLLECT_LIST(a), TRUE), CAST(GREATEST(CEIL(CAST(0.5 AS DOUBLE) * COUNT(a)), 1) - 1 AS INT)) AS c FROM source",
        ),
        (
            "SELECT list(a) AS c FROM source",
            "duckdb",
            "SELECT IF(COUNT(*) = 0, NULL, COLLECT_LIST(NAMED_STRUCT('v', a)).v) AS c FROM source",
        ),
        (
            "SELECT arg_max(a, b) AS c FROM source",
            "duckdb",
            "SELECT MAX_BY(a, IF(a IS NULL, NULL, b)) AS c FROM source",
        ),
        (
            "SELECT date_part('dow', d) AS c FROM source",
            "duckdb",
            "SELECT (EXTRACT(DOW FROM d) - 1) AS c FROM source",
        ),
        ("SELECT weekday(d) AS c FROM source", "duckdb", "SELECT (DAYOFWEEK(d) - 1) AS c FROM source"),
        ("SELECT isodow(d) AS c FROM source", "duckdb", "SELECT EXTRACT(DOW_ISO FROM d) AS c FROM source"),
        ("SELECT monthname(d) AS c FROM source", "duckdb", "SELECT DATE_FORMAT(d, 'MMMM') AS c FROM source"),
        ("SELECT dayname(d) AS c FROM source", "mysql", "SELECT DATE_FORMAT(d, 'EEEE') AS c FROM source"),
        (
            "SELECT extract(second FROM s) AS c FROM source",
            "duckdb",
            "SELECT CAST(EXTRACT(SECOND FROM s) AS INT) AS c FROM source",
        ),
        (
            "SELECT datediff(d, '0000-01-01') AS c FROM source",
            "mysql",
            "SELECT (DATEDIFF(d, '0000-01-01') - 1) AS c FROM source",
        ),
        ("SELECT a::NUMERIC AS c FROM source", "postgres", "SELECT CAST(a AS DECIMAL(38, 18)) AS c FROM source"),
        ("SELECT a::NUMERIC(9) AS c FROM source", "postgres", "SELECT CAST(a AS DECIMAL(9)) AS c FROM source"),
        ("SELECT a::DECIMAL AS c FROM source", "datafusion", "SELECT CAST(a AS DECIMAL(38, 10)) AS c FROM source"),
        ("SELECT a::NUMERIC AS c FROM source", "duckdb", "SELECT CAST(a AS DECIMAL(18, 3)) AS c FROM source"),
        ("SELECT CAST(a AS DECIMAL) AS c FROM source", "mysql", "SELECT CAST(a AS DECIMAL(10, 0)) AS c FROM source"),
    ],
)
def test_a_query_is_translated(written: str, dialect: str, expected: str) -> None:
    assert spark_sql(written, dialect).upper() == expected.upper()


def test_an_aggregate_of_the_user_gets_the_rows_of_its_group() -> None:
    translated = spark_sql("SELECT k, vwap(p, q) AS v FROM source GROUP BY k", "datafusion", frozenset({"vwap"}))
    assert "VWAP(COLLECT_LIST(NAMED_STRUCT('a0', p, 'a1', q)))".lower() in translated.lower()


@pytest.mark.parametrize(
    ("dialect", "written", "location", "reason"),
    [
        (
            "datafusion",
            "SELECT arrow_cast(a, 'Int8') FROM source",
            "line 1, column 8",
            r"arrow_cast\(\) has no translation",
        ),
        ("datafusion", "SELECT a,\n  regexp_match(a, 'x') FROM source", "line 2, column 3", "has no translation"),
        ("datafusion", "SELECT regexp_replace(a, 'x', 'y') FROM source", "line 1, column 8", "the first match only"),
        ("postgres", "SELECT a AT TIME ZONE 'UTC' FROM source", "line 1, column 8", "AT TIME ZONE"),
        ("postgres", "SELECT substr(a, 0, 2) FROM source", "line 1, column 8", "below 1"),
        ("postgres", "SELECT sha256(a) FROM source", "line 1, column 8", "bytes"),
        ("postgres", "SELECT array_agg(a ORDER BY b) FROM source", "line 1, column 8", "without ORDER BY"),
        ("postgres", "SELECT extract(century FROM a) FROM source", "line 1, column", "CENTURY has no translation"),
        ("postgres", "SELECT a,\n\n trunc(b, 2) FROM source", "line 3, column", "decimals"),
        ("duckdb", "SELECT a[-1] FROM source", "line 1, column 8", "from its end"),
        ("postgres", "SELECT a[1:2] FROM source", "line 1, column 8", "no such notation"),
        ("postgres", "SELECT date_trunc('decade', a) FROM source", "line 1, column 8", "DECADE has no translation"),
        ("postgres", "SELECT date_trunc('day', a, 'UTC') FROM source", "line 1, column 8", "in a zone"),
        ("postgres", "SELECT CAST(a AS TIME) FROM source", "line 1, column", "no time without a day"),
        ("duckdb", "SELECT format('{}', a) FROM source", "line 1, column 8", "no translation but for %s"),
        ("postgres", "SELECT format('%10s', a) FROM source", "line 1, column 8", "no translation but for %s"),
        ("postgres", "SELECT regexp_like(a, 'b', 'n') FROM source", "line 1, column 8", "only i and c"),
        ("postgres", "SELECT a -> 'b' FROM source", "line 1, column 8", "quotes around a text"),
        ("mysql", "SELECT json_extract(a, '$.b') FROM source", "line 1, column 8", "quotes around a text"),
        ("duckdb", "SELECT skewness(a) FROM source", "line 1, column 8", "corrects it"),
        (
            "postgres",
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a) FILTER (WHERE b) FROM source",
            "line 1, column",
            "several shares",
        ),
        ("duckdb", "SELECT date_part(a, b) FROM source", "line 1, column 8", "computed"),
        ("mysql", "SELECT extract(week FROM a) FROM source", "line 1, column", "WEEK has no translation"),
        ("duckdb", "SELECT date_diff('month', a, b) FROM source", "line 1, column 8", "counts the boundaries"),
        ("mysql", "SELECT CAST(a AS UNSIGNED) FROM source", "line 1, column", "without a sign"),
        ("mysql", "SELECT date_add(a, INTERVAL '1:30' HOUR_MINUTE) FROM source", "line 1, column", "HOUR_MINUTE"),
        ("postgres", "SELECT substring(a FROM 'l+') FROM source", "line 1, column", "a pattern"),
        ("duckdb", "SELECT unnest(a), unnest(b) + 1 FROM source", "line 1, column", "side by side"),
        ("postgres", "SELECT v FROM source LEFT JOIN unnest(a) AS u(v) ON v > 1", "line 1, column", "a condition"),
        (
            "postgres",
            "SELECT v FROM source CROSS JOIN unnest(a) AS u(v) RIGHT JOIN t ON t.id = source.id",
            "line 1, column",
            "RIGHT or FULL JOIN",
        ),
        (
            "postgres",
            "SELECT v FROM unnest(a, b) WITH ORDINALITY AS u(v, w, n)",
            "line 1, column",
            "positions in several lists",
        ),
    ],
)
def test_what_spark_cannot_mean_is_refused_with_its_place(
    dialect: str, written: str, location: str, reason: str
) -> None:
    with pytest.raises(PlanError, match=rf"\({dialect}, {location}.*cannot be translated.*{reason}"):
        spark_sql(written, dialect)


def test_sql_that_cannot_be_read_is_refused_with_its_place() -> None:
    with pytest.raises(PlanError, match="cannot be read as mysql, line 2, column"):
        spark_sql("SELECT a,\n (b FROM source", "mysql")


@pytest.mark.parametrize("written", ["SELECT FROM WHERE", "DROP TABLE x", "SELECT 1; SELECT 2"])
def test_anything_but_one_query_is_refused(written: str) -> None:
    with pytest.raises(PlanError):
        spark_sql(written, "datafusion")


def test_the_tables_and_columns_of_a_query_are_known() -> None:
    sql = "WITH mine AS (SELECT a FROM source) SELECT mine.a, u.b FROM mine JOIN users u ON u.id = mine.a"
    assert tables_in(sql, "datafusion") == {"source", "users"}
    assert mentioned(sql, "datafusion") == {"a", "b", "id"}


@pytest.mark.parametrize(
    ("written", "alone"),
    [
        ("SELECT a + 1 AS b FROM source WHERE a > 0", True),
        ("SELECT s.a FROM source s JOIN users u ON u.id = s.a", True),
        ("SELECT COUNT(*) FROM source", False),
        ("SELECT DISTINCT a FROM source", False),
        ("SELECT a FROM source ORDER BY a LIMIT 1", False),
        ("SELECT mine(a) FROM source", False),
    ],
)
def test_rows_that_depend_on_others_are_told(written: str, alone: bool) -> None:
    assert row_by_row(written, "datafusion", frozenset({"mine"})) is alone
