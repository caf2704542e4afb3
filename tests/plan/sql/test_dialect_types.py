"""What an operator means by the types of its operands: wherever they come from in a query, or a refusal."""

from __future__ import annotations

import pytest

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.dialect.typed import with_types
from ematix_flow.plan.sql.user.stream import spark_sql

RELATIONS = {
    "source": {
        "a": "bigint",
        "b": "bigint",
        "x": "double",
        "cents": "decimal(10,2)",
        "t": "string",
        "d": "date",
        "nothing": "void",
        "strange": "a type of tomorrow",
        "payload": "struct<x:bigint,y:struct<z:bigint>>",
        "l": "array<bigint>",
        "ls": "array<array<bigint>>",
        "items": "array<struct<q:bigint,p:double>>",
        "m": "map<string,bigint>",
        "Amount": "bigint",
    },
    "users": {"id": "bigint", "w": "bigint"},
}


def typed(sql: str, dialect: str = "datafusion") -> str:
    return with_types(spark_sql(sql, dialect), RELATIONS, {"mine": "Int64", "exact": "Float64"})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("SELECT a / b AS v FROM source", "(a DIV b)"),
        ("SELECT -a / (b) AS v FROM source", "(-a DIV (b))"),
        ("SELECT a / x AS v FROM source", "a / x"),
        ("SELECT a / 2.0 AS v FROM source", "a / 2.0"),
        ("SELECT amount / 100 AS v FROM source", "(amount DIV 100)"),
        ("SELECT * FROM source WHERE a / b > 1", "WHERE (a DIV b) > 1"),
        ("SELECT s.a / u.w AS v FROM source s JOIN users u ON u.id = s.a", "(s.a DIV u.w)"),
        ("WITH c AS (SELECT a AS n, x FROM source) SELECT n / 2 AS v, x / 2 AS w FROM c", "(n DIV 2) AS v, x / 2"),
        ("SELECT v / 2 AS w FROM (SELECT a * b AS v FROM source) q", "(v DIV 2)"),
        ("SELECT a / b / b AS v FROM source", "((a DIV b) DIV b)"),
        ("SELECT a / b / x AS v FROM source", "(a DIV b) / x"),
        ("SELECT payload.x / 2 AS v FROM source", "(payload.x DIV 2)"),
        ("SELECT payload['x'] / 2 AS v FROM source", "(payload['x'] DIV 2)"),
        ("SELECT payload.y.z / 2 AS v FROM source", "(payload.y.z DIV 2)"),
        ("SELECT l[1] / 2 AS v FROM source", "(GET(l, 0) DIV 2)"),
        ("SELECT (l[1] + 1) / 2 AS v FROM source", "((GET(l, 0) + 1) DIV 2)"),
        ("SELECT m['k'] / 2 AS v FROM source", "(m['k'] DIV 2)"),
        ("SELECT n / 2 AS v FROM source CROSS JOIN UNNEST(l) AS q(n)", "(n DIV 2)"),
        (
            "SELECT q.i.q / 2 AS v, q.i.p / 2 AS w FROM source CROSS JOIN UNNEST(items) AS q(i)",
            "DIV 2) AS v, q.i.p / 2",
        ),
        ("SELECT sum(a) / count(*) AS v FROM source", "(SUM(a) DIV COUNT(*))"),
        ("SELECT avg(a) / 2 AS v FROM source", "AVG(a) / 2"),
        ("SELECT length(t) / 2 AS v FROM source", "(LENGTH(t) DIV 2)"),
        ("SELECT (SELECT max(w) FROM users) / 2 AS v FROM source", ") DIV 2)"),
        ("SELECT nothing / 2 AS v FROM source", "(nothing DIV 2)"),
        ("SELECT mine(a) / 2 AS v, exact(a) / 2 AS w FROM source", "(MINE(a) DIV 2) AS v, EXACT(a) / 2"),
    ],
)
def test_whole_numbers_are_divided_into_whole_numbers(written: str, expected: str) -> None:
    assert expected in typed(written)


