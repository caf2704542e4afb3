"""`flow dlq replay --all`: what could not be loaded goes through the stream again, from the books and from a topic."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.serve.cli.streaming import create_project
from tests.services.messages import send

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serve.cli.streaming import Project
    from tests.services.kafka import KafkaBroker

    Flow = Callable[..., Any]

pytestmark = [pytest.mark.service, pytest.mark.slow]

ORDERS = ("orders", "-m", "streams")


@pytest.fixture(params=["books", "topic"])
def streams(request: pytest.FixtureRequest, kafka_broker: KafkaBroker, project: Path) -> Project:
    """Return the project with streams that keep dead letters, in the books alone or in a topic too."""
    created = create_project(kafka_broker)
    extra = 'transform_on_error="dlq"'
    if request.param == "topic":
        extra += f', dead_letter_topic="{kafka_broker.create_topic(1)}"'
    module = Path("streams.py")
    module.write_text(module.read_text("utf-8").replace("idle_pause_ms=50", f"idle_pause_ms=50, {extra}"), "utf-8")
    return created


def sql(statement: str) -> None:
    with closing(sqlite3.connect("lite.db")) as connection, connection:
        connection.execute(statement)


def replayed(flow: Flow) -> tuple[int, dict[str, int]]:
    result = flow("dlq", "replay", *ORDERS, "--all")
    counts = {name: count for name, count in json.loads(result.out).items() if not name.endswith("_ms")}
    return result.code, counts


def test_all_dead_letters_are_replayed_once_and_what_fails_again_is_kept(flow: Flow, streams: Project) -> None:
    streams.send([1])
    flow("consume", *ORDERS, "--once")
    streams.send([1, 2])
    send(streams.broker, streams.topic, "{no message")
    assert flow("consume", *ORDERS, "--once").code == 0
    assert streams.ids() == [1, 2]
    sql("DELETE FROM orders WHERE id = 1")
    code, counts = replayed(flow)
    assert (code, counts) == (1, {"taken": 2, "succeeded": 1, "redeadlettered": 1, "parked": 0})
    assert streams.ids() == [1, 2]
    code, counts = replayed(flow)
    assert (code, counts["taken"], counts["succeeded"]) == (1, 1, 0), "the one that was loaded is not taken again"
    assert flow("dlq", "purge", *ORDERS, "--all").code == 0
    assert replayed(flow) == (0, {"taken": 0, "succeeded": 0, "redeadlettered": 0, "parked": 0})
    assert streams.ids() == [1, 2]


def test_which_ones_has_to_be_said(flow: Flow, streams: Project) -> None:
    for which in ((), ("--all", "--first", "1")):
        result = flow("dlq", "replay", *ORDERS, *which)
        assert (result.code, "--id ID, --first N or --all" in result.err) == (2, True)
