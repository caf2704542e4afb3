"""Tables that are folders of a bucket: what `files.table` does, on a store with conditional writes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.files.table import FileTables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.storage.location import BucketLocation
    from ematix_flow.connect.storage.object_store import BucketStore
    from ematix_flow.declare.connection.files import BucketConnection


class BucketTables(FileTables):
    """Tables that are folders below a prefix of a bucket."""

    def __init__(self, connection: BucketConnection) -> None:
        self._bucket = self.opened(connection)
        self._configure(connection, self._bucket.display_address, self._bucket)

    @abstractmethod
    def opened(self, connection: Any) -> BucketStore[BucketLocation]:
        """Return the store that a connection names."""

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same objects."""
        return self._bucket.location.identity()

    def info(self) -> Mapping[str, object]:
        """Return the service and the address."""
        return self._bucket.location.info()