def test_a_sum_of_postgresql_is_no_whole_number() -> None:
    assert "SUM(a) / COUNT(*)" in typed("SELECT sum(a) / count(*) AS v FROM source", "postgres")
    assert "SUM(a) OVER () / 2" in typed("SELECT sum(a) OVER () / 2 AS v FROM source", "postgres")
    assert "n / 2" in typed("SELECT n / 2 AS v FROM (SELECT sum(a) AS n FROM source) q", "postgres")
    assert "(COUNT(*) DIV 2)" in typed("SELECT count(*) / 2 AS v FROM source", "postgres")


_SMALL = "IF(ABS(x) < 9007199254740992, CAST({} AS DOUBLE), x)"


@pytest.mark.parametrize(
    ("written", "dialect", "expected"),
    [
        ("floor(x) / 2", "postgres", _SMALL.format("FLOOR(x)") + " / 2"),
        ("floor(x)", "mysql", _SMALL.format("FLOOR(x)")),
        ("trunc(x)", "duckdb", _SMALL.format("IF((x) < 0, CEIL(x), FLOOR(x))")),
        ("ceil(a) / 2", "datafusion", "CAST(a AS DOUBLE) / 2"),
        ("ceil(a)", "duckdb", "CAST(a AS DOUBLE)"),
        ("trunc(a + 1) * 2", "duckdb", "(a + 1) * 2"),
        ("ceil(a)", "mysql", "SELECT a AS v"),
        ("ceil(2.5)", "postgres", "CEIL(2.5)"),
        ("trunc(2.5)", "postgres", "IF((2.5) < 0, CEIL(2.5), FLOOR(2.5))"),
        ("floor(ceil(cents)) / 8", "postgres", "FLOOR(CEIL(cents)) / 8"),
    ],
)
def test_the_whole_part_of_a_double_is_a_double(written: str, dialect: str, expected: str) -> None:
    assert expected in typed(f"SELECT {written} AS v FROM source", dialect)


def once(value: str, result: str) -> str:
    return f"GET(TRANSFORM(ARRAY({value}), flow_value -> {result}), 0)"


_SMALL_ONE = _SMALL.format("FLOOR(flow_value)").replace("x", "flow_value")
_CUT_ONE = "IF((flow_value) < 0, CEIL(flow_value), FLOOR(flow_value))"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("floor(random() * 6)", once("RAND() * 6", _SMALL_ONE)),
        ("trunc(abs(cents)) / 8", once("ABS(cents)", _CUT_ONE) + " / 8"),
        ("floor(abs(items[1]['p'])) / 2", once("ABS(GET(items, 0)['p'])", _SMALL_ONE) + " / 2"),
        ("CAST(trunc(abs(trunc(abs(cents)))) AS BIGINT)", once(f"ABS({once('ABS(cents)', _CUT_ONE)})", _CUT_ONE)),
        ("ceil((SELECT max(w) FROM users) / 2.5)", "(SELECT MAX(w) FROM users) / 2.5"),
    ],
)
def test_what_is_computed_for_the_whole_part_is_computed_once(written: str, expected: str) -> None:
    assert expected in typed(f"SELECT {written} AS v FROM source", "postgres")


@pytest.mark.parametrize("function", ["floor", "ceil", "trunc"])
@pytest.mark.parametrize("operand", ["x", "cents"])
def test_whole_parts_of_whole_parts_do_not_multiply(function: str, operand: str) -> None:
    nested = operand
    for _ in range(6):
        nested = f"{function}({nested})"
    assert len(typed(f"SELECT {nested} AS v FROM source", "duckdb")) < 1500


@pytest.mark.parametrize(
    ("written", "dialect", "expected"),
    [
        ("round(x)", "mysql", "RINT(x)"),
        ("round(x)", "duckdb", "ROUND(x)"),
        ("round(x, 1)", "duckdb", "(ROUND((x) * CAST(10 AS DOUBLE)) / CAST(10 AS DOUBLE))"),
        ("round(x, 2)", "mysql", "(RINT((x) * CAST(100 AS DOUBLE)) / CAST(100 AS DOUBLE))"),
        ("round(2.5, 1)", "mysql", "ROUND(2.5, 1)"),
        ("round(a, -1)", "duckdb", "ROUND(a, -1)"),
    ],
)
def test_a_double_is_rounded_as_there(written: str, dialect: str, expected: str) -> None:
    assert f"SELECT {expected} AS v" in typed(f"SELECT {written} AS v FROM source", dialect)


