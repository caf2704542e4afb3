"""Pipelines into and out of Snowflake, against a stand-in for it: the order of statements, and that no row comes twice."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any

import pytest
from sqlglot import exp, parse_one

from ematix_flow.connect.snowflake.session import connect_arguments, copy_sql
from ematix_flow.declare.connection.registry import SnowflakeConnection
from ematix_flow.errors import DeclareError, MissingExtraError, RunError
from ematix_flow.warehouse_pipeline import FileWatermarkStore
from tests.engine.snowflake_account import Account
from tests.engine.warehouse_flows import copying, interrupted_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONNECTION = SnowflakeConnection(
    "flake", account="org-acc", user="u", password="canary-flake", warehouse="w", database="d", schema="s"
)
ORDERS = """CREATE TABLE orders AS SELECT * FROM (VALUES
(1, 'tea', 2.50::DECIMAL(10, 2), TRUE, 0.5::DOUBLE, DATE '2026-01-01', TIMESTAMP '2026-01-01 10:00:00',
 TIMESTAMPTZ '2026-01-01 10:00:00+00'),
(300, 'it''s \\ "salt"', 1.20, FALSE, NULL, NULL, NULL, NULL)) AS t(id, name, price, paid, weight, day, made, seen)"""


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    account = Account(tmp_path)
    account.rows(ORDERS)
    package = type(sys)("snowflake")
    monkeypatch.setitem(sys.modules, "snowflake", package)
    monkeypatch.setitem(sys.modules, "snowflake.connector", account.module)
    yield account
    account.database.close()


def pipeline(sql: str = "SELECT * FROM orders", transform: str | None = None, **more: Any) -> Callable[[], Any]:
    return copying(CONNECTION, sql, transform, **more)


@pytest.mark.slow
def test_rows_arrive_as_they_were(account: Account) -> None:
    result = pipeline()()
    assert (result["status"], result["rows_read"], result["rows_written"]) == ("success", 2, 2)
    assert account.rows("SELECT * FROM copied ORDER BY id") == account.rows("SELECT * FROM orders ORDER BY id")


@pytest.mark.slow
def test_statements_come_in_the_order_that_keeps_rows_single(account: Account) -> None:
    pipeline("SELECT id FROM orders", "SELECT id, id / 2 AS half FROM source")()
    kinds = [" ".join(statement.split()[:3]) for statement in account.statements]
    assert kinds == [
        "CREATE TABLE IF",  # the ledger
        'INSERT INTO "EMATIX_FLOW_LOADS"',  # the row that loads lock
        "SELECT rows_read, rows_written,",
        "SELECT id FROM",
        kinds[4],
        "CREATE TEMPORARY STAGE",
        kinds[6],
        kinds[7],
        "SELECT COUNT(*) FROM",
        "CREATE TABLE IF",
        "BEGIN",
        'UPDATE "EMATIX_FLOW_LOADS" SET',
        "SELECT rows_read, rows_written,",
        'INSERT INTO "COPIED"',
        'INSERT INTO "EMATIX_FLOW_LOADS"',
        "COMMIT",
    ]
    assert kinds[4].startswith("CREATE TEMPORARY TABLE")
    assert kinds[6].startswith("PUT 'file://")
    assert kinds[7].startswith('COPY INTO "_FLOW_ROWS_')


@pytest.mark.slow
@pytest.mark.parametrize("point", ["warehouse.before_commit", "warehouse.after_commit"])
def test_a_run_that_is_interrupted_adds_its_rows_once(account: Account, point: str) -> None:
    copy = pipeline()
    with interrupted_at(point):
        copy()
    assert copy()["rows_written"] == 2
    assert account.rows("SELECT count(*) FROM copied") == [(2,)]
    assert account.rows("SELECT count(*) FROM ematix_flow_loads WHERE token <> 'lock'") == [(1,)]


@pytest.mark.slow
def test_an_answer_to_commit_that_is_lost_is_looked_up(account: Account) -> None:
    account.cut_at = "COMMIT"
    assert pipeline()()["rows_written"] == 2
    assert account.rows("SELECT count(*) FROM copied") == [(2,)]


@pytest.mark.slow
def test_only_rows_above_the_watermark_are_read(account: Account, tmp_path: Path) -> None:
    store = FileWatermarkStore(tmp_path / "watermarks.json")
    copy = pipeline(incremental_column="ID", watermark_store=store)
    assert [copy()["rows_read"], copy()["rows_read"]] == [2, 0]
    account.rows("INSERT INTO orders (id, name) VALUES (301, 'rice')")
    assert copy()["rows_read"] == 1
    assert account.rows("SELECT id FROM copied ORDER BY id") == [(1,), (300,), (301,)]


def test_errors_name_the_connection_and_no_secret(account: Account) -> None:
    with pytest.raises(RunError, match=r"snowflake connection .flake.: .*missing") as caught:
        pipeline("SELECT * FROM missing")()
    assert "canary-flake" not in str(caught.value)
    assert account.arguments["password"] == "canary-flake"


def test_the_connector_is_called_as_it_documents() -> None:
    assert connect_arguments(CONNECTION) == {
        "account": "org-acc",
        "user": "u",
        "warehouse": "w",
        "database": "d",
        "schema": "s",
        "password": "canary-flake",
        "autocommit": True,
        "login_timeout": 60,
        "application": "ematix_flow",
        "session_parameters": {"TIMEZONE": "UTC", "QUERY_TAG": "ematix-flow"},
    }
    body = base64.b64encode(b"der").decode()
    pem = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    keyed = SnowflakeConnection("flake", account="a", user="u", private_key=pem)
    assert connect_arguments(keyed)["private_key"] == b"der"
    assert "password" not in connect_arguments(keyed)
    for wrong in ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----", "canary key"):
        with pytest.raises(DeclareError, match="no unencrypted") as caught:
            connect_arguments(SnowflakeConnection("flake", account="a", user="u", private_key=wrong))
        assert "canary key" not in str(caught.value)


def test_a_copy_is_one_of_snowflake() -> None:
    copy = parse_one(copy_sql('"R"', '"F"'), dialect="snowflake")
    assert isinstance(copy, exp.Copy)


def test_without_the_connector_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowflake", None)
    monkeypatch.setitem(sys.modules, "snowflake.connector", None)
    with pytest.raises(MissingExtraError, match=r"ematix-flow-spark\[snowflake\]"):
        pipeline()()
