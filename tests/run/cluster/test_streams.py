"""Streams whose tasks run on a cluster: messages and SQL with functions of the user; a folder of the driver is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.services.topics import fill

if TYPE_CHECKING:
    from tests.run.cluster.conftest import Project
    from tests.services.kafka import KafkaBroker
    from tests.services.standalone import Standalone

pytestmark = [
    pytest.mark.deep, pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_messages_are_read_shaped_and_staged_by_executors(
    kind: str, cluster: Standalone, project: Project, kafka_broker: KafkaBroker, request: pytest.FixtureRequest
) -> None:
    settings = cluster.settings() if kind == "classic" else request.getfixturevalue("connected")
    topic = kafka_broker.create_topic(2)
    messages = [json.dumps({"id": n, "note": f"n{n}", "price": n / 2}).encode() for n in range(300)]
    fill(kafka_broker.address, topic, [*messages, b'{"id": 300, "no'])
    settings |= {"BROKERS": kafka_broker.address, "TOPIC": topic, "TARGET": project.connections["target"]["url"]}
    for name in ("plain", "priced"):
        done = project.flow(settings, "consume", name, "--module", "feed", "--once")
        assert done.returncode == 0, done.stderr[-3000:]
    assert project.rows("SELECT count(*), min(note), max(id) FROM seen") == [(300, "n0", 299)]
    assert project.rows("SELECT count(*), sum(price) FROM rated") == [(300, 300 * 299 / 2 * 0.75)]
    (project.folder / "inbox").mkdir()
    (project.folder / "inbox" / "one.jsonl").write_text('{"id": 1, "note": "x"}\n')
    refused = project.flow(settings, "consume", "from_folder", "--module", "feed", "--once")
    assert refused.returncode == 1
    assert "which only this machine has" in refused.stderr
