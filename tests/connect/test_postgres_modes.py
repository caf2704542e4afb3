"""What only PostgreSQL asks of the mode programs: a json column has no equality, in a target or beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.declare.connection.registry import PostgresConnection
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import JSON, BigInt, TimestampTZ
from tests.contracts.loads import Loader

pytestmark = pytest.mark.service

TABLE = Table(
    "docs",
    "docs",
    (
        Column(BigInt(), primary_key=True, nullable=False, name="id"),
        Column(JSON(), name="doc"),
        Column(TimestampTZ(), nullable=False, name="at"),
    ),
)


def row(doc: str, day: int) -> dict[str, Any]:
    return {"id": 1, "doc": doc, "at": datetime(2025, 1, day, tzinfo=UTC)}


def loader(url: str, **options: Any) -> Loader:
    return Loader(Postgres(PostgresConnection("pg", url=url)), TABLE, options)


def test_json_is_remembered_by_scd2_as_it_was_written(postgres_url: str) -> None:
    loads = loader(postgres_url, mode="scd2", event_timestamp_column="at", compare_columns=["doc"])
    loads.load([row('{"a":  1}', 1), row('{"a":  1}', 3)])
    loads.load([row('{"b": 1}', 2)])
    assert [one[0] for one in loads.rows("doc", order="valid_from")] == [{"a": 1}, {"b": 1}, {"a": 1}]


def test_json_is_merged_by_its_text(postgres_url: str) -> None:
    loads = loader(postgres_url, mode="merge", compare_columns=["doc"])
    loads.load([row('{"a": 1}', 1)])
    assert loads.load([row('{"a": 1}', 1)]).counts.unchanged == 1
    assert loads.load([row('{"a":  1}', 1)]).counts.updated == 1
