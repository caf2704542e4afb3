"""Topics for dead letters that are away, too small or slow: the load says so, nothing is lost, and later all of it arrives."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ematix_flow.connect.kafka import dead_letters as kafka_dead_letters
from ematix_flow.engine.stream import dead_letters
from ematix_flow.errors import RunError
from tests.services.topics import committed, fill, payloads_of
from tests.streams.feeds import drain, duckdb_at, rows_in
from tests.streams.test_tables import Orders

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]

POISON = [b"{one", b"{two", b"{three"]


def test_a_missing_topic_fails_the_load_and_gets_everything_later(topic: Topic, warehouse: Path) -> None:
    dead = f"dead-{topic.name}"
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders, transform_on_error="dlq", dead_letter_topic=dead)
    topic.write([{"id": 1}, *POISON, {"id": 2}])
    with pytest.raises(RunError, match=f"there is no topic '{dead}'"):
        drain(stream)
    assert dead_letters.stats(stream)["pending"] == len(POISON)
    topic.broker.create_topic(1, dead)
    topic.write([{"id": 3}])
    drain(stream)
    drain(stream)
    assert Counter(payloads_of(topic.broker.address, dead)) == Counter(POISON)
    assert dead_letters.stats(stream)["sent"] == len(POISON)
    assert rows_in(warehouse, "SELECT id FROM shop.stream_orders ORDER BY id") == [(1,), (2,), (3,)]


def test_a_stream_between_topics_sends_nothing_while_dead_letters_have_no_place(topic: Topic) -> None:
    out, dead = topic.broker.create_topic(1), f"dead-{topic.name}"
    stream = topic.stream(topic.connection, target_topic=out, transform_on_error="dlq", dead_letter_topic=dead)
    topic.write([{"id": 1}, *POISON, {"id": 2}], partition=0)
    with pytest.raises(RunError, match="there is no topic"):
        drain(stream)
    assert committed(topic.broker.address, out) == []
    topic.broker.create_topic(1, dead)
    drain(stream)
    assert [json.loads(one) for one in payloads_of(topic.broker.address, out)] == [{"id": 1}, {"id": 2}]
    assert Counter(payloads_of(topic.broker.address, dead)) == Counter(POISON)


def test_a_dead_letter_that_is_too_large_waits_until_its_topic_takes_it(topic: Topic, warehouse: Path) -> None:
    large, dead = topic.broker.create_topic(1, **{"max.message.bytes": "8000000"}), topic.broker.create_topic(1)
    poison = b"{" + b"x" * 2_000_000
    fill(topic.broker.address, large, [b'{"id": 1}', poison])
    stream = topic.stream(
        duckdb_at(warehouse), source_query=large, target_table=Orders, transform_on_error="dlq", dead_letter_topic=dead
    )
    for _ in range(2):
        with pytest.raises(RunError, match="takes no dead letters as large"):
            drain(stream)
    widened = ConfigEntry("max.message.bytes", "8000000", incremental_operation=AlterConfigOpType.SET)
    admin = topic.broker.admin()
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, dead, incremental_configs=[widened])]
    ).values()
    done.result()
    drain(stream)
    assert payloads_of(topic.broker.address, dead) == [poison]
    assert rows_in(warehouse, "SELECT id FROM shop.stream_orders") == [(1,)]


def test_a_topic_takes_messages_as_large_as_it_was_told_to(topic: Topic) -> None:
    source, out = (topic.broker.create_topic(1, **{"max.message.bytes": "8000000"}) for _ in range(2))
    payload = json.dumps({"id": 1, "text": "x" * 4_000_000}).encode()
    fill(topic.broker.address, source, [payload])
    assert drain(topic.stream(topic.connection, source_query=source, target_topic=out))["total_rows"] == 1
    assert payloads_of(topic.broker.address, out) == [payload]


def test_more_dead_letters_than_the_client_holds_are_all_sent(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kafka_dead_letters._SENDING, "queue.buffering.max.messages", 10)
    dead = topic.broker.create_topic(1)
    topic.write([b"{%d" % number for number in range(300)])
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders, transform_on_error="dlq", dead_letter_topic=dead)
    drain(stream)
    assert sorted(payloads_of(topic.broker.address, dead)) == sorted(b"{%d" % number for number in range(300))


def test_a_replay_takes_the_dead_letters_that_a_topic_has_once(topic: Topic, warehouse: Path) -> None:
    dead = topic.broker.create_topic(1)
    strict = {"target_table": ("main", "dates"), "transform_on_error": "dlq", "dead_letter_topic": dead}
    rows_in(warehouse, "CREATE TABLE main.dates (id BIGINT, day DATE NOT NULL)")
    stream = topic.stream(duckdb_at(warehouse), **strict)
    topic.write(
        [{"id": 1, "day": "2026-01-01"}, {"id": 2, "day": "soon"}, {"id": 3, "day": "later"}, {"id": 4, "day": "x"}]
    )
    drain(stream)
    assert dead_letters.stats(stream)["sent"] == 3
    records = dead_letters.records(stream, status="sent")
    parked = next(letter for letter in records if '"x"' in letter.row_json)
    assert dead_letters.park(stream, dead_letters.Selection(ids=(parked.reject_id,))) == 1
    rows_in(warehouse, "ALTER TABLE main.dates ALTER day TYPE TEXT")
    done = dead_letters.replay(stream, dead_letters.Selection())
    assert (done["taken"], done["succeeded"]) == (2, 2)
    assert dead_letters.replay(stream, dead_letters.Selection())["taken"] == 0
    assert rows_in(warehouse, "SELECT id FROM main.dates ORDER BY id") == [(1,), (2,), (3,)]
    assert dead_letters.stats(stream) | {"pending_by_target": 0} == {
        "pipeline": stream.name, "pending": 0, "parked": 1, "sent": 0, "replayed": 2, "pending_by_target": 0,
    }  # fmt: skip


def test_dead_letters_that_only_a_topic_has_are_replayed_once(topic: Topic) -> None:
    out, dead = topic.broker.create_topic(1), topic.broker.create_topic(1)
    given = {"target_topic": out, "transform_on_error": "dlq", "dead_letter_topic": dead, "dlq_max_attempts": 3}
    stream = topic.stream(topic.connection, **given)
    topic.write([{"id": 1}, *POISON], partition=0)
    drain(stream)
    first = dead_letters.replay(stream, dead_letters.Selection(first=1))
    assert (first["taken"], first["succeeded"], first["redeadlettered"]) == (1, 0, 1)
    topic.options["payload_format"] = "raw_bytes"
    mended = topic.stream(topic.connection, **given)
    done = dead_letters.replay(mended, dead_letters.Selection())
    assert (done["taken"], done["succeeded"], done["parked"]) == (3, 3, 0)
    assert dead_letters.replay(mended, dead_letters.Selection())["taken"] == 0
    assert payloads_of(topic.broker.address, out) == [b'{"id": 1}', b"{two", b"{three", b"{one"]


def test_a_letter_of_a_topic_that_fails_too_often_is_parked(topic: Topic) -> None:
    out, dead = topic.broker.create_topic(1), topic.broker.create_topic(1)
    given = {"target_topic": out, "transform_on_error": "dlq", "dead_letter_topic": dead, "dlq_max_attempts": 2}
    stream = topic.stream(topic.connection, **given)
    topic.write(POISON[:1], partition=0)
    drain(stream)
    done = dead_letters.replay(stream, dead_letters.Selection())
    assert (done["taken"], done["parked"], done["redeadlettered"]) == (1, 1, 0)
    assert dead_letters.replay(stream, dead_letters.Selection())["taken"] == 0
