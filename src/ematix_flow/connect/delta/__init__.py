"""Delta tables."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (
    SystemRecord(
        "delta_local",
        lake_source=f"{__name__}.table:DeltaSource",
        lake_table=f"{__name__}.table:Delta",
        stream=f"{__name__}.stream_source:DeltaStream",
    ),
    SystemRecord(
        "delta_s3",
        lake_source=f"{__name__}.table:DeltaS3Source",
        lake_table=f"{__name__}.table:DeltaS3",
        stream=f"{__name__}.stream_source:DeltaS3Stream",
    ),
)
