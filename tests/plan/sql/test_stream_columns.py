"""The columns that the SQL of a stream takes from its batch: those that it defines itself are not among them."""

from __future__ import annotations

import pytest

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.stream_columns import lacking, spark_type, strange

FIELDS = ("id", "at", "items", "doc", "Name")
LOOKUPS = {"users": ("id", "tier")}
RANKED = "WITH r AS (SELECT *, row_number() OVER (PARTITION BY id ORDER BY at) AS rn FROM source) "


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM source",
        f"{RANKED}SELECT id, rn FROM r WHERE rn = 1",
        f"{RANKED}SELECT * EXCEPT (rn) FROM r WHERE rn = 1",
        "SELECT id, item FROM source LATERAL VIEW explode(items) t AS item",
        "SELECT id, t.item FROM source LATERAL VIEW OUTER explode(items) t AS item WHERE item > 1",
        "SELECT id, pos, item FROM source LATERAL VIEW posexplode(items) t AS pos, item",
        "SELECT id, key, value FROM source LATERAL VIEW explode(doc) t",
        "SELECT id, pos, col FROM source LATERAL VIEW OUTER posexplode(items) t WHERE col > 1",
        "SELECT id, item FROM source, LATERAL explode(items) AS t(item)",
        "SELECT id, a, b FROM source LATERAL VIEW inline(items) t AS a, b",
        "SELECT doc.a.b AS b, doc.c, s.doc.d FROM source s",
        "SELECT doc.* FROM source ORDER BY 1",
        "SELECT transform(items, x -> x + id) AS y, filter(items, (e, i) -> i > 0) AS z FROM source",
        "SELECT id AS k, k + 1 AS m FROM source",
        "SELECT id % 2 AS g, count(*) AS n FROM source GROUP BY g HAVING n > 1 ORDER BY n",
        "SELECT s.id, tier FROM source s JOIN users u ON u.id = s.id",
        "SELECT id, tier FROM source JOIN users USING (id)",
        "SELECT (SELECT max(tier) FROM users u WHERE u.id = source.id) AS t FROM source",
        "SELECT NAME, `Name`, name FROM source",
        "SELECT v FROM source, VALUES (1) AS t(v)",
        "SELECT id FROM source UNION ALL SELECT at FROM source ORDER BY id",
        "SELECT at AS v FROM source EXCEPT SELECT id FROM source ORDER BY V DESC, 1",
        "SELECT id FROM source WHERE id IN (SELECT * FROM source INTERSECT SELECT tier FROM users ORDER BY id)",
        "SELECT current_date, current_timestamp() AS t, sum(id) OVER w AS x FROM source WINDOW w AS (PARTITION BY at)",
    ],
)
def test_what_a_query_defines_or_a_lookup_has_is_not_lacking(sql: str) -> None:
    assert lacking(sql, FIELDS, LOOKUPS) == frozenset()


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT id, amount FROM source", {"amount"}),
        ("SELECT s.id, s.Amount FROM source s", {"amount"}),
        ("SELECT id, amount AS amount FROM source WHERE amount > 0", {"amount"}),
        ("SELECT id, upper(nick) AS nick FROM source ORDER BY nick", {"nick"}),
        ("SELECT other.a.b FROM source", {"other"}),
        ("SELECT key, explode(items) AS item FROM source", {"key"}),
        ("SELECT key, item FROM source LATERAL VIEW explode(items) t AS item", {"key"}),
        (f"{RANKED}SELECT id, rn, amount FROM r WHERE rn = 1", {"amount"}),
        ("WITH a AS (SELECT * FROM source), b AS (SELECT * FROM a) SELECT amount FROM b", {"amount"}),
        ("SELECT id FROM source UNION ALL SELECT amount FROM source", {"amount"}),
        ("SELECT id FROM source UNION SELECT id FROM source ORDER BY amount", {"amount"}),
        ("SELECT id FROM source WHERE id IN (SELECT id FROM users WHERE tier = level)", {"level"}),
        ("SELECT s.key, tier FROM source s LEFT JOIN users u ON u.id = s.user_id", {"key", "user_id"}),
        ("SELECT k, tier FROM source JOIN users USING (k)", {"k"}),
        ("SELECT * EXCEPT (secret) FROM source", {"secret"}),
        ("SELECT item FROM source LATERAL VIEW explode(things) t AS item", {"things"}),
    ],
)
def test_what_only_the_batch_could_have_is_lacking(sql: str, names: set[str]) -> None:
    assert lacking(sql, FIELDS, LOOKUPS) == names


INNER = ("sku", "Price")


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("WITH q AS (SELECT *, doc.* FROM source) SELECT id, sku, price FROM q", set()),
        ("SELECT id, sku FROM (SELECT s.*, s.doc.part.* FROM source s) WHERE price > 1", set()),
        ("SELECT id, sku FROM (SELECT *, inline(items) FROM source)", set()),
        ("SELECT q.id, q.sku FROM (SELECT *, item.* FROM source LATERAL VIEW explode(items) t AS item) AS q", set()),
        ("SELECT id, sku, nick FROM (SELECT *, doc.* FROM source)", {"nick"}),
        ("SELECT id, sku, doc.* FROM source", {"sku"}),
        ("SELECT id, sku FROM (SELECT s.* FROM source s)", {"sku"}),
    ],
)
def test_fields_that_a_query_takes_out_of_a_value_are_its_own(sql: str, names: set[str]) -> None:
    assert lacking(sql, FIELDS, LOOKUPS, INNER) == names


def test_a_column_that_a_lookup_has_not_is_strange() -> None:
    assert strange("SELECT s.id, u.tiger FROM source s JOIN users u ON u.id = s.id", LOOKUPS) == ("users", "tiger")
    assert strange("SELECT s.any, U.Tier FROM source s JOIN Users U ON u.id = s.id", LOOKUPS) is None


def test_a_type_is_spelled_as_spark_does_or_refused() -> None:
    assert spark_type("array<struct<a: int>>") == "ARRAY<STRUCT<a: INT>>"
    with pytest.raises(PlanError, match="bogus"):
        spark_type("bogus")
