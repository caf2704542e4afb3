"""Streams that read several sources: every message of each once, whatever is silent, killed, moved or added."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import psycopg
import pytest

from ematix_flow import Source, ematix, pk
from ematix_flow.connect.base.sink import ID_HEADER
from ematix_flow.connect.spool.log import ROOT
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.stream.decorator import load_stream
from ematix_flow.engine.review.stream import dry_run_stream, preview_stream, validate_stream
from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.operations import dlq_records
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import PlanError, StreamLostError, UnsupportedError
from ematix_flow.events import RunStarted
from ematix_flow.observe.bus import Bus
from ematix_flow.types import BigInt, Text, TimestampTZ  # noqa: TC001 - read from the annotations
from tests.crash.spooling import from_rabbitmq, publish
from tests.depth import deep
from tests.services.kinesis import create_stream
from tests.services.s3 import KEY, REGION, SECRET
from tests.services.topics import committed
from tests.streams.feeds import Topic, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream
    from tests.services.kafka import KafkaBroker
    from tests.services.rabbitmq import RabbitMQServer
    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@ematix.table(schema="shop", name="united")
class United:
    """What comes from both topics."""

    id: Annotated[BigInt, pk()]
    word: Text | None
    _topic: Text


@ematix.table(schema="shop", name="events")
class Events:
    """What comes from a topic and a queue: both have a time."""

    id: Annotated[BigInt, pk()]
    _event_ts: TimestampTZ


@pytest.fixture
def topics(kafka_broker: KafkaBroker) -> tuple[Topic, Topic]:
    """Return two empty topics of one broker."""
    return Topic(kafka_broker, kafka_broker.create_topic(3)), Topic(kafka_broker, kafka_broker.create_topic(2))


@pytest.fixture
def queue(rabbitmq_server: RabbitMQServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an empty queue, whose messages wait in a folder of this test."""
    monkeypatch.setenv(ROOT, str(tmp_path / "spool"))
    return rabbitmq_server.create_queue()


def united(topics: tuple[Topic, ...], target: Connection, **keywords: Any) -> Stream:
    """Declare a stream from topics."""
    sources = [Source(connection=topic.connection, query=topic.name) for topic in topics]
    name = f"united_{topics[0].name}"
    return stream_from_keywords({"name": name, "sources": sources, "target": target, **keywords}, None)


def mixed(topic: Topic, server: RabbitMQServer, queue: str, target: Connection, **keywords: Any) -> Stream:
    """Declare a stream from a topic and a queue."""
    mq = connection_from_fields("mq", from_rabbitmq(server))
    sources = [Source(connection=topic.connection, query=topic.name), Source(connection=mq, query=queue)]
    name = f"mixed_{topic.name}"
    return stream_from_keywords({"name": name, "sources": sources, "target": target, **keywords}, None)


def send(server: RabbitMQServer, queue: str, numbers: range) -> None:
    channel = server.channel()
    channel.confirm_delivery()
    publish(channel, queue, numbers)
    channel.connection.close()


def ids_in(path: Path, table: str = "shop.united") -> list[int]:
    return [row[0] for row in rows_in(path, f"SELECT id FROM {table} ORDER BY id")]


def numbered(numbers: range) -> list[dict[str, Any]]:
    return [{"id": n, "word": f"word {n}"} for n in numbers]


def test_messages_of_both_topics_are_loaded_once_and_the_next_run_goes_on(
    topics: tuple[Topic, Topic], warehouse: Path
) -> None:
    stream = united(topics, duckdb_at(warehouse), target_table=United)
    topics[0].write(numbered(range(20)))
    topics[1].write(numbered(range(20, 50)))
    assert drain(stream, most=7)["total_rows"] == 50
    assert drain(stream)["total_rows"] == 0
    topics[1].write(numbered(range(50, 55)))
    assert drain(stream)["total_rows"] == 5, "one of them is silent"
    assert ids_in(warehouse) == list(range(55))
    rows = rows_in(warehouse, "SELECT _topic, COUNT(*) FROM shop.united GROUP BY 1")
    assert dict(rows) == {topics[0].name: 20, topics[1].name: 35}


