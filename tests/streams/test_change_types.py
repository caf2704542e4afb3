"""Change events into tables that exist, with types of their own, and events whose schema is in a registry."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import psycopg
import pytest

from ematix_flow import CDC
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Numeric, Timestamp
from tests.connect.registries import avro_messages, record, registry_at
from tests.streams.feeds import drain, duckdb_at, rows_in
from tests.streams.mirrors import event

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.registry import RegistryServer
    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@pytest.fixture(autouse=True)
def _on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")


def test_a_table_with_types_of_its_own(topic: Topic, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('glad', 'sad')")
        connection.execute(
            "CREATE TABLE things (id bigint PRIMARY KEY, mood mood, tags text[], note json, at timestamptz, n numeric(6,2), "
            "made timestamptz DEFAULT now())"
        )
    target = connection_from_fields("target", {"kind": "postgres", "url": postgres_url})
    stream = topic.stream(target, target_table=("public", "things"), cdc=CDC())
    row = {"id": 1, "mood": "glad", "tags": "{a,b}", "note": {"x": 1}, "at": 1767225600000000, "n": 1.5}
    topic.write([event("c", 1, row)], partition=0)
    drain(stream)
    topic.write([event("u", 2, {"id": 1, "mood": "sad"}), event("c", 3, {**row, "id": 2, "note": None})], partition=0)
    drain(stream)
    topic.write([event("d", 4, None, {"id": 2})], partition=0)
    drain(stream)
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT id, mood::text, tags, note, at::text, n::text FROM things").fetchall()
    assert rows == [(1, "sad", ["a", "b"], {"x": 1}, "2026-01-01 00:00:00+00", "1.50")]
    assert json.dumps(rows[0][3]) == '{"x": 1}'


def test_events_of_debezium_as_avro(topic: Topic, registry_server: RegistryServer, warehouse: Path) -> None:
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
            {"name": "n", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}]},
        ],
    }
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "lsn", "type": "long"}, {"name": "ts_ms", "type": "long"}],
    }
    schema = record(
        ("before", ["null", row]), ("after", ["null", "Value"]), ("source", source), ("op", "string"), name="Envelope"
    )
    value = {"id": 1, "at": 1767225600000001, "n": Decimal("1.50")}
    events = [
        {"before": None, "after": value, "source": {"lsn": 1, "ts_ms": 1}, "op": "c"},
        {"before": None, "after": {**value, "id": 2}, "source": {"lsn": 2, "ts_ms": 1}, "op": "c"},
        {"before": {**value, "id": 2}, "after": None, "source": {"lsn": 3, "ts_ms": 1}, "op": "d"},
    ]
    registry = registry_at(registry_server.url)
    topic.write(avro_messages(registry, f"{topic.name}-value", schema, events), partition=0)
    topic.options |= {"payload_format": "avro", "schema_registry_url": registry_server.url}
    columns = (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Timestamp(), nullable=True, name="at"),
        Column(Numeric(6, 2), nullable=True, name="n"),
    )
    drain(topic.stream(duckdb_at(warehouse), target_table=Table("shop", "things", columns), cdc=CDC()))
    assert rows_in(warehouse, 'SELECT id, CAST("at" AS VARCHAR), CAST(n AS VARCHAR) FROM shop.things') == [
        (1, "2026-01-01 00:00:00.000001", "1.50")
    ]
