"""Streams that are to go on after errors, with the servers on either side gone for a while."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.serve.cli.streaming import create_project, running, stopped, wait_for, wait_for_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.kafka import KafkaBroker
    from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.crash]

AGAIN = ("--restart-on-error", "--max-backoff-ms", "200", "--format", "lines")


def test_a_stream_waits_for_its_database(
    kafka_broker: KafkaBroker, postgres_server: PostgresServer, postgres_url: str, project: Path
) -> None:
    streams = create_project(kafka_broker, f'kind = "postgres"\n    url = "{postgres_url}"')
    streams.send(range(10))
    with running("orders", *AGAIN) as process:
        wait_for_rows(process.stdout, 10)
        postgres_server.crash()
        streams.send(range(10, 20))
        assert json.loads(wait_for('"failure"', process.stdout))["again_in_seconds"] <= 0.2
        postgres_server.start()
        wait_for_rows(process.stdout, 10)
        code, out, _ = stopped(process)
    assert code == 0
    assert json.loads(out.splitlines()[-1])["total_rows"] == 20
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT id) FROM main.orders").fetchall() == [(20, 20)]


def test_a_stream_waits_for_its_broker(kafka_broker: KafkaBroker, project: Path) -> None:
    streams = create_project(kafka_broker)
    streams.send(range(10))
    with running("orders", *AGAIN) as process:
        wait_for_rows(process.stdout, 10)
        kafka_broker.crash()
        kafka_broker.start()
        streams.send(range(10, 20))
        wait_for_rows(process.stdout, 10)
        code, out, _ = stopped(process)
    assert code == 0
    assert json.loads(out.splitlines()[-1])["shutdown_triggered"] is True
    assert streams.ids() == list(range(20))


def test_without_being_asked_a_stream_does_not_come_back(
    kafka_broker: KafkaBroker, postgres_server: PostgresServer, postgres_url: str, project: Path
) -> None:
    streams = create_project(kafka_broker, f'kind = "postgres"\n    url = "{postgres_url}"')
    streams.send(range(10))
    with running("orders", "--format", "lines") as process:
        wait_for_rows(process.stdout, 10)
        postgres_server.crash()
        streams.send(range(10, 20))
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: " in err
    assert json.loads(out.splitlines()[-1])["event"] == "failure"
