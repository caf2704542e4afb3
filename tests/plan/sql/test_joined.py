"""Queries over several connections: which tables they read, what of each, and what may be left to its system."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Integer, TimestampTZ
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.join_bounds import bound_sql, bounding_column
from ematix_flow.plan.sql.user.join_conditions import conditions_of
from ematix_flow.plan.sql.user.joins import check_joined, read_joined
from ematix_flow.plan.sql.user.pushdown import Condition, condition_sql
from ematix_flow.plan.steps import TableRead

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType

COLUMNS = {
    "orders": ("id", "customer_id", "amount", "note", "day", "at", "instant", "open"),
    "customers": ("id", "name", "note", "since"),
}
FAMILIES = {
    "amount": "decimal", "note": "text", "name": "text", "day": "date", "since": "date", "at": "timestamp",
    "instant": "timestamp_tz", "open": "boolean",
}  # fmt: skip


def needed(sql: str) -> dict[str, tuple[str, ...]]:
    query = read_joined(sql, ["pg", "lake"])
    return {table.called: query.needed(table, COLUMNS[table.name]) for table in query.tables}


def conditions(sql: str, *unknown: str) -> dict[str, tuple[Condition, ...]]:
    query = read_joined(sql, ["pg", "lake"])
    known = {
        table.number: [SourceColumn(name, FAMILIES.get(name, "integer")) for name in COLUMNS[table.name]]
        for table in query.tables
        if table.name not in unknown
    }
    terms = conditions_of(query, known)
    return {table.called: terms[table.number] for table in query.tables if terms.get(table.number)}


def over(sql: str) -> str:
    query = read_joined(sql, ["pg", "lake"])
    return query.over({table.number: (f"v_{table.called}",) for table in query.tables})


def test_the_query_stays_as_it_was_written_around_its_tables() -> None:
    assert over("SELECT  o.id -- all\nFROM pg.orders o  JOIN lake.customers AS c USING (id)") == (
        "SELECT  o.id -- all\nFROM `v_o` o  JOIN `v_c` AS c USING (id)"
    )
    assert over("SELECT pg.orders.id, orders.note FROM pg.orders WHERE PG.Orders.id > 1") == (
        "SELECT `orders`.id, orders.note FROM `v_orders` AS `orders` WHERE `orders`.id > 1"
    )
    assert over("SELECT lake.`customers`.name FROM lake.`customers`") == (
        "SELECT `customers`.name FROM `v_customers` AS `customers`"
    )


def test_steps_of_the_query_are_no_tables() -> None:
    sql = "WITH orders AS (SELECT * FROM pg.orders) SELECT id FROM orders UNION ALL SELECT id FROM lake.customers"
    assert [table.full_name for table in read_joined(sql, ["pg", "lake"]).tables] == ["lake.customers", "pg.orders"]


def test_lake_tables_are_read_at_a_version() -> None:
    query = read_joined("SELECT 1 AS x FROM pg.orders o, lake.s.customers VERSION AS OF 3 AS c", ["pg", "lake"])
    by_name = {table.name: table for table in query.tables}
    assert (by_name["customers"].schema, by_name["customers"].travels) == ("s", True)
    names = {by_name["orders"].number: ("delta", "/a`b"), by_name["customers"].number: ("cat", "s", "customers")}
    versions = {by_name["orders"].number: "17", by_name["customers"].number: "99"}
    assert query.over(names, versions) == (
        "SELECT 1 AS x FROM `delta`.`/a``b` VERSION AS OF 17 o, `cat`.`s`.`customers` VERSION AS OF 3 AS c"
    )


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT * FROM pq.orders", "connections= has no 'pq'", "pg"),
        ("SELECT * FROM orders", "'orders', which is not alias.table", "pg"),
        ("SELECT * FROM pg.a.b.c", "which is not alias.table", "pg"),
        ("SELECT 1 AS x", "reads no table of a connection", "pg.table"),
        ("SELECT * FROM pg.orders TABLESAMPLE (10 PERCENT)", "with a sample and gives it no name", "AS orders"),
        ("DELETE FROM pg.orders", "not one query", "SELECT"),
        ("SELECT 1 FROM pg.orders; SELECT 2 FROM pg.orders", "not one query", "SELECT"),
    ],
)
def test_what_cannot_be_read_is_named(sql: str, message: str, hint: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        read_joined(sql, ["pg", "lake"])
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("sql", "orders", "customers"),
    [
        ("SELECT o.id, c.name FROM pg.orders o JOIN lake.customers c ON c.id = o.customer_id", "id customer_id", "id name"),
        # A name without its table may be anybody's.
        ("SELECT amount, note FROM pg.orders o JOIN lake.customers c USING (id)", "id amount note", "id note"),
        ("SELECT o.*, c.name FROM pg.orders o, lake.customers c", " ".join(COLUMNS["orders"]), "name"),
        ("SELECT count(*) AS n FROM pg.orders o, lake.customers c", "id", "id"),
        ("SELECT o.amount AS note FROM pg.orders o, lake.customers c ORDER BY c.since", "amount", "since"),
        ("SELECT x.id FROM (SELECT * FROM pg.orders o) x, lake.customers c", " ".join(COLUMNS["orders"]), "id"),
        ("SELECT o.id FROM pg.orders o NATURAL JOIN lake.customers c", " ".join(COLUMNS["orders"]), " ".join(COLUMNS["customers"])),
        ("SELECT o.id FROM pg.orders o WHERE EXISTS (SELECT 1 FROM lake.customers c WHERE c.since < o.day)", "id day", "since"),
        ("SELECT struct(o.*) AS s, c.id FROM pg.orders o, lake.customers c", " ".join(COLUMNS["orders"]), "id"),
        # Other names are given by the order of the columns.
        ("SELECT o.id, c.b FROM pg.orders o, lake.customers AS c(a, b, d, e)", "id", " ".join(COLUMNS["customers"])),
    ],
)  # fmt: skip
def test_only_mentioned_columns_are_read(sql: str, orders: str, customers: str) -> None:
    assert {name: " ".join(names) for name, names in needed(sql).items()} == {"o": orders, "c": customers}


def test_conditions_of_one_table_are_found() -> None:
    sql = """
        SELECT o.id FROM pg.orders o JOIN lake.customers c ON c.id = o.customer_id AND c.since >= '2026-01-01'
        WHERE (o.amount > 1.50 AND 5 >= o.id) AND o.day BETWEEN DATE '2026-01-01' AND DATE '2026-01-31'
          AND o.at < TIMESTAMP '2026-01-02 03:04:05.5' AND o.instant >= '2026-01-02' AND o.open = true
          AND c.name IN ('a', 'b') AND c.note IS NOT NULL AND o.id > -1
    """
    assert {name: set(terms) for name, terms in conditions(sql).items()} == {
        "o": {
            Condition("amount", ">", (Decimal("1.50"),)),
            Condition("id", "<=", (5,)),
            Condition("id", ">", (-1,)),
            Condition("day", ">=", (date(2026, 1, 1),)),
            Condition("day", "<=", (date(2026, 1, 31),)),
            Condition("at", "<", (datetime(2026, 1, 2, 3, 4, 5, 500000),)),  # noqa: DTZ001
            Condition("instant", ">=", (datetime(2026, 1, 2, tzinfo=UTC),)),
            Condition("open", "=", (True,)),
        },
        "c": {
            Condition("since", ">=", (date(2026, 1, 1),)),
            Condition("name", "in", ("a", "b")),
            Condition("note", "is not null"),
        },
    }


@pytest.mark.parametrize(
    "where",
    [
        "o.id > 1 OR c.id > 1",
        "NOT o.id > 1",
        "o.id > c.id",
        "o.id + 1 > 2",
        "c.note IS NULL",
        "o.id NOT IN (1, 2)",
        "o.id IN (1, NULL)",
        "o.id IN (SELECT id FROM pg.orders)",
        "o.day > '1 January 2026'",
        "o.day > TIMESTAMP '2026-01-01 12:00:00'",
        "id > 1",
        "upper(c.name) = 'A'",
        "o.note LIKE 'a%'",
        "o.field.id = 1",
    ],
)
def test_other_conditions_are_left_to_spark(where: str) -> None:
    assert conditions(f"SELECT 1 AS x FROM pg.orders o, lake.customers c WHERE {where}") == {}


def test_a_condition_of_an_outer_join_is_not_one_of_its_rows() -> None:
    joined = "SELECT 1 AS x FROM pg.orders o LEFT JOIN lake.customers c ON c.id = o.id AND c.id > 1"
    assert conditions(joined) == {}
    # NULLs of the join do not fulfil it, and the query still has it.
    assert conditions(f"{joined} WHERE c.id > 2") == {"c": (Condition("id", ">", (2,)),)}


def test_names_without_a_table_belong_to_the_only_one_that_has_them() -> None:
    joined = "SELECT 1 AS x FROM pg.orders o, lake.customers c WHERE amount > 1 AND since > '2026-01-01' AND id > 1"
    assert set(conditions(joined)) == {"o", "c"}
    assert conditions(joined, "customers") == {}
    sampled = "SELECT 1 AS x FROM pg.orders TABLESAMPLE (50 PERCENT) AS o WHERE amount > 1"
    assert conditions(sampled) == {}
    inside = "SELECT 1 AS x FROM (SELECT id AS amount FROM pg.orders o) AS s, lake.customers c WHERE amount > 1"
    assert conditions(inside) == {}


def test_columns_with_other_names_are_not_those_of_the_table() -> None:
    renamed = "SELECT 1 AS x FROM lake.customers AS c(name, id, note, since)"
    assert conditions(f"{renamed} WHERE c.id = 1") == {}
    assert conditions(f"{renamed} WHERE id = 1") == {}
    assert conditions(f"{renamed}, pg.orders o WHERE o.id = 1") == {"o": (Condition("id", "=", (1,)),)}


def test_nanoseconds_are_not_compared_by_the_database() -> None:
    # Spark has what is left of them, so that one of the same microsecond is equal there.
    fine, at = SourceColumn("at", "timestamp", "TIMESTAMP_NS"), datetime(2026, 1, 2)  # noqa: DTZ001
    assert condition_sql(Condition("at", "=", (at,)), fine, "duckdb") == ""
    assert condition_sql(Condition("at", "is not null"), fine, "duckdb") == '"at" IS NOT NULL'
    assert bound_sql(fine, "2026-01-01 00:00:00", "2026-01-02 00:00:00", None, "duckdb") == ""


def test_columns_are_checked_where_all_are_known() -> None:
    tables = [
        TableRead(f"{alias}.{name}", alias, alias, "duckdb", COLUMNS[name])
        for alias, name in (("pg", "orders"), ("lake", "customers"))
    ]
    check_joined("SELECT o.id, name FROM pg.orders o JOIN lake.customers c ON o.id = c.id", tables)
    with pytest.raises(PlanError, match="ammount"):
        check_joined("SELECT o.ammount FROM pg.orders o JOIN lake.customers c ON o.id = c.id", tables)


def bounded(sql: str, kind: ColumnType | None = None, name: str = "instant", **more: Any) -> str:
    query = read_joined(sql, ["pg", "lake"])
    known = {
        table.number: [SourceColumn(name, FAMILIES.get(name, "integer")) for name in COLUMNS[table.name]]
        for table in query.tables
    }
    column = Column(
        kind or TimestampTZ(), nullable=True, primary_key=False, name=name, normalizers=more.pop("steps", ())
    )
    declared = TargetDeclaration(
        Table("s", "t", (column,)), write(mode="append", incremental_column=name), column_map=more.pop("mapped", None)
    )
    pipeline = Pipeline("p", lambda: None, (declared,), **more)
    bounding = bounding_column(query, known, pipeline, declared)
    return "" if bounding is None else f"{bounding[0].called}.{bounding[1].name}"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT o.instant FROM pg.orders o", "o.instant"),
        ("SELECT o.*, c.name FROM pg.orders o JOIN lake.customers c ON c.id = o.id", "o.instant"),
        ("SELECT * FROM pg.orders o, lake.customers c", "o.instant"),
        ("SELECT instant, name FROM pg.orders o, lake.customers c", "o.instant"),
        ("SELECT o.instant, c.name FROM pg.orders o LEFT JOIN lake.customers c ON c.id = o.id", "o.instant"),
        # NULLs of the join are not those of the table.
        ("SELECT o.instant FROM lake.customers c LEFT JOIN pg.orders o ON c.id = o.id", ""),
        ("SELECT o.instant FROM pg.orders o FULL JOIN lake.customers c ON c.id = o.id", ""),
        # A row of the result depends on others.
        ("SELECT max(o.instant) AS instant FROM pg.orders o", ""),
        ("SELECT o.instant, count(*) AS n FROM pg.orders o GROUP BY o.instant", ""),
        ("SELECT o.instant, row_number() OVER (ORDER BY o.id) AS n FROM pg.orders o", ""),
        ("SELECT o.instant FROM pg.orders o LIMIT 5", ""),
        ("SELECT o.instant FROM pg.orders o UNION ALL SELECT o.instant FROM pg.orders o", ""),
        # The value is another one.
        ("SELECT o.instant + INTERVAL 1 DAY AS instant FROM pg.orders o", ""),
        ("SELECT o.at AS instant FROM pg.orders o", ""),
        ("SELECT x.instant FROM (SELECT * FROM pg.orders) x", ""),
        ("SELECT o.instant, p.instant FROM pg.orders o, pg.orders p", ""),
    ],
)
def test_a_range_is_asked_of_the_table_that_decides_about_it(sql: str, expected: str) -> None:
    assert bounded(sql) == expected


def test_a_range_of_changed_values_stays_with_the_result() -> None:
    sql = "SELECT o.instant AS changed, o.* FROM pg.orders o"
    assert bounded(sql, mapped={"instant": "changed"}) == "o.instant"
    assert bounded(sql, transforms_pre=("SELECT * FROM source",)) == ""
    assert bounded(sql, Integer(), "id") == ""
    assert bounded(sql, BigInt(), "id") == "o.id"


def test_a_range_is_written_for_the_database() -> None:
    instant, number = SourceColumn("instant", "timestamp_tz"), SourceColumn("id", "integer")
    assert bound_sql(number, "-5", None, None, "mysql") == "(`id` > -5 OR `id` IS NULL)"
    assert bound_sql(number, None, "9", None, "duckdb") == '("id" <= 9 OR "id" IS NULL)'
    back = timedelta(minutes=5)
    assert bound_sql(instant, "2026-01-02 03:04:05.5", "2026-01-03 00:00:00", back, "postgres") == (
        "(\"instant\" > CAST('2026-01-02 02:59:05.500000+00:00' AS TIMESTAMPTZ) "
        'AND "instant" <= CAST(\'2026-01-03 00:00:00+00:00\' AS TIMESTAMPTZ) OR "instant" IS NULL)'
    )
    part = timedelta(milliseconds=500)
    assert bound_sql(number, "-5", None, part, "mysql") == "(`id` > -6 OR `id` IS NULL)"
    assert bound_sql(instant, "2026-01-02 03:04:05", None, part, "postgres") == (
        '("instant" > CAST(\'2026-01-02 03:04:04.500000+00:00\' AS TIMESTAMPTZ) OR "instant" IS NULL)'
    ), "no later than the bound of the load itself"
    assert bound_sql(instant, "2026-01-02 03:04:05", None, None, "mysql") == ""
    assert bound_sql(instant, "some day", "2026-01-03 00:00:00", None, "postgres") == ""
    assert bound_sql(number, None, None, None, "postgres") == ""
