"""The statements of loads into warehouses: names, texts and the order of the transaction."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from sqlglot import parse

from ematix_flow.errors import DeclareError
from ematix_flow.plan.warehouse import (
    LoadFacts,
    commit_of,
    create_ledger_sql,
    create_table_sql,
    source_sql,
    table_sql,
    watermark_text,
)

FACTS = LoadFacts("t0", "it's \\ mine", 3, 2, '"2026-01-01"', "2026-01-02 03:04:05")


def test_the_transaction_of_redshift() -> None:
    commit = commit_of("shop.orders", "redshift", '"staged"', ["id", "Order"], FACTS)
    assert commit.lock == 'LOCK TABLE "shop"."ematix_flow_loads"'
    assert commit.recorded == (
        'SELECT rows_read, rows_written, watermark FROM "shop"."ematix_flow_loads" WHERE token = \'t0\''
    )
    added, recorded = commit.write
    assert added == 'INSERT INTO "shop"."orders" ("id", "Order") SELECT "id", "Order" FROM "staged"'
    assert recorded == (
        'INSERT INTO "shop"."ematix_flow_loads" (token, pipeline, rows_read, rows_written, watermark, committed_at) '
        "VALUES ('t0', 'it''s \\ mine', 3, 2, '\"2026-01-01\"', '2026-01-02 03:04:05')"
    )


@pytest.mark.parametrize(
    ("kind", "ledger", "target"),
    [
        ("snowflake", '"SHOP"."EMATIX_FLOW_LOADS"', '"SHOP"."my table"'),
        ("bigquery", "`shop`.`ematix_flow_loads`", "`shop`.`my table`"),
    ],
)
def test_the_transaction_of_the_others_begins_with_an_update(kind: str, ledger: str, target: str) -> None:
    commit = commit_of("shop.my table", kind, "staged", ["id"], FACTS)
    assert commit.lock == f"UPDATE {ledger} SET committed_at = '2026-01-02 03:04:05' WHERE token = 'lock'"
    assert commit.write[0].startswith(f"INSERT INTO {target} (")
    assert "'it\\'s \\\\ mine'" in commit.write[1]
    for statement in (*create_ledger_sql("shop.my table", kind), commit.lock, commit.recorded, *commit.write):
        assert len(parse(statement, dialect=kind)) == 1


def test_a_clock_of_the_leader_is_in_no_statement_of_redshift() -> None:
    commit = commit_of("orders", "redshift", "staged", ["id"], FACTS)
    created = (*create_ledger_sql("orders", "redshift"), create_table_sql("orders", "redshift", "id BIGINT"))
    for statement in (*created, commit.lock, commit.recorded, *commit.write):
        assert "CURRENT_TIMESTAMP" not in statement
        assert "now()" not in statement.lower()


def test_a_table_without_a_name_is_refused() -> None:
    with pytest.raises(DeclareError, match="empty part"):
        table_sql("shop.", "redshift")


@pytest.mark.parametrize(
    ("value", "stored", "literal"),
    [
        (7, "7", "7"),
        (2.5, "2.5", "2.5"),
        (Decimal("12345678901234567890.10"), "12345678901234567890.10", "12345678901234567890.10"),
        (dt.date(2026, 1, 1), '"2026-01-01"', "'2026-01-01'"),
        (dt.datetime(2026, 1, 1, 2, tzinfo=dt.UTC), '"2026-01-01 02:00:00+00:00"', "'2026-01-01 02:00:00+00:00'"),
        ("o'k", '"o\'k"', "'o''k'"),
    ],
)
def test_a_watermark_comes_back_as_it_was(value: Any, stored: str, literal: str) -> None:
    assert watermark_text(value) == stored
    read = source_sql("SELECT * FROM t;", "redshift", "at", stored)
    assert read == f'SELECT * FROM (\nSELECT * FROM t\n) AS _flow_source WHERE "at" > {literal}'
    assert source_sql("SELECT * FROM t;", "redshift", None, None) == "SELECT * FROM t"
