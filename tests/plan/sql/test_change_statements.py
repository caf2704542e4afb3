"""Changes on PostgreSQL: how their versions are found without statistics, and keys as texts."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import psycopg
import pytest

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.types import UUID, BigInt, Text
from ematix_flow.plan.sql.modes.change_rows import key_json
from ematix_flow.plan.sql.modes.changes import EVENTS, apply_changes
from ematix_flow.plan.sql.program import ChangeRules, Load
from ematix_flow.plan.sql.render import STAGED

pytestmark = pytest.mark.service

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ODD = 'b"\\é'


def load_of(*columns: StageColumn) -> Load:
    """Return a load of changes of a table whose columns are its key."""
    rules = ChangeRules("scope", TableName("", "versions"))
    keys = tuple(column.name for column in columns)
    return Load(
        "postgres", TableName("", "t"), columns, NOW, "00000000-0000-0000-0000-000000000000", keys, changes=rules
    )


def test_versions_are_looked_up_by_their_key_before_the_server_has_statistics(postgres_url: str) -> None:
    statement = apply_changes(load_of(StageColumn("id", BigInt()))).statements[0].sql
    change = (
        "_flow_change text, _flow_version text, _flow_change_at timestamptz, _flow_change_ms bigint, _flow_carries text"
    )
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "CREATE TABLE versions (pipeline_name varchar(255), pk_json text, last_order text, last_seen_ts_ms bigint, "
            "updated_at timestamptz, PRIMARY KEY (pipeline_name, pk_json)) WITH (autovacuum_enabled = off)"
        )
        connection.execute("INSERT INTO versions SELECT 'scope', i::text, '1' FROM generate_series(1, 10000) AS i")
        connection.execute(f'CREATE TEMP TABLE "{STAGED}" (id bigint, {change})'.encode())
        connection.execute(f"INSERT INTO \"{STAGED}\" SELECT i, 'c', '1' FROM generate_series(1, 10000) AS i".encode())
        connection.execute(f'CREATE TEMP TABLE "{EVENTS}" (id bigint, _flow_key text, {change})'.encode())
        connection.execute(f'ANALYZE "{STAGED}"'.encode())
        row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode()).fetchone()
    assert row is not None
    plan = json.dumps(row[0])
    assert "Join" not in plan, "pairs of changes and versions are not compared"
    assert "pk_json = e._flow_key" in plan


def test_keys_are_the_texts_of_jsonb_objects(postgres_url: str) -> None:
    load = load_of(StageColumn("zz", BigInt()), StageColumn(ODD, Text()), StageColumn("a", UUID()))
    quoted = '"' + ODD.replace('"', '""') + '"'
    objects = f"jsonb_build_object('zz', s.zz, '{ODD}', s.{quoted}, 'a', s.a)::text"
    rows = f"(VALUES (1::bigint, E'x\"\\\\\\n\\x01é'::text, gen_random_uuid()), (-5, NULL, NULL)) AS s(zz, {quoted}, a)"
    with psycopg.connect(postgres_url) as connection:
        for ours, theirs in connection.execute(f"SELECT {key_json(load, 's')}, {objects} FROM {rows}".encode()):
            assert ours == theirs
