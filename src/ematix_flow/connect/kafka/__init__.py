"""Kafka."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (SystemRecord("kafka", stream=f"{__name__}.source:KafkaSource", sink=f"{__name__}.sink:KafkaSink"),)
