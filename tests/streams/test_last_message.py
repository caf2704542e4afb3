"""Kafka topics into merged tables: the last message of a key counts, however a stream is cut into batches."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ematix_flow import ematix, pk
from ematix_flow.connect.kafka import source as kafka_stream
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.run.read.message_ranges import MessageRange
from ematix_flow.types import BigInt, Text  # noqa: TC001 - read from the annotations
from tests.streams.feeds import Topic, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@ematix.table(schema="shop", name="states")
class States:
    """The state of things."""

    id: Annotated[BigInt, pk()]
    state: Text | None


STATE = "SELECT id, state FROM shop.states ORDER BY id"


def keyed(topic: Topic, messages: list[tuple[int, str]]) -> None:
    """Write messages so that each key has its partition."""
    for key, state in messages:
        topic.write([{"id": key, "state": state}], partition=key % 3)


def test_the_last_message_of_a_key_wins_also_after_a_rewind(topic: Topic, warehouse: Path) -> None:
    keyed(topic, [(1, "z"), (2, "b"), (1, "a"), (2, "c"), (1, "y"), (4, "q")])
    stream = topic.stream(duckdb_at(warehouse), target_table=States, mode="merge")
    drain(stream)
    assert rows_in(warehouse, STATE) == [(1, "y"), (2, "c"), (4, "q")]
    move_stream(stream, "earliest", StreamOptions())
    drain(stream)
    assert rows_in(warehouse, STATE) == [(1, "y"), (2, "c"), (4, "q")]


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_last_message_of_a_key_wins_where_partitions_are_cut(
    topic: Topic, warehouse: Path, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_stream, "RANGE", 10)
    at = 1_700_000_000_000
    for partition in range(partitions):
        # Later messages have earlier times: the offset counts within a partition.
        for number in range(60):
            state = {"id": number % 7 + 10 * partition, "state": str(number)}
            topic.write([state], partition=partition, timestamp=at - number)
    cut: list[int] = []
    original_partitions = MessageRange.partitions

    def counted(message_range: MessageRange) -> Any:
        cut.append(len(original_partitions(message_range)))
        return original_partitions(message_range)

    monkeypatch.setattr(MessageRange, "partitions", counted)
    drain(topic.stream(duckdb_at(warehouse), target_table=States, mode="merge"))
    last = [(key, str(max(number for number in range(60) if number % 7 == key))) for key in range(7)]
    assert rows_in(warehouse, STATE) == [
        (key + 10 * partition, state) for partition in range(partitions) for key, state in last
    ]
    assert cut == [6 if partitions == 1 else 1], "between partitions times count, of which a range knows only its own"


def test_between_partitions_the_later_time_wins_and_within_one_the_later_offset(topic: Topic, warehouse: Path) -> None:
    at = 1_700_000_000_000
    for partition, state, later in ((2, "first", 0), (0, "last", 90), (2, "second", 50), (1, "early", 10)):
        topic.write([{"id": 1, "state": state}], partition=partition, timestamp=at + later)
    topic.write([{"id": 2, "state": "a"}, {"id": 2, "state": "b"}], partition=1, timestamp=at + 80)
    topic.write([{"id": 2, "state": "clock went back"}], partition=1, timestamp=at + 20)
    topic.write([{"id": 2, "state": "other"}], partition=2, timestamp=at + 60)
    for name in ("declared", "made"):
        where: dict[str, Any] = {"target_table": States}
        if name == "made":
            where = {"target_table": ("shop", "made"), "create_table": True, "target_primary_key": ["id"]}
        drain(topic.stream(duckdb_at(warehouse), name=name, mode="merge", **where))
        table = "states" if name == "declared" else "made"
        rows = rows_in(warehouse, f"SELECT id, state FROM shop.{table} ORDER BY id")
        assert rows == [(1, "last"), (2, "clock went back")], name


def test_a_file_says_by_which_columns_the_greatest_row_wins(topic: Topic, warehouse: Path) -> None:
    rows_in(warehouse, "CREATE SCHEMA shop; CREATE TABLE shop.ranks (id BIGINT PRIMARY KEY, state TEXT, rank BIGINT)")
    more = 'mode = "merge"\nkeys = ["id"]\norder_by = ["rank"]'
    stream = stream_from_toml(topic.toml("ranks", warehouse, "ranks", more))
    topic.write([{"id": 1, "state": "b", "rank": 5}, {"id": 1, "state": "a", "rank": 2}])
    drain(stream)
    topic.write([{"id": 1, "state": "no rank"}, {"id": 2, "state": "new"}])
    drain(stream)
    assert rows_in(warehouse, "SELECT * FROM shop.ranks ORDER BY id") == [(1, "b", 5), (2, "new", None)]


@pytest.mark.deep
@pytest.mark.spark
def test_behind_sql_the_last_row_of_the_query_wins(topic: Topic, warehouse: Path) -> None:
    keyed(topic, [(1, "z"), (2, "b"), (1, "a"), (2, "c"), (1, "y")])
    sql = "SELECT id, upper(state) AS state FROM source"
    drain(topic.stream(duckdb_at(warehouse), target_table=States, mode="merge", transform_sql=sql))
    assert rows_in(warehouse, STATE) == [(1, "Y"), (2, "C")]


@pytest.mark.deep
@settings(max_examples=8, deadline=None)
@given(
    messages=st.lists(st.tuples(st.integers(0, 5), st.text("abc", max_size=1)), min_size=1, max_size=12),
    most=st.integers(1, 12),
    cut=st.integers(0, 12),
)
def test_no_cutting_into_batches_changes_the_table(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, messages: Any, most: int, cut: int
) -> None:
    topic = Topic(kafka_broker, kafka_broker.create_topic(3))
    path = tmp_path_factory.mktemp("cut") / "warehouse.duckdb"
    stream = topic.stream(duckdb_at(path), target_table=States, mode="merge")
    for some in (messages[:cut], messages[cut:]):
        keyed(topic, some)
        drain(stream, most=most)
    expected: dict[int, str] = defaultdict(str)
    expected.update(messages)
    assert rows_in(path, STATE) == sorted(expected.items())
