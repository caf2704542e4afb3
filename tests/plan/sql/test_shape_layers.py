from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from sqlglot import exp

from ematix_flow import normalize as n
from ematix_flow.connect.sqlite.functions import register
from ematix_flow.declare.table.class_body import Column, Table
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.shape.query import UNSUPPORTED, shape_query, unsupported_on
from ematix_flow.types import BigInt, Integer, Text, TimestampTZ

if TYPE_CHECKING:
    from tests.plan.sql.engines import Engine, Rows

EVENTS = Table(
    "s",
    "events",
    (
        Column(BigInt, name="i", primary_key=True),
        Column(BigInt, name="k", nullable=False),
        Column(Text, name="c", normalizers=(n.lower(),)),
    ),
)
SOURCE = {"i": "integer", "k": "text", "c": "text"}
ROWS: Rows = [(1, "1", "B"), (2, "1", "A"), (3, "2", None), (4, "2", "C"), (5, "x", "D")]


def ids(engine: Engine, *transforms: object, **options: Any) -> list[int]:
    rows = engine.shape(EVENTS, SOURCE, ROWS, transforms_pre=transforms, user_dialect="postgres", **options)
    return [row["i"] for row in rows]


def test_layers_have_their_names_and_the_order_of_the_declaration() -> None:
    query = shape_query("SELECT * FROM raw", SOURCE, EVENTS, "postgres", transforms_pre=[n.limit(3), n.limit(2)])
    assert [cte.alias for cte in query.ctes] == ["_src_user", "_src_normalized", "_src_pre_1", "_src_pre_2"]
    assert [e.alias_or_name for e in query.expressions] == ["i", "k", "c"]


@pytest.mark.slow
def test_one_row_per_key_by_the_given_order(engine: Engine) -> None:
    assert ids(engine, n.deduplicate_by("k", order_by="c")) == [2, 4, 5]
    assert ids(engine, n.deduplicate_by(keys=("k",), order_by="c desc")) == [1, 4, 5]
    assert ids(engine, n.deduplicate_by("k", order_by="c DESC NULLS FIRST")) == [1, 3, 5]
    assert ids(engine, n.deduplicate_by("k")) == [1, 3, 5]


@pytest.mark.slow
def test_filters_see_normalised_values_and_run_in_order(engine: Engine) -> None:
    assert ids(engine, n.filter_where("c IN ('a', 'c') OR c IS NULL")) == [2, 3, 4]
    assert ids(engine, n.filter_where("c IS NOT NULL"), n.deduplicate_by("k", order_by="i")) == [1, 4, 5]
    assert ids(engine, n.deduplicate_by("k", order_by="i"), n.filter_where("c IS NOT NULL")) == [1, 5]
    assert len(ids(engine, n.limit(2))) == 2
    assert ids(engine, n.sample_pct(0)) == []
    assert ids(engine, n.sample_pct(1)) == [1, 2, 3, 4, 5]


class OnlyOdd:
    def to_sql_wrap(self, inner: str) -> str:
        return f"SELECT * FROM {inner} WHERE mod(i, 2) = 1"


class OnlyEven:
    def to_sql_wrap(self, inner: str) -> str:
        return f"SELECT * FROM ({inner}) AS q WHERE q.i % 2 = 0"


def test_any_object_that_wraps_sql_is_a_transform(engine: Engine) -> None:
    assert ids(engine, OnlyOdd()) == [1, 3, 5]
    assert ids(engine, OnlyEven()) == [2, 4]


def test_marked_rows_pass_every_transform_and_never_win(engine: Engine) -> None:
    transforms = [n.deduplicate_by("k", order_by="i"), n.filter_where("c = 'none'")]
    rows = engine.shape(EVENTS, SOURCE, ROWS, transforms_pre=transforms, user_dialect="postgres", failure_column="_bad")
    assert rows == [{"i": 5, "k": None, "c": "d", "_bad": "k"}]


def test_column_map_derive_sql_and_kept_columns(engine: Engine) -> None:
    table = Table(
        "s",
        "t",
        (
            Column(BigInt, name="i", primary_key=True),
            Column(Text, name="renamed"),
            Column(Text, name="glued"),
            Column(Text, name="made", normalizers=(n.derive("coalesce(c, 'none')"), n.upper())),
            Column(Text, name="own", normalizers=(n.sql("replace(col, 'A', '!')"), n.trim())),
            Column(Text, name="absent", normalizers=(n.default("?"),)),
        ),
    )
    options = {"column_map": {"renamed": "C", "glued": "c || '-' || k", "own": "c"}, "carry": ["k"]}
    rows = engine.shape(table, SOURCE, [(1, "1", "A"), (2, "2", None)], user_dialect="postgres", **options)
    assert rows == [
        {"i": 1, "renamed": "A", "glued": "A-1", "made": "A", "own": "!", "absent": "?", "k": "1"},
        {"i": 2, "renamed": None, "glued": None, "made": "NONE", "own": None, "absent": "?", "k": "2"},
    ]


