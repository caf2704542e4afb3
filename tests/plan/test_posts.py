from __future__ import annotations

import pytest

from ematix_flow.declare.pipeline.pipeline import Pipeline, TransformRef
from ematix_flow.errors import PlanError
from ematix_flow.plan.post_steps import first_keyword, first_line, is_maintenance, post_steps
from ematix_flow.plan.sql.user.query import check_query, statements_in

FILES = {"source": {"id": "text", "name": "text"}, "orders": {"id": "text"}}


def test_steps_have_the_names_of_the_run_history() -> None:
    pipeline = Pipeline("p", print, (), transforms_post=("ANALYZE t", print, TransformRef("other")))
    steps = [(post.name, post.kind, post.summary) for post in post_steps(pipeline)]
    assert steps == [
        ("transform[0]:sql", "sql", "ANALYZE t"),
        ("transform[1]:print", "callable", "print"),
        ("transform[2]:ref=other", "transform_ref", "other"),
    ]


@pytest.mark.parametrize(
    "sql", ["ANALYZE", "vacuum full t", "-- why\n/* twice */ PRAGMA optimize", "REFRESH MATERIALIZED VIEW v"]
)
def test_maintenance_is_known_by_its_first_word(sql: str) -> None:
    assert is_maintenance(sql)


@pytest.mark.parametrize("sql", ["", "  ", "-- ANALYZE", "SELECT 'analyze'", "analyzed", "UPDATE t SET a = 1"])
def test_anything_else_is_no_maintenance(sql: str) -> None:
    assert not is_maintenance(sql)


def test_summaries_are_one_line_that_fits() -> None:
    assert first_line("\n  SELECT 1\n  FROM t\n") == "SELECT 1"
    assert len(first_line("x" * 500)) == 200
    assert first_line("") == first_keyword("") == ""


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1"]),
        ("SELECT ';' AS a; DELETE FROM t -- ; no\n;;", ["SELECT ';' AS a", "DELETE FROM t -- ; no"]),
        ("SELECT 'é;ü'; SELECT 2", ["SELECT 'é;ü'", "SELECT 2"]),
        ("-- nothing", []),
    ],
)
@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "mysql", "sqlite"])
def test_statements_are_told_apart(sql: str, parts: list[str], dialect: str) -> None:
    assert statements_in(sql, dialect) == parts


@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_a_body_between_dollars_is_one_value(dialect: str) -> None:
    assert len(statements_in("SELECT $$a;b$$; SELECT 2", dialect)) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, name FROM source",
        "WITH o AS (SELECT id FROM orders) SELECT s.name FROM source AS s JOIN o ON o.id = s.id",
        "SELECT count(*) AS n FROM (SELECT DISTINCT id FROM orders) AS x",
    ],
)
def test_a_query_over_known_columns_passes(sql: str) -> None:
    check_query(sql, FILES)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nme FROM source", "nme"),
        ("SELECT o.name FROM orders AS o", "name"),
        ("SELECT id FROM order_lines", "order_lines"),
        ("DELETE FROM source", "not one query"),
    ],
)
def test_a_query_over_unknown_names_is_refused(sql: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_query(sql, FILES)


def test_a_table_of_unknown_columns_has_any() -> None:
    check_query("SELECT anything FROM source", {"source": {}})
