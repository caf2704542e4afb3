"""Joins with lookups of versions: what is asked of them, and what cannot be."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import transpile

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.as_of import as_of_sql

VERSIONS = """
    CREATE TABLE prices AS SELECT * FROM (VALUES
        (1, 10, TIMESTAMP '2026-01-01', TIMESTAMP '2026-02-01'), (1, 20, '2026-02-01', NULL), (NULL, 5, '2026-01-01', NULL)
    ) AS t(id, price, valid_from, valid_to)
"""
ROWS = """
    CREATE TABLE source AS SELECT n, id, CAST("at" AS TIMESTAMP) AS "at" FROM (VALUES
        (1, 1, '2025-12-31'), (2, 1, '2026-01-01'), (3, 1, '2026-01-31 23:59:59.999999'), (4, 1, '2026-02-01'), (5, 2, '2026-02-01'),
        (6, NULL, '2026-02-01'), (7, 1, NULL)
    ) AS t(n, id, "at")
"""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT s.n, p.price FROM source AS s LEFT JOIN prices AS p ON p.id = s.id",
        "SELECT n, price FROM source LEFT OUTER JOIN prices ON prices.id = source.id",
        "WITH a AS (SELECT n, id, `at` FROM source) SELECT n, price FROM a LEFT JOIN Prices p ON p.id = a.id OR FALSE",
        "SELECT x.n, x.price FROM (SELECT s.n, q.price FROM (SELECT * FROM source) s LEFT JOIN prices q ON q.id = s.id) x",
    ],
)
def test_each_row_has_the_version_of_its_time(sql: str) -> None:
    given = as_of_sql(sql, {"prices": "at"})
    with duckdb.connect() as connection:
        connection.execute(VERSIONS)
        connection.execute(ROWS)
        (plain,) = transpile(given, read="spark", write="duckdb")
        rows = connection.execute(plain.replace("TIMESTAMPTZ", "TIMESTAMP")).fetchall()
    assert sorted(rows) == [(1, None), (2, 10), (3, 10), (4, 20), (5, None), (6, None), (7, None)]


@pytest.mark.parametrize(
    ("sql", "how"),
    [
        ("SELECT * FROM prices", "is read by itself"),
        ("SELECT * FROM source RIGHT JOIN prices ON prices.id = source.id", "is in a RIGHT JOIN"),
        ("SELECT * FROM source NATURAL JOIN prices", "is in a NATURAL JOIN"),
        ("SELECT * FROM source JOIN prices USING (id)", "is joined without ON"),
        ("SELECT * FROM source, prices WHERE prices.id = source.id", "is in a CROSS JOIN"),
        ("SELECT * FROM source WHERE EXISTS (SELECT 1 FROM prices WHERE prices.id = source.id)", "is read by itself"),
        (
            "SELECT * FROM source s WHERE s.id IN (SELECT 1 FROM other JOIN prices p ON p.id = other.id)",
            "joined to nothing",
        ),
        ("SELECT * FROM source s JOIN source t ON s.id = t.id JOIN prices p ON p.id = s.id", "joined to s and t"),
    ],
)
def test_other_ways_to_read_versions_are_refused(sql: str, how: str) -> None:
    with pytest.raises(PlanError, match=how):
        as_of_sql(sql, {"prices": "at"})


def test_other_lookups_are_left_alone() -> None:
    sql = "SELECT * FROM source RIGHT JOIN users ON users.id = source.id"
    assert as_of_sql(sql, {}) == sql
    assert as_of_sql(sql, {"prices": "at"}) == sql
    shadowed = "WITH prices AS (SELECT id FROM source) SELECT * FROM prices"
    assert as_of_sql(shadowed, {"prices": "at"}) == shadowed
