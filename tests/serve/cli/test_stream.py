from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.serve.cli.streaming import create_project

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serve.cli.streaming import Project
    from tests.services.kafka import KafkaBroker

    Flow = Callable[..., Any]

pytestmark = [pytest.mark.service, pytest.mark.slow]

ORDERS = ("orders", "-m", "streams")
ONCE = (*ORDERS, "--once")


@pytest.fixture
def streams(kafka_broker: KafkaBroker, project: Path) -> Project:
    created = create_project(kafka_broker)
    created.send(range(10))
    return created


def target_status(flow: Flow) -> dict[str, Any]:
    result = flow("stream", "status", *ORDERS, "--format", "json")
    assert result.code == 0
    (target,) = json.loads(result.out)["targets"]
    return dict(target)


def loaded(flow: Flow, *arguments: str) -> int:
    return int(json.loads(flow("consume", *ONCE, *arguments).out)["total_rows"])


def emptied() -> None:
    with closing(sqlite3.connect("lite.db")) as connection, connection:
        connection.execute("DELETE FROM orders")


def test_status_says_where_targets_stand_and_what_waits_for_them(flow: Flow, streams: Project) -> None:
    before = target_status(flow)
    assert (before["position"], before["lag"], before["problem"]) == (None, 10, None)
    assert not Path("lite.db").exists()
    loaded(flow)
    streams.send(range(10, 13))
    after = target_status(flow)
    assert sum(after["position"]["offsets"].values()) == 10
    assert (after["target"], after["lag"], sum(after["waiting"].values())) == ("main.orders", 3, 3)
    output = flow("stream", "status", *ORDERS).out
    assert output.startswith("TARGET       WAITING  POSITION\nmain.orders  3")


def test_what_a_rewound_stream_reads_again_is_loaded_again(flow: Flow, streams: Project) -> None:
    loaded(flow)
    emptied()
    result = flow("stream", "rewind", *ORDERS, "--to", "earliest", "--format", "json")
    assert result.code == 0
    assert sum(json.loads(result.out)["targets"][0]["after"]["offsets"].values()) == 0
    assert "a target with mode append gets their rows once more" in result.err
    assert loaded(flow) == 10
    assert streams.ids() == list(range(10))
    assert loaded(flow) == 0


def test_a_stream_can_be_rewound_again_and_again_over_the_same_messages(flow: Flow, streams: Project) -> None:
    loaded(flow)
    for _ in range(3):
        emptied()
        assert flow("stream", "rewind", *ORDERS, "--to", "earliest").code == 0
        assert loaded(flow) == 10
    assert streams.ids() == list(range(10))


def test_partitions_that_are_not_mentioned_stay_where_they_are(flow: Flow, streams: Project) -> None:
    loaded(flow)
    offsets = target_status(flow)["position"]["offsets"]
    flow("stream", "rewind", *ORDERS, "--to", '{"0": 0}')
    assert target_status(flow)["position"]["offsets"] == {**offsets, "0": 0}


def test_a_stream_that_never_ran_is_not_rewound_but_can_be_told_where_to_begin(flow: Flow, streams: Project) -> None:
    result = flow("stream", "rewind", *ORDERS, "--to", "latest")
    assert result.code == 1
    assert "'main.orders' of stream 'orders' has loaded nothing yet" in result.err
    assert flow("stream", "reset", *ORDERS, "--from", "ledger").code == 1
    assert flow("stream", "reset", *ORDERS, "--from", "latest").code == 0
    streams.send(range(10, 12))
    assert loaded(flow) == 2
    assert streams.ids() == [10, 11]


def test_reset_to_the_ledger_moves_nothing(flow: Flow, streams: Project) -> None:
    loaded(flow)
    before = target_status(flow)["position"]
    result = flow("stream", "reset", *ORDERS, "--from", "ledger", "--format", "json")
    assert json.loads(result.out)["targets"] == [{"target": "main.orders", "before": before, "after": before}]
    assert target_status(flow)["position"] == before


def test_a_topic_that_was_made_again_needs_a_word_from_the_operator(flow: Flow, streams: Project) -> None:
    loaded(flow)
    admin = streams.broker.admin()
    admin.delete_topics([streams.topic])[streams.topic].result(30)
    streams.broker.create_topic(2, streams.topic)
    streams.send(range(20, 25))
    result = flow("consume", *ONCE, "--restart-on-error")
    assert result.code == 1
    assert "it was deleted and made again" in result.err
    assert "it was deleted and made again" in target_status(flow)["problem"]
    assert flow("stream", "reset", *ORDERS, "--from", "earliest").code == 0
    assert loaded(flow) == 5


def test_a_stream_that_reads_another_topic_needs_a_word_from_the_operator(flow: Flow, streams: Project) -> None:
    loaded(flow)
    with closing(sqlite3.connect("lite.db")) as connection, connection:
        connection.execute("UPDATE ematix_flow_watermarks SET column_name = 'kafka:other'")
    refused = flow("stream", "reset", *ORDERS, "--from", "ledger")
    assert refused.code == 1
    assert f"read kafka:other before, and reads kafka:{streams.topic} now" in refused.err
    assert flow("stream", "rewind", *ORDERS, "--to", "latest").code == 0
    assert target_status(flow)["lag"] == 0


def test_a_range_is_loaded_apart_from_the_stream(flow: Flow, streams: Project) -> None:
    loaded(flow)
    before = target_status(flow)["position"]
    emptied()
    half = json.dumps({"0": 0, "1": 2})
    end = json.dumps({"0": 0, "1": before["offsets"]["1"]})
    offset = max(0, before["offsets"]["1"] - 2)
    assert loaded(flow, "--from", half, "--to", end) == offset
    assert len(streams.ids()) == offset
    assert target_status(flow)["position"] == before
    # A range that is done is done: running over it again finds nothing left.
    assert loaded(flow, "--from", half, "--to", end) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rewind", "nobody", "-m", "streams", "--to", "earliest"), "no stream named 'nobody'"),
        (("rewind", *ORDERS), "Missing option '--to'"),
        (("reset", *ORDERS, "--from", "earliest", "--target", "main.order"), "did you mean 'main.orders'?"),
        (("status", "orders", "--config", "nothing.toml"), "there is no file nothing.toml"),
    ],
)
def test_what_is_not_there_is_an_error_of_usage(
    flow: Flow, streams: Project, arguments: tuple[str, ...], message: str
) -> None:
    result = flow("stream", *arguments)
    assert result.code == 2
    assert message in result.err


def test_a_place_that_means_nothing_is_refused(flow: Flow, streams: Project) -> None:
    loaded(flow)
    result = flow("stream", "rewind", *ORDERS, "--to", "yesterday")
    assert result.code == 1
    assert "'yesterday' is neither earliest, latest, an instant nor a position as JSON" in result.err