def test_a_topic_and_a_queue_go_into_postgres_together(
    topic: Topic, rabbitmq_server: RabbitMQServer, queue: str, postgres_url: str
) -> None:
    target = connection_from_fields("pg", {"kind": "postgres", "url": postgres_url})
    stream = mixed(topic, rabbitmq_server, queue, target, target_table=Events)
    topic.write(numbered(range(10)))
    send(rabbitmq_server, queue, range(10, 30))
    assert drain(stream, most=8)["total_rows"] == 30
    send(rabbitmq_server, queue, range(30, 33))
    topic.write(numbered(range(33, 35)))
    assert drain(stream)["total_rows"] == 5
    with psycopg.connect(postgres_url) as session:
        rows = session.execute("SELECT id FROM shop.events WHERE _event_ts IS NOT NULL ORDER BY id").fetchall()
    assert rows == [(n,) for n in range(35)]
    (status,) = stream_status(stream, StreamOptions())
    assert status.position is not None
    assert list(status.position["sources"]) == [f"kafka:{topic.name}", f"rabbitmq:{queue}"]
    topic.write(numbered(range(35, 36)), partition=2)
    (status,) = stream_status(stream, StreamOptions())
    assert status.waiting == {f"{topic.name}/0": 0, f"{topic.name}/1": 0, f"{topic.name}/2": 1, queue: 0}


def test_both_are_rewound_or_one_of_them(topics: tuple[Topic, Topic], warehouse: Path) -> None:
    stream = united(topics, duckdb_at(warehouse), target_table=United, mode="merge", keys=["id"])
    for number, topic in enumerate(topics):
        topic.write(numbered(range(number * 10, number * 10 + 10)))
    assert drain(stream)["total_rows"] == 20
    move_stream(stream, "earliest", StreamOptions(), healthy=True)
    assert drain(stream)["total_rows"] == 20
    (moved,) = move_stream(stream, json.dumps({topics[0].name: "earliest"}), StreamOptions(), healthy=True)
    assert moved.before is not None
    source_key = f"kafka:{topics[1].name}"
    assert moved.after["sources"][source_key] == moved.before["sources"][source_key]
    assert drain(stream)["total_rows"] == 10
    assert ids_in(warehouse) == list(range(20))
    assert move_stream(stream, "ledger", StreamOptions())[0].after["turn"] == 2


def test_the_last_message_of_a_key_wins_by_time_whichever_source_it_is_from(
    topics: tuple[Topic, Topic], warehouse: Path
) -> None:
    stream = united(topics, duckdb_at(warehouse), target_table=United, mode="merge", keys=["id"])
    at = 1_700_000_000_000
    topics[0].write([{"id": 1, "word": "newest"}], partition=0, timestamp=at + 2_000)
    topics[0].write([{"id": 2, "word": "old"}, {"id": 2, "word": "new"}], partition=1, timestamp=at)
    topics[1].write([{"id": 1, "word": "older"}], partition=0, timestamp=at + 1_000)
    topics[1].write([{"id": 3, "word": "a"}, {"id": 3, "word": "b"}], partition=1, timestamp=at)
    drain(stream)
    assert rows_in(warehouse, "SELECT id, word FROM shop.united ORDER BY id") == [(1, "newest"), (2, "new"), (3, "b")]


