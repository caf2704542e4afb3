"""Files in folders and buckets, as sources, targets and streams."""

from ematix_flow.connect.base.capabilities import FINITE, Capabilities
from ematix_flow.connect.base.system import FOLDER, SystemRecord
from ematix_flow.declare.connection.files import (
    ObjectStoreAzureConnection,
    ObjectStoreGCSConnection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
)

_CAPABILITIES = Capabilities(
    modes=("append", "truncate"),
    source=True,
    guarantee="exactly once for readers of the commit records; readers of the folder see whole files, none twice",
    transactional_ddl=True,
    answers_sql=False,
    times=FINITE,
)

FILES_LOCAL = SystemRecord(
    ObjectStoreLocalConnection,
    FOLDER,
    source=f"{__name__}.source:Files",
    target=f"{__name__}.table:FileTables",
    stream_source=f"{__name__}.stream_source:FileStream",
    capabilities=_CAPABILITIES,
)
FILES_S3 = SystemRecord(
    ObjectStoreS3Connection,
    FOLDER,
    source=f"{__name__}.s3:S3Files",
    target=f"{__name__}.s3:S3Tables",
    stream_source=f"{__name__}.object_stream_source:S3FileStream",
    capabilities=_CAPABILITIES,
    extra="s3",
)
FILES_GCS = SystemRecord(
    ObjectStoreGCSConnection,
    FOLDER,
    source=f"{__name__}.gcs:GcsFiles",
    target=f"{__name__}.gcs:GcsTables",
    stream_source=f"{__name__}.object_stream_source:GcsFileStream",
    capabilities=_CAPABILITIES,
    extra="gcs",
)
FILES_AZURE = SystemRecord(
    ObjectStoreAzureConnection,
    FOLDER,
    source=f"{__name__}.azure:AzureFiles",
    target=f"{__name__}.azure:AzureTables",
    stream_source=f"{__name__}.object_stream_source:AzureFileStream",
    capabilities=_CAPABILITIES,
    extra="azure",
)
SYSTEMS = (FILES_LOCAL, FILES_S3, FILES_GCS, FILES_AZURE)
