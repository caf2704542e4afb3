"""What a source has had before a position and has no longer, which the position of an instant does not say."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from ematix_flow.connect.base.combined_source import CombinedSource
from ematix_flow.connect.kafka.source import KafkaSource
from ematix_flow.connect.kinesis.source import KinesisSource
from ematix_flow.connect.rabbitmq.source import RabbitMQSource
from ematix_flow.connect.spool import log as spools
from ematix_flow.connect.spool.log import QueueMessage, Spool
from ematix_flow.declare.connection.brokers import KafkaConnection, KinesisConnection, RabbitMQConnection
from tests.connect.test_kafka import produce
from tests.services.kinesis import create_stream
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from tests.services.kafka import KafkaBroker
    from tests.services.s3 import S3Server

pytestmark = pytest.mark.xdist_group("brokers")


def at(seconds: float) -> str:
    """Return an instant so many seconds after 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@pytest.mark.service
def test_records_that_a_topic_kept_no_longer(kafka_broker: KafkaBroker) -> None:
    names = [kafka_broker.create_topic(2), kafka_broker.create_topic(1)]
    connection = KafkaConnection("events", bootstrap_servers=kafka_broker.address)
    cut, whole = (KafkaSource(connection, name) for name in names)
    both = CombinedSource([whole, cut])
    try:
        produce(kafka_broker, names[0], (0, 1000), (0, 2000), (0, 3000), (0, 4000), (1, 2000))
        produce(kafka_broker, names[1], (0, 3000))
        assert [cut.gone_before(cut.start(where)) for where in ("earliest", at(1), at(2))] == [None] * 3
        admin = kafka_broker.admin()
        for future in admin.delete_records([TopicPartition(names[0], 0, 2)]).values():
            future.result(20)
        gone = f"records 0 to 1 of partition 0 of '{names[0]}' are gone: the topic kept them no longer"
        # The first record that is there may have had neighbours of its time.
        assert [both.gone_before(both.start(where)) for where in ("earliest", at(1), at(3))] == [gone] * 3
        assert [both.gone_before(both.start(where)) for where in (at(4), at(9), "latest")] == [None] * 3
    finally:
        both.close()


@pytest.mark.service
def test_records_that_a_stream_of_kinesis_kept_no_longer(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    login = {"region": REGION, "access_key_id": KEY, "secret_access_key": SECRET, "endpoint": s3_server.endpoint}
    source = KinesisSource(KinesisConnection("k", stream_name=create_stream(s3_server), **login), "")
    now, hour = time.time(), 3600
    positions = [source.start(where) for where in ("earliest", at(now - 99 * hour), at(now + 47 * hour))]
    assert [source.gone_before(position) for position in positions] == [None] * 3
    monkeypatch.setattr(time, "time", lambda: now + 48 * hour)
    gone = [source.gone_before(position) for position in positions]
    assert ["before the last 24 hours are gone" in str(one) for one in gone] == [True, True, False]
    (shard,) = positions[1]["shards"]
    assert source.gone_before({**positions[1], "shards": {shard: "495"}}) is None


def test_messages_that_a_spool_has_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 1)
    source = RabbitMQSource(RabbitMQConnection("q", amqp_url="amqp://127.0.0.1:1/%2F"), "orders")
    (folder,) = source.read_paths
    spool = Spool(Path(folder))
    for number in range(4):
        spool.append([QueueMessage(b"%d" % number)])
    spool.close()
    assert source.gone_before(source.start("earliest")) is None
    source.close()
    spool = Spool(Path(folder))
    spool.trim(2)
    spool.close()
    gone = "messages 0 to 1 of the spool of 'orders' are gone: every target had them"
    assert source.gone_before(source.start("earliest")) == gone
    assert source.gone_before({"next": 3}) is None
    source.close()