def test_a_source_can_be_added_and_is_missed_when_it_is_gone(topics: tuple[Topic, Topic], warehouse: Path) -> None:
    third = Topic(topics[0].broker, topics[0].broker.create_topic(1))
    target = duckdb_at(warehouse)
    for number, topic in enumerate((*topics, third)):
        topic.write(numbered(range(number * 10, number * 10 + 10)))
    assert drain(united(topics, target, target_table=United))["total_rows"] == 20
    grown = united((*topics, third), target, target_table=United)
    assert preview_stream(grown).plan.notes[1] == "shop.united: the next batch has 10 messages"
    assert drain(grown)["total_rows"] == 10
    assert ids_in(warehouse) == list(range(30))
    topics[0].write(numbered(range(30, 31)))
    fewer = united(topics, target, target_table=United)
    with pytest.raises(StreamLostError, match=f"has read kafka:{third.name} before"):
        drain(fewer)
    (status,) = stream_status(fewer, StreamOptions())
    assert status.problem is not None
    move_stream(fewer, '{"sources": {}}', StreamOptions(), healthy=True)
    assert drain(fewer)["total_rows"] == 1
    alone = united(topics[:1], target, target_table=United)
    with pytest.raises(StreamLostError, match=f"read sources before, and reads kafka:{topics[0].name} now"):
        drain(alone)


def test_a_stream_of_one_source_goes_on_with_several_from_where_it_was(
    topics: tuple[Topic, Topic], warehouse: Path
) -> None:
    target = duckdb_at(warehouse)
    for number, topic in enumerate(topics):
        topic.write(numbered(range(number * 10, number * 10 + 10)))
    alone = united(topics[:1], target, target_table=United)
    drain(alone)
    (status,) = stream_status(alone, StreamOptions())
    both = united(topics, target, target_table=United)
    with pytest.raises(StreamLostError, match="reads sources now"):
        drain(both)
    move_stream(both, json.dumps({"sources": {topics[0].name: status.position}}), StreamOptions())
    assert drain(both)["total_rows"] == 10
    assert ids_in(warehouse) == list(range(20))


def test_each_connection_says_where_its_source_begins(topics: tuple[Topic, Topic], warehouse: Path) -> None:
    topics[1].options["auto_offset_reset"] = "latest"
    stream = united(topics, duckdb_at(warehouse), target_table=United)
    for number, topic in enumerate(topics):
        topic.write(numbered(range(number * 10, number * 10 + 10)))
    assert drain(stream)["total_rows"] == 10
    topics[1].write(numbered(range(20, 23)))
    assert drain(stream)["total_rows"] == 3
    assert ids_in(warehouse) == [*range(10), *range(20, 23)]


def test_messages_of_both_go_into_a_topic_once(topics: tuple[Topic, Topic]) -> None:
    out = topics[0].broker.create_topic(2)
    stream = united(topics, topics[0].connection, target_topic=out)
    topics[0].write(numbered(range(10)))
    topics[1].write(numbered(range(10, 25)))
    assert drain(stream, most=4)["total_rows"] == 25
    assert drain(stream)["total_rows"] == 0
    messages = committed(topics[0].broker.address, out)
    assert sorted(json.loads(message.value())["id"] for message in messages) == list(range(25))


def test_topics_of_one_name_on_two_connections_are_two_sources(topic: Topic) -> None:
    topic.write(numbered(range(5)))
    fields = {"kind": "kafka", "bootstrap_servers": topic.broker.address}
    sources = [Source(connection=connection_from_fields(name, fields), query=topic.name) for name in ("east", "west")]
    out, once = topic.broker.create_topic(1), {"delivery": "at_least_once"}
    keywords = {"name": f"twice_{topic.name}", "sources": sources, "target": topic.connection, "target_topic": out}
    stream = stream_from_keywords(keywords | once, None)
    assert drain(stream)["total_rows"] == 10
    (status,) = stream_status(stream, StreamOptions())
    assert status.position is not None
    assert list(status.position["sources"]) == [f"kafka:{topic.name}@east", f"kafka:{topic.name}@west"]
    messages = committed(topic.broker.address, out)
    assert len({dict(message.headers())[ID_HEADER] for message in messages}) == 10, "none is a second copy of another"


