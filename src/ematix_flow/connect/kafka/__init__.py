"""Kafka."""

from ematix_flow.connect.base.system import BROKER, SystemRecord
from ematix_flow.declare.connection.brokers import KafkaConnection

KAFKA = SystemRecord(
    KafkaConnection,
    BROKER,
    stream_source=f"{__name__}.source:KafkaSource",
    sink=f"{__name__}.sink:KafkaSink",
    extra="kafka",
)
SYSTEMS = (KAFKA,)
