"""Lookups of versions: an event is joined with what was valid at its time, on both engines and while history changes."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import ematix, pk
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.options import Lookup
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.stream.toml_writer import toml_of
from ematix_flow.engine.review.stream import validate_stream
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import PlanError
from ematix_flow.types import BigInt, TimestampTZ  # noqa: TC001 - read from the annotations
from tests.streams.feeds import Topic, at, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream
    from tests.services.kafka import KafkaBroker

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group("streams"),
    pytest.mark.usefixtures("spark"),
]

SQL = """
    SELECT s.n, s.item, p.price FROM source AS s LEFT JOIN prices AS p ON p.item = s.item
"""
Change = tuple[int, int | None, int]
"""Second, item, price from then on."""


@ematix.table(schema="main", name="prices")
class Prices:
    """Prices of items, with their versions."""

    item: Annotated[BigInt, pk()]
    price: BigInt | None
    at: TimestampTZ | None


def price_at(changes: Sequence[Change], item: int | None, second: float | None) -> int | None:
    """Return the price that was valid, from the changes alone."""
    known = [] if second is None else [(t, price) for t, one, price in changes if one == item and t <= second]
    return max(known)[1] if known else None


def load_prices(topic: Topic, connection: Connection, changes: Sequence[Change]) -> None:
    """Load changes as versions."""
    topic.write([{"item": item, "price": price, "at": at(second)} for second, item, price in changes], partition=0)
    drain(
        topic.stream(connection, target_table=Prices, mode="scd2", event_timestamp_column="at", name=f"p_{topic.name}")
    )


def database(kind: str, path: Path) -> Connection:
    """Return a database in a file."""
    return connection_from_fields("prices", {"kind": kind, "path": str(path)})


def ordered(topic: Topic, warehouse: Path, prices: Connection, **more: Any) -> Stream:
    """Declare the stream of events that are joined with prices."""
    lookup = Lookup(connection=prices, **{"table": "prices", "schema": "main", "as_of": "at", **more.pop("lookup", {})})
    given = {"target_table": ("main", "priced"), "create_table": True, "lookups": {"prices": lookup}}
    return topic.stream(duckdb_at(warehouse), **{"transform_sql": SQL, **given, **more})


def priced(warehouse: Path) -> list[tuple[Any, ...]]:
    """Return what was loaded."""
    return rows_in(warehouse, "SELECT n, price FROM priced ORDER BY n")


CHANGES: tuple[Change, ...] = ((10, 1, 100), (20, 1, 110), (30, 1, 120), (15, 2, 7))
SECONDS = (0, 9.999999, 10, 10.000001, 19.999999, 20, 29.5, 30, 3_000, None)


def questions(topic: Topic) -> list[tuple[int, int | None, float | None]]:
    """Write events around every change, of known, unknown and no items, and return them."""
    combinations = [(item, second) for item in (1, 2, 3, None) for second in SECONDS]
    numbered = [(number, *one) for number, one in enumerate(combinations)]
    topic.write([{"n": n, "item": item, "at": None if t is None else at(t)} for n, item, t in numbered])
    return numbered


@pytest.mark.parametrize("engine", ["spark", "local"])
@pytest.mark.parametrize("kind", ["duckdb", pytest.param("sqlite", marks=pytest.mark.deep)])
def test_an_event_has_the_version_of_its_time(
    topic: Topic, kafka_broker: KafkaBroker, warehouse: Path, engine: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", engine)
    prices = database(kind, warehouse.with_name(f"prices.{kind}"))
    load_prices(Topic(kafka_broker, kafka_broker.create_topic(1)), prices, CHANGES)
    expected_questions = questions(topic)
    drain(ordered(topic, warehouse, prices))
    assert priced(warehouse) == [(n, price_at(CHANGES, item, t)) for n, item, t in expected_questions]


def wait_until(ready: Callable[[], bool]) -> None:
    """Wait for something that a stream does."""
    end = monotonic() + 60
    while not ready():
        assert monotonic() < end
        sleep(0.2)


def count(warehouse: Path) -> int:
    """Return how many rows are loaded; none while the file is written."""
    import duckdb

    try:
        return int(rows_in(warehouse, "SELECT count(*) FROM priced")[0][0])
    except duckdb.Error:
        return 0


@pytest.mark.deep
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_history_that_changes_while_the_stream_runs_counts_after_a_refresh(
    topic: Topic, kafka_broker: KafkaBroker, warehouse: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", engine)
    prices = database("sqlite", warehouse.with_name("prices.sqlite"))
    changes = Topic(kafka_broker, kafka_broker.create_topic(1))
    load_prices(changes, prices, CHANGES[:2])
    stream = ordered(topic, warehouse, prices, lookup={"refresh_interval_ms": 200})
    options = StreamOptions()
    running = threading.Thread(target=run_stream, args=(stream, options), daemon=True)
    running.start()
    try:
        first = questions(topic)
        wait_until(lambda: count(warehouse) == len(first))
        # A new version, one between two that were there, and one before the first.
        later = ((40, 1, 130), (15, 1, 105), (5, 1, 90))
        load_prices(changes, prices, later)
        sleep(2)
        topic.write([{"n": 100 + t, "item": 1, "at": at(t)} for t in range(0, 50, 5)])
        wait_until(lambda: count(warehouse) == len(first) + 10)
    finally:
        options.stop.set()
        running.join(30)
    assert not running.is_alive()
    rows = priced(warehouse)
    assert rows[: len(first)] == [(n, price_at(CHANGES[:2], item, t)) for n, item, t in first]
    known = (*CHANGES[:2], *later)
    assert rows[len(first) :] == [(100 + t, price_at(known, 1, t)) for t in range(0, 50, 5)]


@pytest.mark.deep
def test_a_time_that_is_none_is_a_bad_row(topic: Topic, kafka_broker: KafkaBroker, warehouse: Path) -> None:
    prices = database("duckdb", warehouse.with_name("prices.duckdb"))
    load_prices(Topic(kafka_broker, kafka_broker.create_topic(1)), prices, CHANGES)
    topic.write([{"n": 1, "item": 1, "at": "noon"}, {"n": 2, "item": 1, "at": at(12)}], partition=0)
    drain(ordered(topic, warehouse, prices, transform_on_error="dlq"))
    assert priced(warehouse) == [(2, 100)]
    ((reason,),) = rows_in(warehouse, "SELECT reason FROM ematix_flow.rejects")
    assert "noon" in reason


def test_the_time_of_the_broker_can_be_asked_for(topic: Topic, kafka_broker: KafkaBroker, warehouse: Path) -> None:
    prices = database("duckdb", warehouse.with_name("prices.duckdb"))
    load_prices(Topic(kafka_broker, kafka_broker.create_topic(1)), prices, CHANGES)
    topic.write([{"n": 1, "item": 1}], timestamp=1_772_323_225_000)  # 25 seconds after the beginning
    drain(ordered(topic, warehouse, prices, lookup={"as_of": "_event_ts"}))
    assert priced(warehouse) == [(1, 110)]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"lookup": {"as_of": "when"}}, "lookup 'prices' is joined as of 's.when', which the rows"),
        ({"lookup": {"as_of": "n"}}, "lookup 'prices' is joined as of 'n', which is no timestamp"),
        ({"transform_sql": "SELECT n FROM source JOIN prices USING (item)"}, "is joined without ON"),
        ({"lookup": {"table": None, "schema": "", "query": "SELECT item FROM prices"}}, "its query has no column 'valid_from'"),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_by_time_is_refused(
    topic: Topic, kafka_broker: KafkaBroker, warehouse: Path, given: dict[str, Any], error: str
) -> None:
    prices = database("duckdb", warehouse.with_name("prices.duckdb"))
    load_prices(Topic(kafka_broker, kafka_broker.create_topic(1)), prices, CHANGES)
    topic.write([{"n": 1, "item": 1, "at": at(12)}])
    stream = ordered(topic, warehouse, prices, **given)
    with pytest.raises(PlanError, match=error) as raised:
        drain(stream)
    assert raised.value.hint
    assert not Path(warehouse).exists() or count(warehouse) == 0


def test_validating_says_that_a_table_has_no_versions(topic: Topic, warehouse: Path) -> None:
    rows_in(warehouse, "CREATE TABLE prices (item BIGINT, price BIGINT)")
    result = validate_stream(ordered(topic, warehouse, duckdb_at(warehouse)), StreamOptions())
    assert any("has no column 'valid_from', so it has no versions" in error for error in result.errors)


def test_toml_says_the_same(topic: Topic, warehouse: Path) -> None:
    stream = ordered(topic, warehouse, database("duckdb", warehouse.with_name("prices.duckdb")))
    text = toml_of(stream)
    assert 'as_of = "at"' in text
    assert stream_from_toml(text).lookups == stream.lookups