def test_a_dead_letter_says_which_source_it_is_from(topics: tuple[Topic, Topic], warehouse: Path) -> None:
    dead = topics[0].broker.create_topic(1)
    stream = united(topics, duckdb_at(warehouse), target_table=United, transform_on_error="dlq", dead_letter_topic=dead)
    topics[0].write([{"id": 1}, b"{first"], partition=0)
    topics[1].write([{"id": 2}, b"{second"], partition=0)
    drain(stream)
    expected = {b"{first": topics[0].name, b"{second": topics[1].name}
    assert {one["payload"]: one["source_id"] for one in dlq_records(stream)} == expected
    sent = committed(topics[0].broker.address, dead)
    assert {message.value(): dict(message.headers())["emat-dlq-source-id"].decode() for message in sent} == expected


def test_it_is_looked_at_before_it_runs(
    topic: Topic, rabbitmq_server: RabbitMQServer, queue: str, postgres_url: str
) -> None:
    target = connection_from_fields("pg", {"kind": "postgres", "url": postgres_url})
    stream = mixed(topic, rabbitmq_server, queue, target, target_table=Events)
    topic.write(numbered(range(4)))
    send(rabbitmq_server, queue, range(4, 6))
    notes = preview_stream(stream).plan.notes
    assert "messages need a message_id, or the queue may deliver one twice" in " ".join(notes)
    assert "only received messages are inspected" in notes[0]
    simulated = dry_run_stream(stream).targets[0]
    assert (simulated.dry_run_rows_affected or {})["rows_inserted"] == 4
    assert validate_stream(stream).ok
    sources = [Source(connection=topic.connection, query=name) for name in (topic.name, "not-there")]
    lacking = stream_from_keywords(
        {"name": "lacking", "sources": sources, "target": target, "target_table": Events}, None
    )
    assert "source 'not-there'" in " ".join(validate_stream(lacking).errors)


def test_one_promise_for_all_sources_is_the_weakest(topic: Topic, rabbitmq_server: RabbitMQServer, queue: str) -> None:
    mq = connection_from_fields("mq", from_rabbitmq(rabbitmq_server))
    stream = mixed(topic, rabbitmq_server, queue, mq, target_queue="out", delivery="exactly_once")
    with pytest.raises(PlanError, match="from kafka and rabbitmq to rabbitmq"):
        drain(stream)


def test_files_and_payloads_of_another_format_are_refused(topic: Topic, warehouse: Path, tmp_path: Path) -> None:
    inbox = connection_from_fields(
        "inbox", {"kind": "object_store_local", "path": str(tmp_path), "format": "json_lines"}
    )
    raw = connection_from_fields(
        "raw", {"kind": "kafka", "bootstrap_servers": topic.broker.address, "payload_format": "raw_bytes"}
    )
    lake = connection_from_fields("lake", {"kind": "delta_local", "path": str(tmp_path / "lake")})
    for other, match in (
        (Source(connection=inbox, query="in"), "has several sources, and 'in' is files"),
        (Source(connection=lake, query="a.b"), "has several sources, and 'a.b' is a lake table"),
        (Source(connection=raw, query="bytes"), "has payloads of json, and 'bytes' of raw_bytes"),
    ):
        sources = [Source(connection=topic.connection, query=topic.name), other]
        keywords = {"name": "refused", "sources": sources, "target": duckdb_at(warehouse), "target_table": United}
        with pytest.raises(UnsupportedError, match=match):
            drain(stream_from_keywords(keywords, None))


def test_sources_of_a_file(topics: tuple[Topic, Topic], warehouse: Path) -> None:
    sections = "".join(
        f'[[sources]]\nkind = "kafka"\nname = "k"\nbootstrap_servers = "{one.broker.address}"\nquery = "{one.name}"\n'
        for one in topics
    )
    target = (
        f'[target]\nkind = "duckdb"\nname = "w"\npath = "{warehouse}"\ntable = "shop.united"\ncreate_table = true\n'
    )
    stream = load_stream(config_str=f'pipeline_name = "file_{topics[0].name}"\n{sections}{target}')
    topics[0].write(numbered(range(10)))
    topics[1].write(numbered(range(10, 25)))
    assert drain(stream)["total_rows"] == 25
    assert ids_in(warehouse) == list(range(25))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", [deep("local"), "spark"])
