from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from ematix_flow.connect.kafka.cluster import Kafka
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.spark.session import session_for
from tests.services.kafka import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.kafka import KafkaBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.service,
    pytest.mark.xdist_group("lakes"),
    pytest.mark.usefixtures("quick_lakes"),
]


def reader(broker: KafkaBroker, way: str) -> Kafka:
    ways: dict[str, dict[str, Any]] = {
        "open": {"bootstrap_servers": broker.address},
        "scram": {
            "bootstrap_servers": broker.login_address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_scram_username": USER,
            "sasl_scram_password": PASSWORD,
            "sasl_scram_mechanism": "sha-512",
        },
        "certificate": {
            "bootstrap_servers": broker.tls_address,
            "tls_ca_path": str(broker.certificates / "ca.pem"),
            "tls_cert_path": str(broker.certificates / "client.pem"),
            "tls_key_path": str(broker.certificates / "client.key"),
        },
    }
    return Kafka(KafkaConnection("events", **ways[way]))


def filled_topic(broker: KafkaBroker) -> str:
    topic = broker.create_topic(2)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for number in range(4):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(30) == 0
    return topic


@pytest.mark.deep
@pytest.mark.parametrize("way", ["open", "scram", "certificate"])
def test_spark_reads_a_topic_with_the_declared_login(kafka_broker: KafkaBroker, way: str) -> None:
    options = reader(kafka_broker, way).spark_options | {"subscribe": filled_topic(kafka_broker)}
    frame = session_for(Options())().read.format("kafka").options(**options).load()
    found = frame.selectExpr("partition", "offset", "CAST(value AS STRING)").collect()
    assert sorted(map(tuple, found)) == [(0, 0, "0"), (0, 1, "2"), (1, 0, "1"), (1, 1, "3")]


def test_spark_streams_what_is_in_a_topic(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topic = filled_topic(kafka_broker)
    options = reader(kafka_broker, "open").spark_options | {"subscribe": topic, "startingOffsets": "earliest"}
    spark = session_for(Options())()
    stream = spark.readStream.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS v")
    name = topic.replace("-", "_")
    query = stream.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(row.v for row in spark.table(name).collect()) == ["0", "1", "2", "3"]
