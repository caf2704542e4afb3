"""Google Pub/Sub."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (SystemRecord("pubsub", stream=f"{__name__}.source:PubSubSource", sink=f"{__name__}.sink:PubSubSink"),)
