"""AWS Kinesis."""

from ematix_flow.connect.base.system import BROKER, SystemRecord
from ematix_flow.declare.connection.brokers import KinesisConnection

KINESIS = SystemRecord(
    KinesisConnection,
    BROKER,
    stream_source=f"{__name__}.source:KinesisSource",
    sink=f"{__name__}.sink:KinesisSink",
    extra="kinesis",
)
SYSTEMS = (KINESIS,)
