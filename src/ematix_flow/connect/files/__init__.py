"""Files in folders and buckets, as sources, targets and streams."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (
    SystemRecord(
        "object_store_local",
        files=f"{__name__}.source:Files",
        file_tables=f"{__name__}.table:FileTables",
        stream=f"{__name__}.stream_source:FileStream",
    ),
    SystemRecord(
        "object_store_s3",
        files=f"{__name__}.s3:S3Files",
        file_tables=f"{__name__}.s3:S3Tables",
        stream=f"{__name__}.object_stream_source:S3FileStream",
    ),
    SystemRecord(
        "object_store_gcs",
        files=f"{__name__}.gcs:GcsFiles",
        file_tables=f"{__name__}.gcs:GcsTables",
        stream=f"{__name__}.object_stream_source:GcsFileStream",
    ),
    SystemRecord(
        "object_store_azure",
        files=f"{__name__}.azure:AzureFiles",
        file_tables=f"{__name__}.azure:AzureTables",
        stream=f"{__name__}.object_stream_source:AzureFileStream",
    ),
)
