"""Tables that are folders of a bucket: what `file_tables` does, on a store with conditional writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.file_tables import FileTables
from ematix_flow.connect.s3_client import place_of
from ematix_flow.connect.store_s3 import S3Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.declare.connection import ObjectStoreS3Connection


class S3Tables(FileTables):
    """Tables that are folders below a prefix of a bucket."""

    kind = "object_store_s3"
    task_imports = ("ematix_flow.connect.file_parts", "boto3")

    def __init__(self, connection: ObjectStoreS3Connection) -> None:
        self._bucket = S3Store(place_of(connection))
        self._keep(connection, self._bucket.shown, self._bucket)

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same objects."""
        return self._bucket.place.identity()

    def info(self) -> Mapping[str, object]:
        """Give the service and the address."""
        return self._bucket.place.info()
