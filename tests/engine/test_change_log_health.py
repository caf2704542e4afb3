"""`flow doctor` and logs of databases: what can be read, and what a server or a role lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from ematix_flow.declare.connection.registry import (
    MySQLCDCConnection,
    PostgresCDCConnection,
    connection_from_fields,
    register_connection,
)
from ematix_flow.declare.stream.cdc import CDC
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.stream.toml_writer import toml_of
from ematix_flow.engine.doctor import check_health
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.service


@pytest.fixture
def reader_url(postgres_url: str) -> Iterator[str]:
    """Return the URL of a role that may read tables and no log."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS plain_reader")
        connection.execute("CREATE ROLE plain_reader LOGIN PASSWORD 'canary-role-1'")
    parts = urlsplit(postgres_url)
    yield f"postgresql://plain_reader:canary-role-1@{parts.hostname}:{parts.port}{parts.path}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE plain_reader")


def test_a_server_whose_changes_can_be_read(postgres_url: str, mysql_url: str) -> None:
    register_connection(PostgresCDCConnection("pg", url=postgres_url))
    register_connection(MySQLCDCConnection("my", url=mysql_url))
    first, second = check_health("pg"), check_health("my")
    assert (first.status, second.status) == ("ok", "ok")
    assert "wal_level = logical" in first.detail
    assert "replication slots in use" in first.detail
    assert "whole rows in its log" in second.detail


def test_a_role_that_may_not_read_changes(reader_url: str) -> None:
    register_connection(PostgresCDCConnection("pg", url=reader_url))
    report = check_health("pg")
    assert report.status == "fail"
    assert "ALTER ROLE ... REPLICATION" in report.detail
    assert "canary" not in report.detail


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "postgres_cdc", "url": "mysql://u@h/d"}, "has a URL of mysql"),
        ({"kind": "postgres_cdc", "url": "postgresql://h/d", "slot": "Not One"}, "slot that PostgreSQL cannot name"),
        ({"kind": "postgres_cdc", "url": "postgresql://h/d", "publication": "p" * 64}, "too long a name"),
        ({"kind": "mysql_cdc", "url": "mysql://u@h/d", "server_id": 0}, "impossible server_id"),
        ({"kind": "mysql_cdc", "url": "mysql://u@h/d", "auto_offset_reset": "middle"}, "unknown auto_offset_reset"),
        ({"kind": "postgres_cdc"}, "needs url"),
    ],
)
def test_settings_that_no_server_takes_are_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(DeclareError, match=problem):
        connection_from_fields("c", fields)


def test_a_stream_of_changes_is_declared_in_toml_as_in_python() -> None:
    text = """
pipeline_name = "orders"
source_query = "shop.orders"
[source]
kind = "postgres_cdc"
url = "${SHOP_DSN}"
slot = "flow_orders"
[target]
kind = "sqlite"
path = "t.db"
table = { schema = "main", name = "orders" }
[transform.cdc]
envelope = "debezium"
"""
    stream = stream_from_toml(text)
    (source,) = stream.sources
    assert source.connection == PostgresCDCConnection("source", url="${SHOP_DSN}", slot="flow_orders")
    assert (source.query, stream.cdc) == ("shop.orders", CDC())
    assert stream_from_toml(toml_of(stream)) == stream
