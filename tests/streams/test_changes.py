"""Kafka topics with change events into tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import CDC, ematix, pk
from ematix_flow.types import BigInt, Text  # noqa: TC001 - read from the annotations
from tests.streams.feeds import Topic, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@ematix.table(schema="shop", name="customers")
class Customers:
    """Mirrored customers."""

    id: Annotated[BigInt, pk()]
    name: Text | None
    city: Text | None


ROWS = "SELECT id, name, city FROM shop.customers ORDER BY id"


def event(op: str, lsn: int, after: Any = None, before: Any = None) -> dict[str, Any]:
    """Give an event of Debezium."""
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}}


def test_debezium_events_make_the_table(topic: Topic, warehouse: Path) -> None:
    topic.write([
        event("c", 1, {"id": 1, "name": "a", "city": "x"}),
        event("c", 2, {"id": 2, "name": "b", "city": "x"}),
        event("u", 3, {"id": 1, "name": "aa", "city": "x"}),
        event("d", 4, before={"id": 2}),
        None,
    ], partition=0)  # fmt: skip
    stream = topic.stream(duckdb_at(warehouse), target_table=Customers, cdc=CDC())
    drain(stream)
    assert rows_in(warehouse, ROWS) == [(1, "aa", "x")]
    topic.write([event("u", 2, {"id": 1, "name": "old", "city": "x"}), event("c", 3, {"id": 2, "name": "b"})], partition=1)
    drain(stream)
    assert rows_in(warehouse, ROWS) == [(1, "aa", "x")]
    topic.write([event("c", 5, {"id": 2, "name": "again"})], partition=1)
    drain(stream)
    assert rows_in(warehouse, ROWS) == [(1, "aa", "x"), (2, "again", None)]
