"""RabbitMQ."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (SystemRecord("rabbitmq", stream=f"{__name__}.source:RabbitMQSource", sink=f"{__name__}.sink:RabbitMQSink"),)
