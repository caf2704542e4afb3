"""Queries over files: which tables they name, and the same text over views of other names."""

from __future__ import annotations

import pytest

from ematix_flow.plan.sql.user.named_tables import over_views, tables_named

KNOWN = ("source", "orders", "Customers")


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT * FROM source", ("source",)),
        ("SELECT source FROM orders", ("orders",)),
        ("SELECT * FROM orders o JOIN customers c ON o.id = c.id", ("orders", "Customers")),
        ("WITH orders AS (SELECT 1 AS id) SELECT * FROM orders, source", ("source",)),
        ("SELECT 'orders' AS word FROM source -- not customers", ("source",)),
        ("SELECT * FROM delta.orders", ()),
        ("SELECT 1", ()),
        ("SELECT * FROM orders LATERAL NONSENSE (", ("orders",)),
    ],
)
def test_a_query_names_the_tables_it_reads(sql: str, named: tuple[str, ...]) -> None:
    assert tables_named(sql, KNOWN) == named


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM a", "WITH `a` AS (SELECT * FROM `v1`) SELECT * FROM a"),
        ("-- mine\nwith b as (select * from a) select * from b",
         "-- mine\nwith `a` AS (SELECT * FROM `v1`),  b as (select * from a) select * from b"),
        ("WITH RECURSIVE b AS (SELECT 1) SELECT * FROM a",
         "WITH RECURSIVE `a` AS (SELECT * FROM `v1`),  b AS (SELECT 1) SELECT * FROM a"),
    ],
)  # fmt: skip
def test_views_of_other_names_stand_for_the_tables(sql: str, expected: str) -> None:
    assert over_views(sql, {"a": "v1"}) == expected


def test_a_query_without_tables_stays_as_it_is() -> None:
    assert over_views("SELECT 1", {}) == "SELECT 1"
