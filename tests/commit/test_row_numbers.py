"""Numbers of staged rows: every query gives a row the same one."""

from __future__ import annotations

import duckdb

from ematix_flow.commit.row_numbers import Only, numbered
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.types import BigInt


def test_the_rows_of_one_column_have_the_same_numbers_in_every_query() -> None:
    first = numbered((StageColumn("id", BigInt()),), "duckdb", "(SELECT 1 AS id UNION ALL SELECT NULL)", Only(up_to=1))
    with duckdb.connect() as connection:
        firsts = {connection.execute(f"SELECT * FROM {first} AS rows").fetchall()[0][0] for _ in range(200)}
    assert firsts == {1}
