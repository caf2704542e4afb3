"""Iceberg tables."""

from dataclasses import replace

from ematix_flow.connect.base.system import LAKE, SystemRecord
from ematix_flow.connect.lake.capabilities import LAKE_CAPABILITIES
from ematix_flow.declare.connection.databases import IcebergConnection
from ematix_flow.declare.table.partitions import TRANSFORMS

ICEBERG = SystemRecord(
    IcebergConnection,
    LAKE,
    source=f"{__name__}.table:IcebergSource",
    target=f"{__name__}.table:Iceberg",
    stream_source=f"{__name__}.stream_source:IcebergStream",
    capabilities=replace(LAKE_CAPABILITIES, partition_transforms=tuple(TRANSFORMS)),
    extra="iceberg",
)
SYSTEMS = (ICEBERG,)
