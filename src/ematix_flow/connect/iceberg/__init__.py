"""Iceberg tables."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (
    SystemRecord(
        "iceberg",
        lake_source=f"{__name__}.table:IcebergSource",
        lake_table=f"{__name__}.table:Iceberg",
        stream=f"{__name__}.stream_source:IcebergStream",
    ),
)