@pytest.mark.parametrize(
    ("written", "dialect", "expected"),
    [
        ("concat('a', cents)", "postgres", "CONCAT('a', COALESCE(CAST(cents AS STRING), ''))"),
        ("concat('a', t)", "postgres", "CONCAT('a', COALESCE(t, ''))"),
        ("concat(a > 1, t)", "postgres", "COALESCE(IF(a > 1, 't', 'f'), '')"),
        ("concat(a, t)", "mysql", "CONCAT(CAST(a AS STRING), t)"),
        ("concat(x, t)", "datafusion", "COALESCE(CAST(x AS STRING), '')"),
        ("concat(strange, t)", "postgres", "COALESCE(strange, '')"),
        ("a || t || cents", "duckdb", "a || t || cents"),
        ("l || l", "duckdb", "l || l"),
        (
            "format('%s: %s%%', t, a)",
            "postgres",
            "CONCAT('', COALESCE(t, ''), ': ', COALESCE(CAST(a AS STRING), ''), '%')",
        ),
        ("CAST(t AS TIMESTAMP)", "postgres", "CAST(CAST(t AS TIMESTAMP_NTZ) AS TIMESTAMP)"),
        ("CAST(d AS TIMESTAMP)", "postgres", "CAST(d AS TIMESTAMP)"),
    ],
)
def test_a_value_becomes_the_text_or_the_time_that_it_is_there(written: str, dialect: str, expected: str) -> None:
    assert expected in typed(f"SELECT {written} AS v FROM source", dialect)


@pytest.mark.parametrize(
    ("written", "dialect"), [("concat('a', x)", "postgres"), ("t || x", "duckdb"), ("concat(a > 1, t)", "mysql")]
)
def test_a_value_that_is_another_text_there_is_refused(written: str, dialect: str) -> None:
    with pytest.raises(PlanError, match=rf"\({dialect}, line 1, column 8\).*as different texts"):
        typed(f"SELECT {written} AS v FROM source", dialect)


@pytest.mark.parametrize("written", ["t::numeric::text", "concat('a', (x::numeric) * 2)"])
def test_the_text_of_a_numeric_with_any_digits_is_refused(written: str) -> None:
    with pytest.raises(PlanError, match="digits that it was written with"):
        typed(f"SELECT {written} AS v FROM source", "postgres")
    assert "AS STRING)" in typed("SELECT round(x::numeric, 2)::text AS v FROM source", "postgres")
    assert "AS STRING)" in typed("SELECT x::numeric(10, 2)::text AS v FROM source", "postgres")


@pytest.mark.parametrize("operand", ["x * 1.0", "1.0 * x", "x + cents", "cents + x", "coalesce(x, 1.5)"])
def test_a_decimal_and_a_double_are_a_double(operand: str) -> None:
    assert (
        f"CAST(RINT({operand.upper()})"
        in typed(f"SELECT CAST({operand} AS BIGINT) AS v FROM source", "postgres").upper()
    )


def test_a_part_of_a_date_is_no_whole_number_of_postgresql() -> None:
    assert "EXTRACT(YEAR FROM d) / 5" in typed("SELECT extract(year FROM d) / 5 AS v FROM source", "postgres")
    assert "EXTRACT(YEAR FROM d) DIV 5" in typed("SELECT extract(year FROM d) / 5 AS v FROM source")
    assert "(EXTRACT(DOW FROM d) - 1) / 2" in typed("SELECT extract(dow FROM d) / 2 AS v FROM source", "postgres")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("(d - d) / 2", "((DATEDIFF(d, d)) DIV 2)"),
        ("split_part(t, ',', 1)::int / 2", "(CAST(SPLIT_PART(t, ',', 1) AS INT) DIV 2)"),
        ("array_position(l, 3) / 2", "(NULLIF(ARRAY_POSITION(l, 3), 0) DIV 2)"),
        ("round(x) / 2", "RINT(x) / 2"),
        ("round(a) / 2", "ROUND(a) / 2"),
        ("CAST(round(cents, 1) AS BIGINT)", "CAST(ROUND(ROUND(cents, 1)) AS BIGINT)"),
    ],
)
def test_what_a_translation_has_written_is_known(written: str, expected: str) -> None:
    assert expected in typed(f"SELECT {written} AS v FROM source", "postgres")


