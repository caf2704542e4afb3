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
from tests.serve.cli.streaming import create_project
from tests.services.topics import fill, payloads_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serve.cli.streaming import Project
    from tests.services.kafka import KafkaBroker

    Flow = Callable[..., Any]

pytestmark = [pytest.mark.service, pytest.mark.slow]

ORDERS = ("orders", "-m", "streams")


@pytest.fixture
def streams(kafka_broker: KafkaBroker, project: Path) -> Project:
    created = create_project(kafka_broker)
    created.send(range(10))
    return created


def rewritten(old: str, new: str) -> tuple[str, ...]:
    """Return the words for a stream of another module, which differs in this."""
    text = Path("streams.py").read_text("utf-8").replace(old, new)
    Path("changed.py").write_text(text[: text.index('declare("orders')] + 'declare("changed", Orders)\n', "utf-8")
    return ("changed", "-m", "changed")


def target_of(document: Any) -> dict[str, Any]:
    (target,) = json.loads(document.out)["targets"]
    return dict(target)


def test_a_preview_shows_the_plan_of_the_next_batch_and_makes_nothing(flow: Flow, streams: Project) -> None:
    result = flow("preview", *ORDERS)
    assert result.code == 0
    assert "target main.orders on place" in result.out
    assert "commit" in result.out
    assert "main.orders: exactly once: rows and position are one commit of the target" in result.out
    assert "main.orders: the next batch has 10 messages" in result.out
    assert not Path("lite.db").exists()


def test_a_dry_run_counts_the_next_batch_and_keeps_nothing(flow: Flow, streams: Project) -> None:
    fill(streams.broker.address, streams.topic, [b"{broken"])
    result = flow("dry-run", *ORDERS, "--format", "json")
    assert result.code == 1
    assert "1 of 11 rows do not fit the target" in target_of(result)["dry_run_error"]
    assert not Path("lite.db").exists()
    forgiving = rewritten("idle_pause_ms=50", 'idle_pause_ms=50, transform_on_error="dlq"')
    for _ in range(2):
        result = flow("dry-run", *forgiving, "--format", "json")
        assert result.code == 0, result.err
        counted = target_of(result)["dry_run_rows_affected"]
        assert (counted["rows_staged"], counted["rows_inserted"]) == (10, 10)
        assert not Path("lite.db").exists()
    assert json.loads(flow("consume", *forgiving, "--once").out)["total_rows"] == 11
    result = flow("dry-run", *forgiving)
    assert result.code == 0
    assert "main.orders: nothing waits" in result.out
    streams.send(range(20, 23))
    result = flow("dry-run", *forgiving)
    assert "would be  3 staged, 3 inserted" in result.out
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
    result = flow("preview", *named)
    assert result.code == 0, result.err
    assert "flow dry-run reads them and shows the plan" in result.out
    result = flow("dry-run", *named, "--format", "json")
    assert result.code == 0, result.err
    target = target_of(result)
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
    result = flow("dry-run", "copy.toml", "--format", "json")
    assert result.code == 0, result.err
    assert target_of(result)["dry_run_rows_affected"] == {"rows_staged": 10, "rows_inserted": 10, "rows_rejected": 0}
    assert payloads_of(streams.broker.address, topic) == []
    fill(streams.broker.address, streams.topic, [b"{broken"])
    result = flow("dry-run", "copy.toml")
    assert result.code == 1
    assert "1 message cannot be read" in result.out
    result = flow("validate", "copy.toml")
    assert result.code == 0
    assert result.out.startswith("copy: ok\n")
    assert "exactly once: messages and position are one transaction" in result.out


def test_validate_names_what_would_fail(flow: Flow, streams: Project) -> None:
    assert flow("validate", *ORDERS).out.startswith("orders: ok\n")
    with closing(sqlite3.connect("lite.db")) as connection:
        connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, other TEXT)")
    result = flow("validate", *ORDERS)
    assert result.code == 1
    assert "main.orders" in result.out
    assert "column 'name' is missing" in result.out
    result = flow("validate", *rewritten(streams.topic, "no-such-topic"), "--format", "json")
    assert result.code == 1
    assert "no-such-topic" in " ".join(json.loads(result.out)["errors"])


def test_a_batch_of_a_stream_is_not_kept_for_apply(flow: Flow, streams: Project) -> None:
    result = flow("plan", *ORDERS, "--diff")
    assert result.code == 2
    assert "is a stream" in result.err
    assert flow("plan", *ORDERS).code == 0


def test_a_handle_gives_its_plans(flow: Flow, streams: Project) -> None:
    assert flow("list", "-m", "streams").code == 0  # declares the streams in this process
    handle = get_streaming_pipeline("orders")
    assert handle.validate().ok
    assert handle.preview().targets[0].schema_qualified_name == "main.orders"
    assert handle.dry_run().targets[0].dry_run_rows_affected["rows_inserted"] == 10
    assert preview("orders").pipeline_name == "orders"
