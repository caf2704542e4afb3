"""Files in a container of Azure Blob Storage, as a source and as a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.files.object_source import BucketFiles
from ematix_flow.connect.files.object_table import BucketTables
from ematix_flow.connect.storage.azure.client import location_of
from ematix_flow.connect.storage.azure.store import AzureStore

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import ObjectStoreAzureConnection


class AzureFiles(BucketFiles):
    """The files that are read."""

    kind = "object_store_azure"

    def opened(self, connection: ObjectStoreAzureConnection) -> AzureStore:
        """Return the store that a connection names."""
        return AzureStore(location_of(connection))


class AzureTables(BucketTables):
    """The tables that are written."""

    kind = "object_store_azure"
    task_imports = ("ematix_flow.connect.staging.files", "azure.storage.blob")

    def opened(self, connection: ObjectStoreAzureConnection) -> AzureStore:
        """Return the store that a connection names."""
        return AzureStore(location_of(connection))
