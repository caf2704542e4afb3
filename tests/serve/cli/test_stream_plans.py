"""`flow preview`, `dry-run` and `validate` of streams: the next batch is shown, rehearsed and checked, and nothing moves."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.engine.api.by_name import preview
from ematix_flow.streaming import get_streaming_pipeline
from tests.serve.cli.streaming import make_project
from tests.services.topics import fill, payloads_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serve.cli.streaming import Project
    from tests.services.kafka import KafkaBroker

    Flow = Callable[..., Any]

pytestmark = [pytest.mark.service, pytest.mark.slow]

HERE = ("orders", "-m", "streams")


@pytest.fixture
def streams(kafka_broker: KafkaBroker, project: Path) -> Project:
    made = make_project(kafka_broker)
    made.send(range(10))
    return made


def rewritten(old: str, new: str) -> tuple[str, ...]:
    """Give the words for a stream of another module, which differs in this."""
    text = Path("streams.py").read_text("utf-8").replace(old, new)
    Path("changed.py").write_text(text[: text.index('declare("orders')] + 'declare("changed", Orders)\n', "utf-8")
    return ("changed", "-m", "changed")


def target_of(said: Any) -> dict[str, Any]:
    (target,) = json.loads(said.out)["targets"]
    return dict(target)


def test_a_preview_shows_the_plan_of_the_next_batch_and_makes_nothing(flow: Flow, streams: Project) -> None:
    said = flow("preview", *HERE)
    assert said.code == 0
    assert "target main.orders on place" in said.out
    assert "commit" in said.out
    assert "main.orders: exactly once: rows and position are one commit of the target" in said.out
    assert "main.orders: the next batch has 10 messages" in said.out
    assert not Path("lite.db").exists()


def test_a_dry_run_counts_the_next_batch_and_keeps_nothing(flow: Flow, streams: Project) -> None:
    fill(streams.broker.address, streams.topic, [b"{broken"])
    said = flow("dry-run", *HERE, "--format", "json")
    assert said.code == 1
    assert "1 of 11 rows do not fit the target" in target_of(said)["dry_run_error"]
    assert not Path("lite.db").exists()
    forgiving = rewritten("idle_pause_ms=50", 'idle_pause_ms=50, transform_on_error="dlq"')
    for _ in range(2):
        said = flow("dry-run", *forgiving, "--format", "json")
        assert said.code == 0, said.err
        counted = target_of(said)["dry_run_rows_affected"]
        assert (counted["rows_staged"], counted["rows_inserted"]) == (10, 10)
        assert not Path("lite.db").exists()
    assert json.loads(flow("consume", *forgiving, "--once").out)["total_rows"] == 11
    said = flow("dry-run", *forgiving)
    assert said.code == 0
    assert "main.orders: nothing waits" in said.out
    streams.send(range(20, 23))
    said = flow("dry-run", *forgiving)
    assert "would be  3 staged, 3 inserted" in said.out
    assert streams.ids() == list(range(10))


def test_what_the_messages_say_is_planned_by_a_dry_run(flow: Flow, streams: Project) -> None:
    named = rewritten("target_table=table", 'targets=[Target("place", table=("main", "n"), create_table=True)]')
    text = (
        Path("changed.py")
        .read_text("utf-8")
        .replace('target="place", ', "")
        .replace("ematix, pk", "Target, ematix, pk")
    )
    Path("changed.py").write_text(text, "utf-8")
    said = flow("preview", *named)
    assert said.code == 0, said.err
    assert "flow dry-run reads them and shows the plan" in said.out
    said = flow("dry-run", *named, "--format", "json")
    assert said.code == 0, said.err
    target = target_of(said)
    assert target["declared_columns"] == ["id", "name"]
    assert target["dry_run_rows_affected"]["rows_inserted"] == 10
    assert not Path("lite.db").exists()


def test_messages_for_a_topic_are_counted_and_not_sent(flow: Flow, streams: Project) -> None:
    topic = streams.broker.create_topic()
    Path("copy.toml").write_text(
        f"""
pipeline_name = "copy"
source_query = "{streams.topic}"

[source]
type = "kafka"
bootstrap_servers = "{streams.broker.address}"

[target]
type = "kafka"
bootstrap_servers = "{streams.broker.address}"
topic = "{topic}"
"""
    )
    said = flow("dry-run", "copy.toml", "--format", "json")
    assert said.code == 0, said.err
    assert target_of(said)["dry_run_rows_affected"] == {"rows_staged": 10, "rows_inserted": 10, "rows_rejected": 0}
    assert payloads_of(streams.broker.address, topic) == []
    fill(streams.broker.address, streams.topic, [b"{broken"])
    said = flow("dry-run", "copy.toml")
    assert said.code == 1
    assert "1 message cannot be read" in said.out
    said = flow("validate", "copy.toml")
    assert said.code == 0
    assert said.out.startswith("copy: ok\n")
    assert "exactly once: messages and position are one transaction" in said.out


def test_validate_names_what_would_fail(flow: Flow, streams: Project) -> None:
    assert flow("validate", *HERE).out.startswith("orders: ok\n")
    with closing(sqlite3.connect("lite.db")) as connection:
        connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, other TEXT)")
    said = flow("validate", *HERE)
    assert said.code == 1
    assert "main.orders" in said.out
    assert "column 'name' is missing" in said.out
    said = flow("validate", *rewritten(streams.topic, "no-such-topic"), "--format", "json")
    assert said.code == 1
    assert "no-such-topic" in " ".join(json.loads(said.out)["errors"])


def test_a_batch_of_a_stream_is_not_kept_for_apply(flow: Flow, streams: Project) -> None:
    said = flow("plan", *HERE, "--diff")
    assert said.code == 2
    assert "is a stream" in said.err
    assert flow("plan", *HERE).code == 0


def test_a_handle_gives_its_plans(flow: Flow, streams: Project) -> None:
    assert flow("list", "-m", "streams").code == 0  # declares the streams in this process
    handle = get_streaming_pipeline("orders")
    assert handle.validate().ok
    assert handle.preview().targets[0].schema_qualified_name == "main.orders"
    assert handle.dry_run().targets[0].dry_run_rows_affected["rows_inserted"] == 10
    assert preview("orders").pipeline_name == "orders"