@pytest.mark.parametrize(
    ("written", "dialect", "reason"),
    [
        ("x // 2", "duckdb", "not whole"),
        ("d + 1", "mysql", "dates as numbers"),
        ("a / '2'", "postgres", "a text is divided"),
    ],
)
def test_numbers_that_would_be_others_are_refused(written: str, dialect: str, reason: str) -> None:
    with pytest.raises(PlanError, match=rf"\({dialect}, line 1, column 8\).*{reason}"):
        typed(f"SELECT {written} AS v FROM source", dialect)


@pytest.mark.parametrize("operand", ["strange", "unheard_of(a)", "l", "payload"])
def test_an_operand_of_no_known_type_is_refused(operand: str) -> None:
    with pytest.raises(
        PlanError, match=r"\(datafusion, line 1, column 8\) cannot be translated: / depends on the type"
    ):
        typed(f"SELECT {operand} / 2 AS v FROM source")


@pytest.mark.parametrize(
    ("written", "dialect", "expected"),
    [
        ("l[a]", "postgres", "GET(l, (a) - 1)"),
        ("l[a]", "duckdb", "GET(l, IF((a) < 0, SIZE(l) + (a), (a) - 1))"),
        ("l[a] / 2", "datafusion", "GET(l, IF((a) < 0, SIZE(l) + (a), (a) - 1)) DIV 2"),
        ("l[1 + 1]", "postgres", "GET(l, (1 + 1) - 1)"),
        ("l[CAST(a AS INT)]", "postgres", "GET(l, (CAST(a AS INT)) - 1)"),
        ("unheard_of(a)[CAST(a AS INT)]", "postgres", "GET(UNHEARD_OF(a), (CAST(a AS INT)) - 1)"),
        ("ls[a][b] / 2", "postgres", "(GET(GET(ls, (a) - 1), (b) - 1) DIV 2)"),
        ("ls[CAST(a AS INT)][1]", "postgres", "GET(GET(ls, (CAST(a AS INT)) - 1), 0)"),
        ("string_split(t, ',')[a]", "duckdb", "GET(SPLIT(t, CONCAT('\\\\Q', ',', '\\\\E')), IF((a) < 0,"),
        ("(string_to_array(t, ','))[a]", "postgres", "GET((IF(t = '', CAST(ARRAY() AS ARRAY<STRING>), SPLIT(t, "),
        ("m[t]", "duckdb", "m[t]"),
    ],
)
def test_a_computed_index_counts_from_one(written: str, dialect: str, expected: str) -> None:
    assert expected in typed(f"SELECT {written} AS v FROM source", dialect)


@pytest.mark.parametrize("dialect", ["datafusion", "postgres", "duckdb"])
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ls[1][2]", "GET(GET(ls, 0), 1)"),
        ("ls[2][1] / 2", "GET(GET(ls, 1), 0)"),
        ("ls[0][1]", "GET(GET(ls, -1), 0)"),
        ("items[1]['p']", "GET(items, 0)['p']"),
        ("strange['tags'][1]['name']", "GET(strange['tags'], 0)['name']"),
    ],
)
def test_an_index_within_an_index_counts_from_one_too(written: str, expected: str, dialect: str) -> None:
    assert expected in typed(f"SELECT {written} AS v FROM source", dialect)


