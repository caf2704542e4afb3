"""Files in a bucket of an S3 service, as a source and as a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.files.object_source import BucketFiles
from ematix_flow.connect.files.object_table import BucketTables
from ematix_flow.connect.storage.s3.client import location_of
from ematix_flow.connect.storage.s3.store import S3Store

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import ObjectStoreS3Connection


class S3Files(BucketFiles):
    """The files that are read."""

    kind = "object_store_s3"

    def opened(self, connection: ObjectStoreS3Connection) -> S3Store:
        """Return the store that a connection names."""
        return S3Store(location_of(connection))


class S3Tables(BucketTables):
    """The tables that are written."""

    kind = "object_store_s3"
    task_imports = ("ematix_flow.connect.staging.files", "boto3")

    def opened(self, connection: ObjectStoreS3Connection) -> S3Store:
        """Return the store that a connection names."""
        return S3Store(location_of(connection))
