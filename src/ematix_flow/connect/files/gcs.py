"""Files in a bucket of Google Cloud Storage, as a source and as a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.files.object_source import BucketFiles
from ematix_flow.connect.files.object_table import BucketTables
from ematix_flow.connect.storage.gcs.client import location_of
from ematix_flow.connect.storage.gcs.store import GcsStore

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import ObjectStoreGCSConnection


class GcsFiles(BucketFiles):
    """The files that are read."""

    kind = "object_store_gcs"

    def opened(self, connection: ObjectStoreGCSConnection) -> GcsStore:
        """Return the store that a connection names."""
        return GcsStore(location_of(connection))


class GcsTables(BucketTables):
    """The tables that are written."""

    kind = "object_store_gcs"
    task_imports = ("ematix_flow.connect.staging.files", "google.cloud.storage")

    def opened(self, connection: ObjectStoreGCSConnection) -> GcsStore:
        """Return the store that a connection names."""
        return GcsStore(location_of(connection))
