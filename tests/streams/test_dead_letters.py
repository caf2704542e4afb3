"""Messages that cannot be loaded: kept with their payload, counted, sent through the stream again, parked, copied to a topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import pytest

from ematix_flow import Target, ematix, pk
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.stream import dead_letters
from ematix_flow.engine.stream.dead_letters import Selection
from ematix_flow.errors import UnknownNameError
from ematix_flow.normalize import replace
from ematix_flow.types import BigInt, Numeric, Text  # noqa: TC001 - read from the annotations
from tests.streams.feeds import drain, duckdb_at, rows_in
from tests.streams.test_tables import Orders

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]

POISON = [b"{oops", b"\xff\xfe", b"[1]", b""]


@pytest.fixture(params=[True, False], ids=["declared", "made"])
def stream(request: pytest.FixtureRequest, topic: Topic, warehouse: Path) -> Stream:
    """Return a stream that keeps dead letters, into a declared table and into one that it makes."""
    where = {"target_table": Orders} if request.param else {"target_table": ("main", "made"), "create_table": True}
    return topic.stream(duckdb_at(warehouse), transform_on_error="dlq", **where)


def test_poison_is_set_aside_and_its_neighbours_are_loaded(stream: Stream, topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1}, *POISON, {"id": 2}], partition=0)
    assert drain(stream)["total_rows"] == 6
    letters = dead_letters.records(stream)
    assert len(letters) == len(POISON)
    assert {letter.source_position for letter in letters} == {
        f'{{"topic": "{topic.name}", "partition": 0, "offset": {offset}}}' for offset in range(1, 5)
    }
    assert dead_letters.stats(stream)["pending"] == len(POISON)
    table_name = ".".join(stream.targets[0].table_name or ())
    assert rows_in(warehouse, f"SELECT id FROM {table_name} ORDER BY id") == [(1,), (2,)]


def test_what_fails_again_is_parked_after_its_last_attempt(stream: Stream, topic: Topic) -> None:
    topic.write([{"id": 1}, b"{oops", b"{again"])
    drain(stream)
    assert dead_letters.replay(stream, Selection(first=1))["redeadlettered"] == 1
    assert dead_letters.replay(stream, Selection())["parked"] == 1
    left = dead_letters.records(stream)
    assert [letter.attempt for letter in left] == [2]
    assert dead_letters.stats(stream)["parked"] == 1


def test_a_value_that_did_not_fit_can_be_loaded_when_the_table_takes_it(topic: Topic, warehouse: Path) -> None:
    rows_in(warehouse, "CREATE TABLE main.small (id BIGINT, size SMALLINT)")
    stream = topic.stream(duckdb_at(warehouse), target_table=("main", "small"), transform_on_error="dlq")
    topic.write([{"id": 1, "size": 70_000}, {"id": 2, "size": 7}])
    drain(stream)
    assert [letter.column_name for letter in dead_letters.records(stream)] == ["size"]
    rows_in(warehouse, "ALTER TABLE main.small ALTER size TYPE BIGINT")
    result = dead_letters.replay(stream, Selection())
    assert (result["taken"], result["succeeded"]) == (1, 1)
    assert rows_in(warehouse, "SELECT * FROM main.small ORDER BY id") == [(1, 70_000), (2, 7)]


def test_a_row_that_did_not_fit_says_where_it_was_read_also_after_it_failed_again(
    topic: Topic, warehouse: Path
) -> None:
    rows_in(warehouse, "CREATE TABLE main.small (id BIGINT, size SMALLINT)")
    stream = topic.stream(duckdb_at(warehouse), target_table=("main", "small"), transform_on_error="dlq")
    topic.write([{"id": 1, "size": 7}, b"{oops", {"id": 2, "size": 70_000}], partition=2)
    drain(stream)
    places = {f'{{"topic": "{topic.name}", "partition": 2, "offset": {offset}}}' for offset in (1, 2)}
    assert {letter.source_position for letter in dead_letters.records(stream)} == places
    assert dead_letters.replay(stream, Selection())["redeadlettered"] == len(places)
    assert {letter.source_position for letter in dead_letters.records(stream)} == places


@pytest.mark.parametrize("declared", [True, False])
def test_a_message_that_is_tried_again_has_its_key_and_time(topic: Topic, warehouse: Path, declared: bool) -> None:
    rows_in(warehouse, "CREATE TABLE main.keyed (id BIGINT, _key VARCHAR, _event_ts TIMESTAMPTZ, _offset BIGINT)")
    table = Orders if declared else ("main", "keyed")
    stream = topic.stream(duckdb_at(warehouse), target_table=table, transform_on_error="dlq")
    topic.write([{"id": 1}, b"{oops"], key="k", timestamp=1_700_000_000_000)
    drain(stream)
    mended = r"""UPDATE ematix_flow.rejects SET row_json = replace(row_json, '{oops', '{\"id\": 2}')"""
    rows_in(warehouse, mended)
    assert dead_letters.replay(stream, Selection())["succeeded"] == 1
    name = "shop.stream_orders" if declared else "main.keyed"
    rows = rows_in(warehouse, f"SELECT id, _key, epoch_ms(_event_ts), _offset FROM {name} ORDER BY id")
    assert rows == [(1, "k", 1_700_000_000_000, 0), (2, "k", 1_700_000_000_000, 1)]


def test_targets_with_tables_of_one_name_have_their_own_dead_letters(topic: Topic, tmp_path: Path) -> None:
    kinds = {"wide": "BIGINT", "narrow": "SMALLINT"}
    paths = {name: tmp_path / f"{name}.duckdb" for name in kinds}
    for name, kind in kinds.items():
        rows_in(paths[name], f"CREATE TABLE main.sizes (id BIGINT, size {kind})")
    connections = [connection_from_fields(name, {"kind": "duckdb", "path": str(path)}) for name, path in paths.items()]
    targets = [Target(one, table=("main", "sizes")) for one in connections]
    stream = topic.stream(None, targets=targets, transform_on_error="dlq")
    topic.write([{"id": 1, "size": 70_000}, {"id": 2, "size": 80_000}])
    drain(stream)
    assert {letter.target_name for letter in dead_letters.records(stream)} == {"narrow:main.sizes"}
    rows_in(paths["narrow"], "ALTER TABLE main.sizes ALTER size TYPE BIGINT")
    assert dead_letters.replay(stream, Selection(first=1))["succeeded"] == 1
    assert dead_letters.park(stream, Selection()) == 1
    assert [len(rows_in(path, "SELECT * FROM main.sizes")) for path in paths.values()] == [2, 1]


@ematix.table(schema="shop", name="doubled")
class Doubled:
    """Rows whose word changes whenever it is shaped."""

    id: Annotated[BigInt, pk()]
    word: Annotated[Text, replace("a", "aa")]
    amount: Numeric[38, 20] | None


def test_a_row_that_a_constraint_refused_is_not_shaped_twice(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Doubled, transform_on_error="dlq")
    topic.write([b'{"id": 1, "word": "banana", "amount": 123456789012345678.12345678901234567890}'])
    drain(stream)
    topic.write([b'{"id": 1, "word": "papaya", "amount": 123456789012345678.12345678901234567890}'])
    drain(stream)
    rows_in(warehouse, "DELETE FROM shop.doubled")
    assert dead_letters.replay(stream, Selection())["succeeded"] == 1
    rows = rows_in(warehouse, "SELECT word, CAST(amount AS VARCHAR) FROM shop.doubled")
    assert rows == [("paapaayaa", "123456789012345678.12345678901234567890")]


def test_every_digit_of_a_message_that_is_tried_again_arrives(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Doubled, transform_on_error="dlq")
    topic.write([b'{"id": 1, "amount": 123456789012345678.12345678901234567890}', b'{"id": 2, "word": "a"}'])
    drain(stream)
    rows_in(warehouse, """UPDATE ematix_flow.rejects SET row_json = replace(row_json, '{', '{"word": "banana", ')""")
    assert dead_letters.replay(stream, Selection())["succeeded"] == 1
    rows = rows_in(warehouse, "SELECT word, CAST(amount AS VARCHAR) FROM shop.doubled WHERE id = 1")
    assert rows == [("baanaanaa", "123456789012345678.12345678901234567890")]


def test_dead_letters_can_be_parked_and_purged_by_id(stream: Stream, topic: Topic) -> None:
    topic.write([{"id": 1}, *POISON])
    drain(stream)
    first, second = (letter.reject_id for letter in dead_letters.records(stream)[:2])
    assert dead_letters.park(stream, Selection(ids=(first,))) == 1
    assert dead_letters.purge(stream, Selection(ids=(second,))) == 1
    assert dead_letters.stats(stream) | {"pipeline": ""} == {
        "pipeline": "", "pending": 2, "parked": 1, "sent": 0, "replayed": 0,
        "pending_by_target": {f"warehouse:{'.'.join(stream.targets[0].table_name or ())}": 2},
    }  # fmt: skip
    with pytest.raises(UnknownNameError, match="no dead letter has the id"):
        dead_letters.record_by_id(stream, "nobody")


def test_dropped_messages_are_counted_and_forgotten(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders, transform_on_error="drop")
    topic.write([{"id": 1}, b"{oops"])
    assert drain(stream)["total_rows"] == 2
    assert dead_letters.records(stream, status=None) == []
    assert rows_in(warehouse, "SELECT SUM(rows_rejected) FROM ematix_flow.run_history") == [(1,)]


def test_a_topic_gets_copies_with_headers(stream: Stream, topic: Topic, warehouse: Path) -> None:
    from confluent_kafka import Consumer

    dead = topic.broker.create_topic(1)
    named = topic.stream(
        duckdb_at(warehouse), target_table=Orders, transform_on_error="dlq", dead_letter_topic=dead, name=stream.name
    )
    topic.write([{"id": 1}, b"\xff\xfe"], partition=2)
    drain(named)
    reader = Consumer(
        {"bootstrap.servers": topic.broker.address, "group.id": dead, "auto.offset.reset": "earliest", "log_level": 0}
    )
    reader.subscribe([dead])
    (copy,) = reader.consume(1, 20)
    reader.close()
    headers = dict(copy.headers() or [])
    assert copy.value() == b"\xff\xfe"
    assert headers["emat-dlq-pipeline"] == stream.name.encode()
    assert headers["emat-dlq-stage"] == b"transform"
    assert b'"partition": 2, "offset": 1' in headers["emat-dlq-offset-bytes"]
    assert dead_letters.stats(named)["sent"] == 1


def test_a_topic_that_keeps_no_rejects_sends_them_to_the_dead_letter_topic(topic: Topic) -> None:
    from ematix_flow.errors import PlanError

    out, dead = topic.broker.create_topic(1), topic.broker.create_topic(1)
    topic.write([{"id": 1}, b"{oops", {"id": 2}], partition=0)
    with pytest.raises(PlanError, match="cannot be stored"):
        drain(topic.stream(topic.connection, target_topic=out, transform_on_error="dlq", name="without"))
    drain(topic.stream(topic.connection, target_topic=out, transform_on_error="dlq", dead_letter_topic=dead))
    assert [json.loads(value) for value in topic.read(out, 2)] == [{"id": 1}, {"id": 2}]
    assert topic.read(dead, 1) == [b"{oops"]
