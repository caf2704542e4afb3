"""Folders as sources of streams into brokers: the rows of each file are sent once, with ids that do not change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.sink import ID_HEADER
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.control import stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.engine.stream.sinks import broker_from_files as file_messages
from ematix_flow.errors import PlanError, RunError
from tests.engine.topic_flows import TopicFlow
from tests.services.topics import committed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.kafka import KafkaBroker
    from tests.services.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.service


@pytest.fixture
def flow(kafka_broker: KafkaBroker, tmp_path: Path) -> TopicFlow:
    (tmp_path / "in").mkdir()
    return TopicFlow(kafka_broker.address, "in", kafka_broker.create_topic(), folder=str(tmp_path))


def put(flow: TopicFlow, name: str, *ids: int) -> None:
    from pathlib import Path

    rows = "".join(f"{n},text {n}\n" for n in ids)
    Path(flow.folder, "in", name).write_text(f"id,text\n{rows}", "utf-8")


def ids(flow: TopicFlow) -> list[int]:
    return [row["id"] for _, row in flow.arrived()]


def test_each_file_is_sent_once_whatever_its_name(flow: TopicFlow) -> None:
    put(flow, "b.csv", 1, 2)
    assert flow.run()["total_rows"] == 2
    assert flow.run()["total_rows"] == 0
    put(flow, "a.csv", 3)
    put(flow, "c.csv", 4)
    assert flow.run()["total_rows"] == 2
    assert flow.run()["total_rows"] == 0
    assert flow.arrived()[0] == (None, {"id": 1, "text": "text 1"})
    assert ids(flow) == [1, 2, 3, 4]


def test_a_file_that_is_gone_does_not_bring_the_others_again(flow: TopicFlow, tmp_path: Path) -> None:
    put(flow, "a.csv", 1)
    put(flow, "b.csv", 2)
    flow.run()
    (tmp_path / "in" / "a.csv").unlink()
    assert flow.run()["total_rows"] == 0
    put(flow, "c.csv", 3)
    assert flow.run()["total_rows"] == 1
    assert ids(flow) == [1, 2, 3]


def test_a_file_that_changed_stops_the_stream(flow: TopicFlow) -> None:
    put(flow, "a.csv", 1)
    flow.run()
    put(flow, "a.csv", 1, 2)
    with pytest.raises(PlanError, match=r"1 file of .* has changed since it was loaded: in/a.csv"):
        flow.run()
    assert ids(flow) == [1]


def test_files_are_sent_some_at_a_time(flow: TopicFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ematix_flow.engine.stream.sinks.shaped_files.BYTES", 30)
    for number, name in enumerate("edcba"):
        put(flow, f"{name}.csv", 2 * number, 2 * number + 1)
    assert flow.run() == {"total_rows": 10, "iterations": 5, "shutdown_triggered": False}
    assert flow.run()["total_rows"] == 0
    assert sorted(ids(flow)) == list(range(10))


def test_a_line_that_is_no_row_is_refused_or_dropped(flow: TopicFlow, tmp_path: Path) -> None:
    (tmp_path / "in" / "a.csv").write_text("id,text\n1,a\n2,b,c,d\n", "utf-8")
    with pytest.raises(RunError, match="1 message cannot be read"):
        flow.run()
    assert flow.arrived() == []
    dropping = replace(flow, keywords={"transform_on_error": "drop"})
    assert dropping.run()["total_rows"] == 2
    assert ids(flow) == [1]


def test_a_message_can_have_a_column_as_its_key(flow: TopicFlow) -> None:
    put(flow, "a.csv", 1)
    replace(flow, keywords={"target_message_key_column": "text"}).run()
    assert flow.arrived() == [(b"text 1", {"id": 1, "text": "text 1"})]


def test_status_tells_what_waits_and_names_no_files(flow: TopicFlow) -> None:
    put(flow, "a.csv", 1)
    (before,) = stream_status(flow.stream, StreamOptions())
    assert (before.position, before.lag) == (None, 1)
    flow.run()
    (after,) = stream_status(flow.stream, StreamOptions())
    assert after.position is not None
    assert set(after.position) == {"look", "files"}
    assert after.lag == 0
    put(flow, "b.csv", 2)
    (waiting,) = stream_status(flow.stream, StreamOptions())
    assert waiting.lag == 1


def test_more_files_than_a_broker_remembers_are_refused(flow: TopicFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_messages, "MOST_FILES", 1)
    put(flow, "a.csv", 1)
    flow.run()
    put(flow, "b.csv", 2)
    with pytest.raises(RunError, match="a broker remembers 1 at most"):
        flow.run()
    assert ids(flow) == [1]


def test_a_row_has_the_id_of_its_file_however_files_come_together(flow: TopicFlow, kafka_broker: KafkaBroker) -> None:
    one, other = (
        replace(flow, target=topic, keywords={"delivery": "at_least_once", "name": f"into-{flow.target}"})
        for topic in (flow.target, kafka_broker.create_topic())
    )
    put(flow, "b.csv", 1, 2)
    one.run()
    put(flow, "a.csv", 3)
    one.run()
    other.run()
    sent_apart, sent_together = (
        {message.value(): dict(message.headers())[ID_HEADER] for message in committed(flow.address, topic)}
        for topic in (one.target, other.target)
    )
    assert sent_apart == sent_together
    assert len(set(sent_apart.values())) == 3


def test_files_reach_a_queue(rabbitmq_server: RabbitMQServer, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    queue = rabbitmq_server.create_queue()
    source = {"kind": "object_store_local", "path": str(tmp_path), "format": "json_lines"}
    given: dict[str, Any] = {
        "name": f"to-{queue}",
        "source": connection_from_fields("inbox", source),
        "source_query": "in",
        "target": connection_from_fields("mq", {"kind": "rabbitmq", "amqp_url": rabbitmq_server.url}),
        "target_queue": queue,
    }
    for name, number in (("b", 1), ("a", 2)):
        (tmp_path / "in" / f"{name}.jsonl").write_text(f'{{"id": {number}}}\n', "utf-8")
        assert run_stream(stream_from_keywords(given, None), StreamOptions(available_now=True))["total_rows"] == 1
    channel = rabbitmq_server.channel()
    messages = [channel.basic_get(queue, auto_ack=True) for _ in range(3)]
    channel.connection.close()
    assert [body for _, _, body in messages] == [b'{"id":1}', b'{"id":2}', None]
    assert messages[0][1].message_id != messages[1][1].message_id
