"""Topics for the tests of streams, and the session that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.streams.feeds import Topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.kafka import KafkaBroker


@pytest.fixture(autouse=True)
def _one_session(quick_streams: None) -> None:
    """Let every test use the session that all of them share."""


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> Topic:
    """Return an empty topic of three partitions."""
    return Topic(kafka_broker, kafka_broker.create_topic(3))


@pytest.fixture
def line(kafka_broker: KafkaBroker) -> Topic:
    """Return an empty topic of one partition, whose messages have one order."""
    return Topic(kafka_broker, kafka_broker.create_topic(1))


@pytest.fixture
def sides(kafka_broker: KafkaBroker) -> tuple[Topic, Topic]:
    """Return two empty topics."""
    return Topic(kafka_broker, kafka_broker.create_topic(1)), Topic(kafka_broker, kafka_broker.create_topic(1))


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Return the path of a DuckDB file that is not there yet."""
    return tmp_path / "warehouse.duckdb"