@pytest.mark.parametrize("sql", [deep(None), "SELECT id, upper(word) AS word, _topic FROM source WHERE id % 2 = 0"])
def test_spark_and_this_process_load_the_same(
    topics: tuple[Topic, Topic], warehouse: Path, monkeypatch: pytest.MonkeyPatch, engine: str, sql: str | None
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", engine)
    keywords = {"mode": "merge", "keys": ["id"], **({"transform_sql": sql} if sql else {})}
    stream = united(topics, duckdb_at(warehouse), target_table=United, **keywords)
    for number, topic in enumerate(topics):
        topic.write([{"id": n, "word": "old"} for n in range(number * 10, number * 10 + 10)], partition=1)
        topic.write([{"id": n, "word": "new"} for n in range(number * 10, number * 10 + 10)], partition=1)
    bus, events = Bus(), []
    bus.subscribe(events.append)
    assert drain(stream, bus=bus)["iterations"] == 1
    assert {event.by for event in events if isinstance(event, RunStarted)} == {engine}
    rows = rows_in(warehouse, "SELECT id, word, _topic FROM shop.united ORDER BY id")
    step, text = (2, "NEW") if sql else (1, "new")
    assert rows == [(n, text, topics[n // 10].name) for n in range(0, 20, step)]


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", [deep("local"), "spark"])
def test_a_topic_and_a_queue_go_into_a_lake_through_sql(
    topic: Topic,
    rabbitmq_server: RabbitMQServer,
    queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", engine)
    lake = connection_from_fields("lake", {"kind": "delta_local", "path": str(tmp_path / "lake")})
    sql = "SELECT id, _event_ts FROM source"
    stream = mixed(
        topic, rabbitmq_server, queue, lake, target_table=Events, transform_sql=sql, mode="merge", keys=["id"]
    )
    topic.write(numbered(range(10)))
    send(rabbitmq_server, queue, range(10, 25))
    assert drain(stream)["total_rows"] == 25
    topic.write(numbered(range(25, 27)))
    assert drain(stream)["total_rows"] == 2
    from deltalake import DeltaTable

    table = DeltaTable(str(tmp_path / "lake" / "shop" / "events")).to_pyarrow_table(columns=["id"])
    assert sorted(table.column("id").to_pylist()) == list(range(27))


def test_a_topic_and_shards_are_one_table_and_a_range_of_both_is_loaded_beside_the_stream(
    topic: Topic, s3_server: S3Server, warehouse: Path
) -> None:
    fields = {"endpoint": s3_server.endpoint, "region": REGION, "access_key_id": KEY, "secret_access_key": SECRET}
    name = create_stream(s3_server, 2)
    shards = connection_from_fields("shards", {"kind": "kinesis", "stream_name": name, **fields})
    sources = [Source(connection=topic.connection, query=topic.name), Source(connection=shards, query=name)]
    keywords = {"name": f"shards_{topic.name}", "sources": sources, "target": duckdb_at(warehouse)}
    stream = stream_from_keywords(keywords | {"target_table": Events, "mode": "merge", "keys": ["id"]}, None)
    topic.write(numbered(range(10)))
    records = [{"Data": json.dumps({"id": n}).encode(), "PartitionKey": f"key {n}"} for n in range(10, 30)]
    s3_server.client("kinesis").put_records(StreamName=name, Records=records)
    assert drain(stream, most=9)["total_rows"] == 30
    assert ids_in(warehouse, "shop.events") == list(range(30))
    before = stream_status(stream, StreamOptions())[0].position
    assert drain(stream, begin="earliest", end="latest")["total_rows"] == 30
    assert stream_status(stream, StreamOptions())[0].position == before
    assert drain(stream)["total_rows"] == 0
