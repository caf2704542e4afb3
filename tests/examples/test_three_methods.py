"""One definition of a stream, run in three ways: until it is stopped, for what is there, and over a range; the rows are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.streaming import get_streaming_pipeline
from tests.examples.databases import UserDatabase
from tests.examples.streaming import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.examples.streaming import World
    from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("brokers")]

COUNT = 300
TEXTS = ("opened", None, "it's", "Grüße", "")


@pytest.fixture
def warehouses(postgres_server: PostgresServer) -> Iterator[Callable[[], UserDatabase]]:
    """Return the function that makes a warehouse with an empty table of events."""
    urls: list[str] = []

    def create() -> UserDatabase:
        urls.append(postgres_server.create_database())
        database = UserDatabase(urls[-1])
        database.run("CREATE TABLE public.events (event_id BIGINT, name TEXT, amount NUMERIC(10,2), _offset BIGINT)")
        return database

    yield create
    for url in urls:
        postgres_server.drop_database(url)


def _send(world: World, begin: int, end: int) -> None:
    world.send("events", *(_event(number) for number in range(begin, end)))


def _event(number: int) -> dict[str, Any]:
    return {"event_id": number, "name": TEXTS[number % len(TEXTS)], "amount": f"{number}.{number % 100:02}"}


def _rows(database: UserDatabase) -> list[tuple[Any, ...]]:
    return database.rows("SELECT event_id, name, amount::text, _offset FROM public.events ORDER BY event_id, _offset")


def test_a_stream_gives_the_same_rows_however_it_is_run(
    world: World, warehouses: Callable[[], UserDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.declare()
    stream = get_streaming_pipeline("events_to_pg")

    triggered = warehouses()
    monkeypatch.setenv("WAREHOUSE_DSN", triggered.url)
    for begin, end in ((0, 1), (1, 200), (200, COUNT)):
        _send(world, begin, end)
        assert stream(available_now=True)["total_rows"] == end - begin
    assert stream(available_now=True) == {"total_rows": 0, "iterations": 0, "shutdown_triggered": False}

    continuous = warehouses()
    monkeypatch.setenv("WAREHOUSE_DSN", continuous.url)
    for count in (100, COUNT):
        with Stopped(lambda count=count: continuous.count("public.events") >= count):
            assert stream(most=50)["shutdown_triggered"]

    ranged = warehouses()
    monkeypatch.setenv("WAREHOUSE_DSN", ranged.url)
    for begin, end in (("earliest", '{"0": 120}'), ('{"0": 120}', '{"0": 299}'), ('{"0": 299}', "latest")):
        stream(begin=begin, end=end)
        stream(begin=begin, end=end)  # the same range again brings nothing

    expected = [
        (one["event_id"], one["name"], one["amount"], number) for number, one in enumerate(map(_event, range(COUNT)))
    ]
    assert _rows(triggered) == expected
    assert _rows(continuous) == expected
    assert _rows(ranged) == expected
