"""Expressions that DuckDB, PostgreSQL and MariaDB evaluate themselves, and Spark after a translation: both return the same."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow.connect.mysql.database import MySQL
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.declare.connection.registry import MySQLConnection, PostgresConnection
from tests.run.test_dialects import _CREATED, _THREE, SOURCE, THREE, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NUMBERS = """
    -a % 3 ; mod(-a, 3) ; round(m) ; round(-2.5) ; round(2.5) ; ceil(x) ; floor(-x) ; floor(x + 1) / 2 ; ceil(a) ; abs(-m) ; power(a, b)
    floor(sqrt(x)) / 2 ; ceil(-sqrt(x)) ; floor(floor(exp(x)) / 2) ; ceil(abs(-m)) ; floor(power(10e0, 300))
    sqrt(a) ; ln(b) ; exp(1) ; degrees(1) ; atan2(1, 2) ; a & b ; sign(-a) ; greatest(a, 9) ; least(a, b) ; nullif(a, 7) ; coalesce(n, t)
    CAST(2.675 AS DECIMAL(10, 2)) ; CAST(2.5 AS DECIMAL(10, 0)) ; CAST(m * 1.0 AS DECIMAL(10, 4)) ; m * m ; a + m
"""
LIKE_POSTGRES = """
    x::numeric ; '1.55'::numeric ; trunc(-x) ; trunc(-2.567) ; trunc(m) / 2 ; round(m, 1) ; cbrt(27) ; log(a * 100 / 7) ; log(2, 8)
    trunc(trunc(-exp(x)) / 2) ; trunc(abs(-m)) / 2
    a / b + a % b ; CAST(x AS BIGINT) ; CAST(x * 1.0 AS BIGINT) ; CAST(m AS INT) ; CAST(-x AS INT) ; floor(x * 1e300) ; x ^ 2
    greatest(a, NULL, 9) ; least(NULL, a) ; a IS DISTINCT FROM NULL ; n IN ('a', NULL) ; a NOT IN (1, NULL) ; coalesce(NULL, 1)
    position('' IN t) ; strpos(t, 'z') ; substring(t FROM 2 FOR 3) ; substr(t, 10) ; left(t, 2) ; right(t, 9) ; lpad(t, 7, 'x')
    rpad(t, 3, 'x') ; repeat(t, 2) ; reverse(t) ; replace(t, 'l', '') ; translate(t, 'lo', 'x') ; trim('  a ') ; ascii('a') ; chr(65)
    chr(8364) ; md5('a') ; split_part('a.b.c', '.', 2) ; split_part('a.b', '.', 9) ; split_part('a.b', '.', -1) ; length('ü')
    starts_with(t, 'He') ; concat_ws(',', 'a', NULL, 'b') ; concat('a', 1, NULL) ; concat('a', m) ; concat('a', d) ; concat('a', s)
    'a' || NULL || 'b' ; a || t ; t || m ; t LIKE 'h%' ; t NOT LIKE 'H%' ; 'a|b' LIKE 'a||b' ESCAPE '|' ; 'a_b' LIKE 'a\\_b'
    'axb' LIKE 'a_b' ; 'a\\b' LIKE 'a\\\\b' ; 'a\\b' ; t ILIKE 'h%' ; t LIKE '' ; regexp_replace(t, '(l)', '<\\1>', 'g')
    regexp_replace(t, '(l)', '$1\\\\1', 'g') ; regexp_replace(t, '(l)', '\\\\\\1\\\\', 'g')
    CAST(true AS TEXT) ; true::text ; CAST('t' AS BOOLEAN) ; CAST('yes' AS BOOLEAN) ; CAST(1 AS BOOLEAN) ; CAST(true AS INT)
    CAST(m AS TEXT) ; CAST(d AS TEXT) ; CAST(s AS TEXT) ; CAST(' 7 ' AS INT) ; CAST('1e3' AS DOUBLE PRECISION) ; t::varchar(9)
    CAST(s AS DATE) ; CAST('2024-01-31' AS TIMESTAMP) ; CAST('2024-01-31 12:00:00+02' AS TIMESTAMPTZ)
    CAST('2024-01-31 12:00:00+02' AS TIMESTAMP) ; d - 1 ; d + 1 ; d - CAST('2024-01-01' AS DATE) ; d + INTERVAL '1 month'
    s - INTERVAL '1 day' ; s + INTERVAL '1 hour 30 minutes' ; s + INTERVAL '90 minutes' ; d > '2024-01-01'
    date_trunc('week', s) ; date_trunc('month', s) ; date_trunc('quarter', s) ; date_trunc('hour', s) ; date_trunc('milliseconds', s)
    extract(year FROM d) / 5 ; extract(week FROM d) ; extract(week FROM CAST('2021-01-03' AS DATE)) ; extract(doy FROM d)
    extract(quarter FROM d) ; extract(dow FROM CAST('2024-02-04' AS DATE)) ; extract(isodow FROM CAST('2024-02-04' AS DATE))
    extract(second FROM s + INTERVAL '1.5 seconds') ; extract(epoch FROM s) / 60 ; floor(extract(epoch FROM s) / 60)
    date_part('dow', d) ; date_part('year', s) / 5 ; date_part('epoch', s)
    l[1] ; l[9] ; l[b] ; l[a] ; l[z] ; l[b + 1] ; l[length('a')] ; l[CAST(b AS INT) + 1] ; l[b + 1] / 2 ; ARRAY[1, 2, 3]
    (ARRAY[ARRAY[1, 2], ARRAY[3, 4]])[1][2] ; (ARRAY[ARRAY[1, 2], ARRAY[3, 4]])[CAST(b AS INT)][1]
    array_position(l, 9) ; array_position(l, 3) ; array_append(l, 5) ; array_to_string(l, ',') ; to_hex(255)
    '{"a": {"b": 1}}'::json -> 'a' ->> 'b' ; '{"a": "b"}'::json ->> 'a' ; '{"a": [1, 2]}'::json ->> 'a' IS NULL
