"""Delta tables."""

from dataclasses import replace

from ematix_flow.connect.base.system import LAKE, SystemRecord
from ematix_flow.connect.lake.capabilities import LAKE_CAPABILITIES
from ematix_flow.declare.connection.databases import DeltaLocalConnection, DeltaS3Connection

_CAPABILITIES = replace(
    LAKE_CAPABILITIES, reports_merges=True, adds_files=True, partition_transforms=(), cannot_store=("empty_partition",)
)

DELTA_LOCAL = SystemRecord(
    DeltaLocalConnection,
    LAKE,
    source=f"{__name__}.table:DeltaSource",
    target=f"{__name__}.table:Delta",
    stream_source=f"{__name__}.stream_source:DeltaStream",
    capabilities=_CAPABILITIES,
)
DELTA_S3 = SystemRecord(
    DeltaS3Connection,
    LAKE,
    source=f"{__name__}.table:DeltaS3Source",
    target=f"{__name__}.table:DeltaS3",
    stream_source=f"{__name__}.stream_source:DeltaS3Stream",
    capabilities=_CAPABILITIES,
    extra="s3",
)
SYSTEMS = (DELTA_LOCAL, DELTA_S3)
