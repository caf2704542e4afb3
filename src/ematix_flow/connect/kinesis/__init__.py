"""AWS Kinesis."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (SystemRecord("kinesis", stream=f"{__name__}.source:KinesisSource", sink=f"{__name__}.sink:KinesisSink"),)
