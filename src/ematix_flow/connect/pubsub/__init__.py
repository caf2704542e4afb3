"""Google Pub/Sub."""

from ematix_flow.connect.base.system import BROKER, SystemRecord
from ematix_flow.declare.connection.brokers import PubSubConnection

PUBSUB = SystemRecord(
    PubSubConnection,
    BROKER,
    stream_source=f"{__name__}.source:PubSubSource",
    sink=f"{__name__}.sink:PubSubSink",
    extra="pubsub",
)
SYSTEMS = (PUBSUB,)
