"""Streams by the JSON API: a real topic, dead letters that are shown, replayed, parked and purged, and a rewind."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.declare.project import load_module
from ematix_flow.records import RunRecord
from ematix_flow.serve.cli.main import main
from tests.serve.cli.streaming import create_project
from tests.services.messages import send

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

    from tests.serve.cli.streaming import Project
    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.service, pytest.mark.slow]

RECORD = {"id", "stage", "error", "source_id", "offset_base64", "event_ts", "failed_at", "attempt", "payload_format",
          "payload_preview", "payload_size", "payload_truncated", "download"}  # fmt: skip


@pytest.fixture
def streams(kafka_broker: KafkaBroker, project: Path) -> Project:
    """Return the project with a stream that has read two orders and one message that is none."""
    built = create_project(kafka_broker)
    module = Path("streams.py")
    text = module.read_text("utf-8").replace("idle_pause_ms=50", 'idle_pause_ms=50, transform_on_error="dlq"')
    module.write_text(text.replace("class place:", "class files:").replace('target="place"', 'target="files"'), "utf-8")
    load_module("streams")
    built.send([1, 2])
    send(built.broker, built.topic, "{no <b>message</b>")
    assert main(["consume", "orders", "-m", "streams", "--once"]) == 0
    return built


def test_a_stream_is_seen_and_steered(streams: Project, page: Callable[..., TestClient]) -> None:
    api = page()
    _shows(api)
    _replays_parks_and_purges(api)
    _moves(api)


def _shows(api: TestClient) -> None:
    (orders,) = [one for one in api.get("/api/streams").json()["streams"] if one["name"] == "orders"]
    assert orders["streaming_stats"]["rows_written_total"] == 2
    assert orders["latest_run"]["kind"] == "streaming"
    (target,) = api.get("/api/streams/orders").json()["targets"]
    assert (target["lag"], target["problem"]) == (0, None)

    counts = api.get("/api/streams/orders/dlq").json()
    assert counts["depth"] == {"pending": 1, "parked": 0}
    assert (counts["arrivals"]["last_60m"], counts["scanned"], counts["truncated"]) == (1, 1, False)
    (record,) = api.get("/api/streams/orders/dlq/records").json()["records"]
    assert set(record) >= RECORD
    assert record["payload_preview"] == "{no <b>message</b>"
    message = api.get(record["download"])
    assert message.content == b"{no <b>message</b>"
    assert message.headers["content-disposition"].startswith("attachment")
    assert message.headers["content-type"] == "application/octet-stream"
    assert api.get("/api/streams/nothing/dlq").status_code == 404


def _replays_parks_and_purges(api: TestClient) -> None:
    replayed = api.post("/api/streams/orders/dlq/replay", json={"selection": {"kind": "all"}}).json()
    assert replayed["report"]["redeadlettered"] + replayed["report"]["parked"] == 1
    assert api.get(f"/api/runs/{replayed['run_id']}").json()["kind"] == "replay"
    chosen = {"selection": {"kind": "all"}}
    assert api.post("/api/streams/orders/dlq/park", json={}).status_code == 422
    assert set(api.post("/api/streams/orders/dlq/park", json=chosen).json()) == {"parked"}
    assert api.post("/api/streams/orders/dlq/purge", json=chosen).json()["purged"] >= 1
    assert api.get("/api/streams/orders/dlq/records", params={"status": "all"}).json()["records"] == []
    assert [one["kind"] for one in api.get("/api/actions").json()["actions"]] == ["purge", "park", "replay"]


def _moves(api: TestClient) -> None:
    moved = api.post("/api/streams/orders/rewind", json={"to": "earliest"}).json()
    assert (moved["pipeline"], moved["state_cleared"]) == ("orders", False)
    assert api.get("/api/streams/orders").json()["targets"][0]["lag"] == 3
    log = open_run_log()
    log.record(RunRecord("now", "orders", "running", log.backend.now().isoformat(), kind="streaming"))
    assert api.post("/api/streams/orders/rewind", json={"to": "latest"}).status_code == 409
    assert next(one["kind"] for one in api.get("/api/actions").json()["actions"]) == "rewind"
    with closing(sqlite3.connect("lite.db")) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (2,)