"""
OF: dict[str, str] = {
    "duckdb": f"""
        {NUMBERS} {LIKE_POSTGRES}
        round(x, 0) ; round(x / 10, 1) ; round(2.675e0, 2) ; round(1.005e0, 2) ; round(1234.567e0, -2) ; a // b ; -a // b ; m / b
        strftime(s, '%d.%m.%Y %j %A %a %B %b %I %p %f') ; strftime(s, 'at %H o''clock') ; strptime('31/01/2024', '%d/%m/%Y')
        strptime('1/5/2024 3:4 PM', '%m/%d/%Y %I:%M %p') ; strptime('20240105 0304', '%Y%m%d %H%M') ; strptime('2024 31', '%Y %j')
        strptime('2024-1-5T3:4:5+0200', '%Y-%m-%dT%H:%M:%S%z') ; strptime('2024-01-05 03:04:05-02', '%Y-%m-%d %H:%M:%S%z')
        strptime('2024-01-05 03:04:05 +05:30', '%Y-%m-%d %H:%M:%S %z') ; strftime(s, '%Y年%m月_%d')
        dayname(d) ; monthname(d) ; weekday(d) ; isodow(d) ; dayofweek(d) ; weekofyear(d) ; last_day(d) ; epoch(s) ; to_timestamp(1.5)
        printf('%s-%s', t, n) ; printf('%05d', a) ; regexp_matches(t, 'L', 'i') ; regexp_full_match(t, 'hello', 'i')
        regexp_extract(t, '(l)(o)', 2) ; regexp_extract(t, 'z') ; 'a\\b' LIKE 'a\\b' ; list_contains(l, 9) ; list_position(l, 9)
        list_sort(l) ; list_concat(l, l) ; array_length(l) ; contains(t, 'll') ; ends_with(t, 'lo') ; ifnull(n, 'x') ; unicode('a')
        json_extract_string('{{"a": {{"b": true}}}}', '$.a.b') ; '{{"a": [1, 2]}}' ->> '$.a[0]' ; bit_count(7) ; levenshtein('a', 'b')
        try_cast('x' AS INT) ; a / b ; x % 2 ; string_split(string_split('a:b,c:d', ',')[b], ':')[1] ; [[1, 2], [3, 4]][b][b]
        s + INTERVAL (a) DAY ; d - INTERVAL (a) HOUR ; l[0] ; [{{'p': 1}}, {{'p': 2}}][2]['p']
    """,
    "postgres": f"""
        {NUMBERS} {LIKE_POSTGRES}
        to_char(s, 'YYYY-MM-DD HH24:MI:SS.MS US') ; to_char(s, 'FMDay, FMDD Mon DDD Q') ; to_char(s, 'HH12:MI AM "at"')
        to_date('2024-02-03', 'YYYY-MM-DD') ; to_timestamp('03 Feb 2024', 'DD Mon YYYY') ; to_date('2024-1-5', 'YYYY-MM-DD')
        to_date('20240105', 'YYYYMMDD') ; to_timestamp('2024-1-5 3:4:5', 'YYYY-MM-DD HH24:MI:SS') ; to_char(s, 'YYYY年MM月_DD')
        regexp_replace(t, 'l', '\\&\\&', 'g') ; regexp_replace(t, 'l', '\\0', 'g') ; regexp_replace(t, 'l', '$\\q\\$\\', 'g')
        to_date('2024年1月', 'YYYY年MM月') ; concat('a', true) ; 'a' || true
        format('%s-%s%%', a, n) ; btrim('xyaxy', 'xy') ; regexp_like(t, 'L', 'i') ; regexp_count(t, 'l')
        t !~ 'l' ; t ~* 'L+' ; array_length(l, 1) ; array_length(ARRAY[]::bigint[], 1) ; cardinality(l) ; array_prepend(4, l) ; 3 = ANY(l)
        string_to_array('a.b', '.') ; string_to_array('', '.') ; string_to_array(n, '.') ; cardinality(string_to_array('', '.'))
        (string_to_array((string_to_array('a,b:c', ','))[b], ':'))[2] ; a / nullif(b, 0) ; a # b ; factorial(5) / 7 ; div(a, 2) ; make_date(2024, 2, 3) ; timestamp '2024-01-31 12:00:00+02'
        extract(epoch FROM s)::bigint / 60 ; extract(year FROM d)::text ; (d - '2024-01-01'::date) / 2 ; width_bucket(5, 0, 10, 5) / 2
    """,
    "mysql": f"""
        {NUMBERS}
        round(x) ; round(x / 10, 1) ; a DIV b ; a % z ; a / b ; x / b ; CAST(m AS DECIMAL) ; CAST(x * 1.0 AS SIGNED) ; greatest(a, NULL)
        date_format(s, '%d of %M %Y %j %W %e %p %y %b %a %c %k %l %h %f %T') ; str_to_date('31/01/2024', '%d/%m/%Y')
        from_unixtime(0, '%Y-%i') ; dayname(d) ; monthname(d) ; weekday(d) ; dayofweek(d) ; weekofyear(d) ; dayofyear(d) ; to_days(d)
        datediff(d, '2024-01-01') ; last_day(d) ; date_sub(d, INTERVAL 1 MONTH) ; s + INTERVAL 1 DAY ; extract(second FROM s) ; quarter(d)
        timestampdiff(MONTH, '2024-01-31', '2024-02-29') ; substring(t, -3) ; substring(t, -3, 2) ; substring_index('a.b.c', '.', -1)
        lpad(t, 7, 'x') ; rpad(t, 3, 'x') ; trim(LEADING 'H' FROM t) ; hex(255) ; md5('a') ; concat(a, t, m) ; concat_ws(',', 'a', NULL)
        json_unquote(json_extract('{{"a": "b"}}', '$.a')) ; json_extract('{{"a": 7}}', '$.a') > 5 ; json_extract('{{"a": "b"}}', '$.a') = 'b'
        str_to_date('1/5/2024', '%m/%d/%Y') ; str_to_date('20240105', '%Y%m%d') ; str_to_date('2024-1-5 3:4:5', '%Y-%m-%d %H:%i:%s')
        date_add(s, INTERVAL 90 MINUTE) ; date_add(s, INTERVAL 1 DAY) ; date_sub(s, INTERVAL 1 YEAR) ; date_add(s, INTERVAL -b HOUR)
        date_add(d, INTERVAL 90 MINUTE) ; date_add(d, INTERVAL b HOUR) ; date_sub(d, INTERVAL b + 1 DAY) ; d - INTERVAL b QUARTER
        date_add(d, INTERVAL -1 WEEK) ; date_add('2024-01-31', INTERVAL 1 MONTH) ; date_add('2024-01-31', INTERVAL 1 HOUR)
        date_sub('2024-01-31 10:00:00', INTERVAL 1 DAY) ; timestampadd(DAY, a, d) ; s + INTERVAL 1.5 SECOND
        CAST(s AS DATE) ; CAST(d AS CHAR) ; if(a > 3, 'y', 'n') ; conv('ff', 16, 10)
    """,
}
"""Expressions over one row, between semicolons or at the end of a line."""

TOGETHER = [
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY v)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY v DESC)",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY v)",
    "percentile_disc(0.75) WITHIN GROUP (ORDER BY w)",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY w) FILTER (WHERE v > 1)",
    "count(*) FILTER (WHERE v > 1)",
    "count(DISTINCT v)",
    "stddev(w)",
    "variance(w)",
    "var_pop(w)",
    "corr(v, w)",
    "bool_and(v > 0)",
    "string_agg(CAST(w AS TEXT), '-' ORDER BY w DESC)",
    "avg(v)",
    "sum(w) / 2.0",
]
ROWS = [
    "SELECT v FROM three ORDER BY v",
    "SELECT v FROM three ORDER BY v DESC NULLS LAST",
    "SELECT w, row_number() OVER (ORDER BY v) AS r FROM three ORDER BY r",
    "SELECT v, lag(w) OVER (ORDER BY v) AS r, rank() OVER (ORDER BY w) AS q FROM three ORDER BY v",
    "SELECT v, sum(w) OVER (ORDER BY v) AS r FROM three ORDER BY r",
    "SELECT array_agg(w) AS r FROM three WHERE w > 9",
    "SELECT string_agg(CAST(w AS TEXT), '-') AS r FROM three WHERE w > 9",
    "SELECT v FROM three EXCEPT SELECT 2 ORDER BY v",
    "SELECT w, count(*) AS c FROM three GROUP BY 1 ORDER BY 1",
    "SELECT w FROM three WHERE v NOT IN (1, NULL)",
    "SELECT q.e / 2 AS r, floor(q.e) / 2 AS f FROM (SELECT v * 7 / 2 AS e FROM three) q ORDER BY r",
    "SELECT w, e FROM three LEFT JOIN LATERAL unnest(CASE WHEN v > 1 THEN ARRAY[v, 5] END) AS u(e) ON true ORDER BY 1, 2",
    "SELECT w, e FROM three JOIN unnest(ARRAY[1, 2, 3]) AS u(e) ON u.e > w WHERE v > 0 ORDER BY 1, 2",
    "SELECT v, e, n FROM three CROSS JOIN unnest(ARRAY[7, 9]) WITH ORDINALITY AS u(e, n) ORDER BY 1, 3",
    "SELECT q.v, e, n * 2 AS r FROM three q LEFT JOIN unnest(ARRAY[q.v, 9]) WITH ORDINALITY AS u(e, n) ON true ORDER BY 1, 3",
    "SELECT e, n FROM (SELECT u.e, u.n FROM unnest(ARRAY[7, 9]) WITH ORDINALITY AS u(e, n)) q CROSS JOIN (SELECT w FROM three) t ORDER BY 1, 2",
    "WITH q AS (SELECT round(w * 1.25, 1) AS e FROM three) SELECT CAST(e AS BIGINT) AS r FROM q ORDER BY r",
]
ROWS_OF = {
    "duckdb": [
        *ROWS,
        "SELECT arg_max(v, w) AS r FROM three WHERE w = 1",
        "SELECT quantile_cont(v, 0.25) AS r, quantile_disc(v, 0.75) AS q, quantile(v, 0.75) AS o FROM three",
        "SELECT v, row_number() OVER (ORDER BY v DESC) AS r FROM three ORDER BY r",
    ],
    "postgres": [
        *ROWS,
        "SELECT DISTINCT ON (w) w, v FROM three ORDER BY w, v DESC",
        "SELECT v FROM three ORDER BY v DESC",
    ],
    "mysql": [
        "SELECT v FROM three ORDER BY v",
        "SELECT v FROM three ORDER BY v DESC",
        "SELECT std(w) > 0.47 AS r FROM three",
    ],
}


def expressions(dialect: str) -> list[str]:
    """Return the expressions of a dialect."""
    return [one.strip() for line in OF[dialect].splitlines() for one in line.split(" ; ") if one.strip()]


def queries(dialect: str) -> list[str]:
    """Return one query with all expressions, one with all aggregates, and those of several rows."""
    row = ", ".join(f"{one} AS c{number}" for number, one in enumerate(expressions(dialect)))
    together = ", ".join(f"{one} AS c{number}" for number, one in enumerate(TOGETHER))
    aggregates = [f"SELECT {together} FROM three"] if dialect != "mysql" else []
    return [f"SELECT {row} FROM source", *aggregates, *ROWS_OF[dialect]]


def plain(value: Any) -> Any:
    """Return a value as it is compared: nine digits of a number, instants in UTC."""
    match value:
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(dt.UTC).replace(tzinfo=None)
        case list() | tuple():
            return [plain(one) for one in value]
        case Decimal() | float() | int():
            return float(f"{value:.9g}")
    return value


def compare(spark: SparkSession, dialect: str, results: list[list[Any]]) -> None:
    """Check that Spark returns what the system has returned for the queries of its dialect."""
    different = []
    for sql, theirs in zip(queries(dialect), results, strict=True):
        rows, names = (SOURCE, expressions(dialect)) if sql.endswith(" FROM source") else (THREE, [])
        ours = on_spark(spark, sql.replace(" FROM three", " FROM source"), dialect, rows)
        values = (
            list(zip(names, plain(ours[0]), plain(theirs[0]), strict=True))
            if names
            else [(sql, plain(ours), plain(theirs))]
        )
        different += [(name, one, other) for name, one, other in values if one != other]
    assert different == []


def test_spark_returns_what_duckdb_returns(spark: SparkSession) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("source", SOURCE)
        connection.register("three", THREE)
        results = [connection.execute(sql).fetchall() for sql in queries("duckdb")]
    compare(spark, "duckdb", results)


@pytest.mark.service
def test_spark_returns_what_postgresql_returns(spark: SparkSession, postgres_url: str) -> None:
    created = _CREATED.format(whole="BIGINT", double="DOUBLE PRECISION", text="TEXT", time="TIMESTAMP")
    with closing(Postgres(PostgresConnection("pg", url=postgres_url)).session()) as session:
        session.execute(created + ", ARRAY[1, NULL, 3]::BIGINT[] AS l")
        session.execute(_THREE.format(whole="BIGINT"))
        results = [list(session.query(sql)) for sql in queries("postgres")]
    compare(spark, "postgres", results)


@pytest.mark.service
def test_spark_returns_what_mysql_returns(spark: SparkSession, mysql_url: str) -> None:
    with closing(MySQL(MySQLConnection("shop", url=mysql_url)).session()) as session:
        session.execute("SET sql_mode = ''")
        session.execute(_CREATED.format(whole="SIGNED", double="DOUBLE", text="CHAR", time="DATETIME"))
        session.execute(_THREE.format(whole="SIGNED"))
        results = [list(session.query(sql)) for sql in queries("mysql")]
    compare(spark, "mysql", results)