@pytest.mark.parametrize(
    ("written", "dialect", "expected"),
    [
        ("WITH q AS (SELECT round(x * a, 2) AS e FROM source) SELECT e / 2 AS v FROM q", "datafusion", "SELECT e / 2"),
        ("WITH q AS (SELECT a / 2 AS e FROM source) SELECT floor(e) AS v FROM q", "datafusion", "CAST(e AS DOUBLE)"),
        ("SELECT e / 2 AS v FROM (SELECT m[t] AS e FROM source) q", "datafusion", "(e DIV 2)"),
        ("SELECT coalesce(e, 1) / 2 AS v FROM (SELECT a / 2 AS e FROM source) q", "datafusion", "(COALESCE(e, 1) DIV 2)"),
        ("SELECT floor(a) AS a FROM (SELECT a / 2 AS a FROM source) q", "datafusion", "SELECT CAST(a AS DOUBLE)"),
        ("SELECT e / 2 AS v FROM (SELECT a / 2 AS e FROM source UNION ALL SELECT b / 2 FROM source) q", "datafusion", "(e DIV 2)"),
        ("SELECT floor(x) AS e FROM source ORDER BY e / 2", "datafusion", "ORDER BY e / 2"),
        ("SELECT e / 2 AS v FROM source CROSS JOIN UNNEST(ls[a]) AS q(e)", "postgres", "(e DIV 2)"),
        ("SELECT n * 100 / d AS v FROM (SELECT a + 1 AS n, b + 1 AS d FROM source) q", "mysql", "AS DECIMAL(24, 4))"),
        ("SELECT CAST(e AS BIGINT) AS v FROM (SELECT concat(a, '1') AS e FROM source) q", "postgres", "CAST(e AS BIGINT)"),
        ("SELECT CAST(e AS TEXT) AS v FROM (SELECT t::timestamp AS e FROM source) q", "postgres", "CAST(e AS STRING)"),
        ("SELECT a // 2 AS e, e // 2 AS v FROM source", "duckdb", "e DIV 2"),
        ("SELECT CAST(round(e, 1) AS BIGINT) AS v FROM (SELECT floor(cents) / 4 AS e FROM source) q", "postgres", "CAST(ROUND(ROUND(e, 1)) AS BIGINT)"),
        ("SELECT CAST(round(trunc(cents) / 4, 1) AS BIGINT) AS v FROM source", "postgres", "CAST(ROUND(ROUND("),
    ],
)  # fmt: skip
def test_what_a_name_stands_for_is_known_before_what_is_done_with_it(written: str, dialect: str, expected: str) -> None:
    assert expected in typed(written, dialect)


def test_a_name_has_the_type_that_the_expression_has_in_the_end() -> None:
    with pytest.raises(PlanError, match="write a DOUBLE as different texts"):
        typed("SELECT q.e || '%' AS v FROM (SELECT floor(x) AS e FROM source) q", "postgres")


def test_what_remains_of_no_known_type_is_left_or_refused_as_before() -> None:
    query = "SELECT round(strange) / 2 AS v, e || 'a' AS w FROM (SELECT strange, concat(strange, t) AS e FROM source) q"
    assert "SELECT ROUND(strange) / 2 AS v, e || 'a' AS w" in typed(query)
    with pytest.raises(PlanError, match=r"line 1, column 8\).*/ depends on the type"):
        typed("SELECT e / 2 AS v FROM (SELECT strange || 'a' AS f, strange AS e FROM source) q", "postgres")


def test_an_index_into_what_is_not_known_to_be_a_list_is_refused() -> None:
    with pytest.raises(PlanError, match=r"\(duckdb, line 1, column 8\).*not known to be a list"):
        typed("SELECT strange[a] AS v FROM source", "duckdb")


def test_a_cast_says_the_type() -> None:
    assert "DIV 2" in typed("SELECT CAST(strange AS BIGINT) / 2 AS v FROM source")


def test_a_query_without_such_operators_is_left_as_it_is() -> None:
    assert typed("SELECT a FROM source", "spark") == "SELECT a FROM source"
    assert typed("SELECT a / b FROM source", "spark") == "SELECT a / b FROM source"