def test_user_sql_is_translated_from_its_own_dialect() -> None:
    query = shape_query(
        "SELECT i::text AS i FROM raw LIMIT 1",
        {"i": "text"},
        Table("s", "t", (Column(Text, name="i"),)),
        "spark",
        user_dialect="postgres",
    )
    assert "CAST(i AS STRING)" in query.sql("spark")
    matching = shape_query(
        "SELECT i FROM raw WHERE i ~ 'a'",
        {"i": "text"},
        Table("s", "t", (Column(Text, name="i"),)),
        "mysql",
        user_dialect="postgres",
    )
    assert "REGEXP_LIKE" not in matching.sql("mysql")  # MariaDB has no such function


def test_a_table_or_a_tree_is_a_source_too() -> None:
    for source in (exp.to_table("raw"), exp.select("*").from_("raw")):
        with sqlite3.connect(":memory:") as connection:
            register(connection)
            connection.execute("CREATE TABLE raw (i, k, c)")
            connection.execute("INSERT INTO raw VALUES (1, '2', 'X')")
            assert connection.execute(shape_query(source, SOURCE, EVENTS, "sqlite").sql("sqlite")).fetchall() == [
                (1, 2, "x")
            ]
        connection.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "SELEC 1 FROM"}, "SELEC 1 FROM"),
        ({"source": "DELETE FROM raw"}, "not one query"),
        ({"source": "SELECT 1; SELECT 2"}, "not one query"),
        ({"source_columns": {"i": "integer", "kk": "text", "c": "text"}}, r"lacks k \(near: kk\)"),
        ({"carry": ["missing"]}, "lacks 'missing'"),
        ({"column_map": {"kay": "k"}}, "kay"),
        ({"column_map": {"k": "k +"}}, "k +"),
        ({"column_map": {"k": "kk"}}, "takes 'k' from 'kk', which the source of .* lacks"),
        ({"column_map": {"k": "k FROM t"}}, "not one SQL expression"),
        ({"transforms_pre": [n.filter_where("c = ")]}, "c = "),
        ({"transforms_pre": [n.deduplicate_by("kk")]}, "kk"),
        ({"transforms_pre": [n.deduplicate_by("k", order_by="c LIMIT 1")]}, "not an order"),
        ({"transforms_pre": ["c > 1"]}, "not a pre-load transform"),
        ({"dialect": "oracle"}, "oracle"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_its_text(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"source": "SELECT * FROM raw", "source_columns": SOURCE, "dialect": "postgres", **options}
    with pytest.raises(PlanError, match=message):
        shape_query(given.pop("source"), given.pop("source_columns"), EVENTS, given.pop("dialect"), **given)


UNSAYABLE = [
    ("mysql", n.to_timezone("Europe/Berlin"), "zones"),
    ("mysql", n.regex_replace("a", r"\&"), "groups"),
    ("mysql", n.regex_replace("a", "b", ""), "every match"),
    ("duckdb", n.regex_replace("a(?=b)", "c"), "look"),
    ("postgres", n.regex_replace("a+?b", "c"), "greed"),
    ("duckdb", n.parse_numeric(40, 2), "38"),
]


@pytest.mark.parametrize(("dialect", "step", "reason"), UNSAYABLE)
def test_unsupported_steps_name_the_reason_and_spark_has_none(dialect: str, step: Any, reason: str) -> None:
    table = Table("s", "t", (Column(Text, name="c", normalizers=(step,)),))
    assert reason in unsupported_on(table, dialect)
    assert not unsupported_on(table, "spark")
    assert (type(step), dialect) in UNSUPPORTED
    with pytest.raises(PlanError, match=reason):
        shape_query("SELECT 1 AS c", {"c": "text"}, table, dialect)


def test_a_plain_integer_column_stays_a_plain_column() -> None:
    table = Table("s", "t", (Column(BigInt, name="i"), Column(TimestampTZ, name="at"), Column(Integer, name="n")))
    columns = {"i": "integer", "at": "timestamp_tz", "n": "other"}
    query = shape_query("SELECT * FROM raw", columns, table, "postgres")
    normalised = query.ctes[1].this
    assert [e.this.sql() for e in normalised.expressions] == ['"i"', '"at"', '"n"']
