"""Kafka topics into tables of versions: several messages of a key in one batch, and what a rewind makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import ematix, pk
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.types import BigInt, Text, TimestampTZ  # noqa: TC001 - read from the annotations
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@ematix.table(schema="shop", name="customers")
class Customers:
    """Where customers live."""

    id: Annotated[BigInt, pk()]
    city: Text | None
    at: TimestampTZ | None


def moved(day: int, city: str, key: int = 1) -> dict[str, Any]:
    return {"id": key, "city": city, "at": f"2026-01-{day:02}T00:00:00Z"}


def versions(path: Path) -> list[tuple[Any, ...]]:
    """Return city, first and last day and whether it is the current one, of every version of customer 1."""
    days = ", ".join(f"day({end} AT TIME ZONE 'UTC')" for end in ("valid_from", "valid_to"))
    return rows_in(path, f"SELECT city, {days}, is_current FROM shop.customers WHERE id = 1 ORDER BY valid_from")


BY_EVENT = {"mode": "scd2", "event_timestamp_column": "at"}


@pytest.mark.parametrize("most", [1, 2, 100])
def test_every_event_of_a_key_in_a_batch_is_a_version_and_a_rewind_changes_nothing(
    topic: Topic, warehouse: Path, most: int
) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Customers, **BY_EVENT)
    messages = [moved(1, "Rome"), moved(5, "Pisa"), moved(3, "Bari"), moved(2, "Oslo", key=2)]
    topic.write(messages, partition=0)
    drain(stream, most=most)
    expected = [("Rome", 1, 3, False), ("Bari", 3, 5, False), ("Pisa", 5, None, True)]
    assert versions(warehouse) == expected
    before = rows_in(warehouse, "SELECT * FROM shop.customers ORDER BY ALL")
    move_stream(stream, "earliest", StreamOptions())
    assert drain(stream, most=most)["total_rows"] == len(messages)
    assert rows_in(warehouse, "SELECT * FROM shop.customers ORDER BY ALL") == before
    topic.write([moved(4, "Genoa"), moved(6, "Milan")], partition=0)
    drain(stream, most=most)
    assert [city for city, *_ in versions(warehouse)] == ["Rome", "Bari", "Genoa", "Pisa", "Milan"]


@pytest.mark.parametrize("cities", [("Bari", "Pisa"), ("Pisa", "Bari")])
def test_of_two_messages_with_one_event_time_the_greater_counts_whichever_came_last(
    topic: Topic, warehouse: Path, cities: tuple[str, str]
) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Customers, **BY_EVENT)
    topic.write([moved(1, "Rome"), *(moved(2, city) for city in cities)], partition=0)
    drain(stream)
    expected = [("Rome", 1, 2, False), ("Pisa", 2, None, True)]
    assert versions(warehouse) == expected
    move_stream(stream, "earliest", StreamOptions())
    drain(stream)
    assert versions(warehouse) == expected


def test_by_load_time_the_last_message_of_a_batch_is_the_version_also_after_a_rewind(
    topic: Topic, warehouse: Path
) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Customers, mode="scd2")
    topic.write([moved(1, "Rome"), moved(2, "Bari"), moved(3, "Pisa")], partition=0)
    drain(stream)
    before = rows_in(warehouse, "SELECT * FROM shop.customers")
    assert [(row[1], len(before)) for row in before] == [("Pisa", 1)]
    move_stream(stream, "earliest", StreamOptions())
    assert drain(stream)["total_rows"] == 3
    assert rows_in(warehouse, "SELECT * FROM shop.customers") == before
