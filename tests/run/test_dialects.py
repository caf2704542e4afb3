"""SQL of other systems means on Spark what it means there: one table of expressions, run by Spark and by the system itself."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from ematix_flow.connect.mysql.database import MySQL
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.declare.connection.registry import MySQLConnection, PostgresConnection
from ematix_flow.declare.stream.udf import udf
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.stream import row_by_row, spark_sql
from ematix_flow.run.read.infer_messages import TypedRows
from ematix_flow.run.transform.stream_sql import SqlStage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DAY, NOON = dt.date(2024, 1, 31), dt.datetime(2024, 1, 31, 12, 0)  # noqa: DTZ001 - without a zone
SOURCE = pa.table(
    {
        "a": pa.array([7], pa.int64()),
        "b": pa.array([2], pa.int64()),
        "z": pa.array([0], pa.int64()),
        "x": pa.array([2.5], pa.float64()),
        "m": pa.array([Decimal("2.50")], pa.decimal128(10, 2)),
        "t": pa.array(["Hello"], pa.string()),
        "n": pa.array([None], pa.string()),
        "d": pa.array([DAY], pa.date32()),
        "s": pa.array([NOON], pa.timestamp("us")),
        "l": pa.array([[1, None, 3]], pa.list_(pa.int64())),
    }
)

ANYWHERE = [
    ("coalesce(n, t)", "Hello"),
    ("lower(t)", "hello"),
    ("upper(t)", "HELLO"),
    ("a % b", 1),
    ("-a % b", -1),
    ("CASE WHEN n = 'x' THEN 1 ELSE 0 END", 0),
    ("concat_ws('-', t, n, t)", "Hello-Hello"),
    ("substr(t, 2, 3)", "ell"),
    ("a + 1", 8),
]
LIKE_POSTGRES = [
    ("strpos(t, 'l')", 3),
    ("concat(t, n)", "Hello"),
    ("t || n", None),
    ("log(a * 100 / 7)", 2),
    ("regexp_replace(t, '(l)', '<\\1>', 'g')", "He<l><l>o"),
    ("regexp_replace(t, 'L', '$', 'gi')", "He$$o"),
    ("extract(dow FROM d)", 3),
    ("extract(isodow FROM d)", 3),
    ("extract(epoch FROM s)", 1706702400),
    ("l[1]", 1),
    ("l[9]", None),
    ("greatest(a, NULL)", 7),
    ("t IS DISTINCT FROM n", True),
    ("split_part(t, 'e', 2)", "llo"),
    ("t ILIKE 'h%'", True),
    ("s + INTERVAL '1 month'", dt.datetime(2024, 2, 29, 12, 0)),  # noqa: DTZ001
    ("date_trunc('month', s)", dt.datetime(2024, 1, 1)),  # noqa: DTZ001
]
ROUNDING = [
    ("CAST(x AS BIGINT)", 2),
    ("CAST(x + 1 AS BIGINT)", 4),
    ("CAST(m AS BIGINT)", 3),
    ("CAST(2.5 AS INT)", 3),
    ("d - CAST('2024-01-01' AS DATE)", 30),
    ("d + INTERVAL '1 day'", dt.datetime(2024, 2, 1)),  # noqa: DTZ001
]
CASES: dict[str, list[tuple[str, Any]]] = {
    "datafusion": [
        *ANYWHERE,
        *LIKE_POSTGRES,
        ("a / b", 3),
        ("-a / b", -3),
        ("a / b / b", 1),
        ("a / x", 2.8),
        ("7 / 2", 3),
        ("half(a) / b", 1),
        ("CAST(x AS BIGINT)", 2),
        ("CAST(x + 1 AS BIGINT)", 3),
        ("make_array(a, b)", [7, 2]),
        ("nvl(n, t)", "Hello"),
        ("to_timestamp(a)", dt.datetime(1970, 1, 1, 0, 0, 7, tzinfo=dt.UTC)),
        ("to_timestamp('2024-01-31T12:00:00Z')", NOON.replace(tzinfo=dt.UTC)),
    ],
    "postgres": [
        *ANYWHERE,
        *LIKE_POSTGRES,
        *ROUNDING,
        ("a / b", 3),
        ("a / x", 2.8),
        ("9007199254740993 / 1", 9007199254740993),
        ("(a + b) / b", 4),
        ("round(x)", 2),
        ("round(m)", 3),
        ("CAST(t AS VARCHAR(3))", "Hel"),
        ("t ~ 'l+'", True),
        ("t ~* 'L+'", True),
        ("position('l' IN t)", 3),
        ("ltrim(t, 'H')", "ello"),
        ("trunc(x)", 2),
        ("d + 1", dt.date(2024, 2, 1)),
        ("a::int / 2", 3),
    ],
    "duckdb": [
        *ANYWHERE,
        *LIKE_POSTGRES,
        *ROUNDING,
        ("a / b", 3.5),
        ("m / b", 1.25),
        ("a // b", 3),
        ("-a // b", -3),
        ("instr(t, 'l')", 3),
        ("list_value(a, b)", [7, 2]),
        ("ifnull(n, t)", "Hello"),
        ("dayofweek(d)", 3),
        ("date_diff('day', d, CAST('2024-02-01' AS DATE))", 1),
        ("date_diff('day', s, CAST('2024-02-01 01:00:00' AS TIMESTAMP))", 1),
        ("regexp_extract(t, 'l+')", "ll"),
        ("regexp_matches(t, 'l+')", True),
        ("regexp_full_match(t, 'l+')", False),
        ("try_cast(t AS INT)", None),
        ("epoch(s)", 1706702400),
        ("round(x)", 3),
    ],
    "mysql": [
        *ANYWHERE,
        ("a / b", Decimal("3.5000")),
        ("1 / 3", Decimal("0.3333")),
        ("a / z", None),
        ("a DIV b", 3),
        ("a DIV z", None),
        ("a % z", None),
        ("x / z", None),
        ("CAST(x AS SIGNED)", 2),
        ("CAST(x + 1 AS SIGNED)", 4),
        ("CAST(m AS SIGNED)", 3),
        ("concat(t, n)", None),
        ("instr(t, 'l')", 3),
        ("locate('l', t)", 3),
        ("ifnull(n, t)", "Hello"),
        ("greatest(a, NULL)", None),
        ("least(a, b)", 2),
        ("length('ü')", 2),
        ("char_length('ü')", 1),
        ("CAST(t AS CHAR(3))", "Hel"),
        ("log(1)", 0),
        ("dayofweek(d)", 4),
        ("datediff(d, '2024-01-01')", 30),
        ("date_add(d, INTERVAL 1 DAY)", dt.date(2024, 2, 1)),
        ("regexp_replace(t, '(l)', '<>')", "He<><>o"),
        ('"a text"', "a text"),
    ],
    "spark": [
        ("a / b", 3.5),
        ("instr(t, 'l')", 3),
        ("nvl(n, lcase(t))", "hello"),
        ("ifnull(n, ucase(t))", "HELLO"),
        ("concat(t, n)", None),
        ("expr('a + 1')", 8),
        ("expr(a)", 7),
        ("array(a, b)[0]", 7),
        ("CAST(x + 1 AS INT)", 3),
    ],
}
LISTS = {
    "datafusion": "SELECT array_agg(v) AS r FROM source",
    "duckdb": "SELECT list(v) AS r FROM source",
}
TOGETHER: dict[str, list[tuple[str, Any]]] = {
    "datafusion": [("sum(w) / count(*)", 1), ("avg(w)", 4 / 3), ("count(*) / 2", 1)],
    "postgres": [
        ("sum(w) / count(*)", 4 / 3),
        ("count(*) / 2", 1),
        ("max(v) / 2", 1),
        ("avg(w)", 4 / 3),
        ("stddev(w)", 0.5773502691896257),
        ("string_agg(CAST(v AS TEXT), ',' ORDER BY v DESC)", "2,1"),
        ("count(*) FILTER (WHERE v / 2 = 1)", 1),
    ],
    "duckdb": [("sum(w) / count(*)", 4 / 3), ("count(*) // 2", 1), ("stddev(w)", 0.5773502691896257)],
    "mysql": [
        ("avg(w)", Decimal("1.3333")),
        ("sum(w) / count(*)", Decimal("1.3333")),
        ("group_concat(CAST(w AS CHAR) ORDER BY w DESC SEPARATOR ';')", "2;1;1"),
    ],
}
"""What aggregates return for these rows: v is 2, NULL and 1, and w is 1, 1 and 2."""

THREE = pa.table({"v": pa.array([2, None, 1], pa.int64()), "w": pa.array([1, 1, 2], pa.int64())})
ORDERS = {
    "datafusion": [1, 2, None],
    "postgres": [1, 2, None],
    "duckdb": [1, 2, None],
    "mysql": [None, 1, 2],
    "spark": [None, 1, 2],
}


@udf(args=("Int64",), returns="Int64", name="half")
def half(numbers: pa.Array) -> pa.Array:
    """Return three for everything."""
    return pa.array([3] * len(numbers), pa.int64())


def query(dialect: str, cases: dict[str, list[tuple[str, Any]]] = CASES, source: str = "source") -> str:
    return "SELECT " + ", ".join(f"{sql} AS c{n}" for n, (sql, _) in enumerate(cases[dialect])) + f" FROM {source}"


def on_spark(spark: SparkSession, sql: str, dialect: str, source: pa.Table = SOURCE) -> list[tuple[Any, ...]]:
    stage = SqlStage(lambda: spark, spark_sql(sql, dialect), row_by_row(sql, dialect), (half,))
    rows = stage.rows(TypedRows(source), lenient=False).rows
    return [tuple(row.values()) for row in rows.to_pylist()]


def agree(actual: tuple[Any, ...], cases: list[tuple[str, Any]]) -> None:
    wrong = [
        (sql, one, value)
        for (sql, value), one in zip(cases, actual, strict=True)
        if not (one == value or (isinstance(value, float) and one is not None and float(one) == pytest.approx(value)))
    ]
    assert wrong == []


@pytest.mark.parametrize("dialect", CASES)
def test_spark_returns_what_the_dialect_means(dialect: str, spark: SparkSession) -> None:
    [row] = on_spark(spark, query(dialect), dialect)
    agree(row, CASES[dialect])


def test_the_table_is_what_duckdb_means() -> None:
    with duckdb.connect() as connection:
        connection.register("source", SOURCE)
        connection.register("three", THREE)
        [row] = connection.execute(query("duckdb")).fetchall()
        [together] = connection.execute(query("duckdb", TOGETHER, "three")).fetchall()
    agree(row, CASES["duckdb"])
    agree(together, TOGETHER["duckdb"])


_CREATED = """CREATE TABLE source AS SELECT CAST(7 AS {whole}) AS a, CAST(2 AS {whole}) AS b, CAST(0 AS {whole}) AS z,
CAST(2.5 AS {double}) AS x, CAST(2.50 AS DECIMAL(10, 2)) AS m, CAST('Hello' AS {text}) AS t, CAST(NULL AS {text}) AS n,
CAST('2024-01-31' AS DATE) AS d, CAST('2024-01-31 12:00:00' AS {time}) AS s"""

_THREE = """CREATE TABLE three AS SELECT CAST(2 AS {whole}) AS v, CAST(1 AS {whole}) AS w
UNION ALL SELECT NULL, 1 UNION ALL SELECT 1, 2"""


@pytest.mark.service
def test_the_table_is_what_postgresql_means(postgres_url: str) -> None:
    database = Postgres(PostgresConnection("pg", url=postgres_url))
    created = _CREATED.format(whole="BIGINT", double="DOUBLE PRECISION", text="TEXT", time="TIMESTAMP")
    with closing(database.session()) as session:
        session.execute(created + ", ARRAY[1, NULL, 3]::BIGINT[] AS l")
        [row] = session.query(query("postgres"))
        session.execute(_THREE.format(whole="BIGINT"))
        [together] = session.query(query("postgres", TOGETHER, "three"))
    agree(tuple(row), CASES["postgres"])
    agree(tuple(together), TOGETHER["postgres"])


@pytest.mark.service
def test_the_table_is_what_mysql_means(mysql_url: str) -> None:
    database = MySQL(MySQLConnection("shop", url=mysql_url))
    created = _CREATED.format(whole="SIGNED", double="DOUBLE", text="CHAR", time="DATETIME")
    with closing(database.session()) as session:
        session.execute("SET sql_mode = ''")
        session.execute(created)
        [row] = session.query(query("mysql"))
        session.execute(_THREE.format(whole="SIGNED"))
        [together] = session.query(query("mysql", TOGETHER, "three"))
    agree(tuple(row), CASES["mysql"])
    agree(tuple(together), TOGETHER["mysql"])


def test_aggregates_and_the_order_of_nulls_are_those_of_the_dialect(spark: SparkSession) -> None:
    for dialect, cases in TOGETHER.items():
        [row] = on_spark(spark, query(dialect, TOGETHER), dialect, THREE)
        agree(row, cases)
    for dialect, sql in LISTS.items():
        [(values,)] = on_spark(spark, sql, dialect, THREE)
        assert sorted(values, key=str) == [1, 2, None]
    for dialect, expected in ORDERS.items():
        assert [v for (v,) in on_spark(spark, "SELECT v FROM source ORDER BY v", dialect, THREE)] == expected


def test_lists_are_unnested_from_every_dialect(spark: SparkSession) -> None:
    queries = {
        "datafusion": "SELECT unnest(l) AS v FROM source",
        "duckdb": "SELECT unnest(l) AS v FROM source",
        "postgres": "SELECT v FROM source CROSS JOIN UNNEST(l) AS u(v)",
        "spark": "SELECT v FROM source LATERAL VIEW EXPLODE(l) u AS v",
    }
    for dialect, sql in queries.items():
        assert on_spark(spark, sql, dialect) == [(1,), (None,), (3,)], dialect


def test_what_spark_would_answer_with_null_or_infinity_fails(spark: SparkSession) -> None:
    for dialect, expression in (
        ("postgres", "a / z"),
        ("postgres", "ln(z)"),
        ("datafusion", "a / z"),
        ("duckdb", "a / z"),
    ):
        with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|not positive"):
            on_spark(spark, f"SELECT {expression} AS v FROM source", dialect)


@pytest.mark.parametrize(
    ("dialect", "sql", "reason"),
    [
        (
            "postgres",
            "SELECT a,\n  some(a) / b AS v FROM source",
            r"\(postgres, line 2, column 3\).*/ depends on the type",
        ),
        ("postgres", "SELECT CAST(x AS TEXT) AS v FROM source", "different texts"),
        ("mysql", "SELECT m / b AS v FROM source", "digits of a quotient"),
        ("mysql", "SELECT d - d AS v FROM source", "subtracts dates as numbers"),
    ],
)
def test_what_only_types_show_is_refused_with_them(dialect: str, sql: str, reason: str, spark: SparkSession) -> None:
    with pytest.raises(PlanError, match=reason):
        on_spark(spark, sql, dialect)
