"""RabbitMQ."""

from ematix_flow.connect.base.system import BROKER, SystemRecord
from ematix_flow.declare.connection.brokers import RabbitMQConnection

RABBITMQ = SystemRecord(
    RabbitMQConnection,
    BROKER,
    stream_source=f"{__name__}.source:RabbitMQSource",
    sink=f"{__name__}.sink:RabbitMQSink",
    extra="rabbitmq",
)
SYSTEMS = (RABBITMQ,)
