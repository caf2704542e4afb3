"""The files of Iceberg tables for pyiceberg, read and written through our stores; no table and no catalog is known here.

Our stores keep their promises here too: what was written survives a crash, a new file never replaces another, and
deadlines, keys and errors are those of the connection.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from ematix_flow.connect.lake.location import at_address
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.declare.connection.registry import IcebergConnection

_BUCKETS = ("s3", "s3a", "s3n")
_STORES = "ematix-flow.stores"


class TableStores:
    """The stores that the locations of an Iceberg catalog lead to, with the credentials of its connection."""

    def __init__(self, connection: IcebergConnection) -> None:
        self._connection = connection
        self._stores: dict[str, Store] = {}

    def find(self, location: str) -> tuple[Store, str]:
        """Return the store of a location and the key in it."""
        scheme, colon, remainder = location.partition(":")
        if colon and scheme in _BUCKETS:
            bucket, _, key = remainder.lstrip("/").partition("/")
            return self._bucket(bucket), key
        path = remainder if colon and scheme == "file" else location
        if not path.startswith("/"):
            message = f"the location {location!r} is no absolute path and in no bucket"
            raise UnsupportedError(message)
        return self._stores.setdefault("", LocalStore("/")), path.lstrip("/")

    def _bucket(self, bucket: str) -> Store:
        if bucket not in self._stores:
            self._stores[bucket] = at_address(self._connection, f"s3://{bucket}").store
        return self._stores[bucket]


def io_properties(stores: TableStores) -> dict[str, Any]:
    """Return the properties that make a catalog of pyiceberg use these stores; they hold no secret as text."""
    return {"py-io-impl": f"{__name__}.StoreIO", _STORES: stores}


class StoreIO(FileIO):  # type: ignore[misc]  # published with types, but not needed to be installed
    """Files of a table, by their locations."""

    def __init__(self, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self._stores: TableStores = properties[_STORES]

    def new_input(self, location: str) -> InputFile:
        """Return a file that is read."""
        return _Input(location, *self._stores.find(location))

    def new_output(self, location: str) -> OutputFile:
        """Return a file that is written."""
        return _Output(location, *self._stores.find(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file; one that is gone is no error."""
        store, key = self._stores.find(location if isinstance(location, str) else location.location)
        store.delete(key)


class _Input(InputFile):  # type: ignore[misc]
    def __init__(self, location: str, store: Store, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key

    def __len__(self) -> int:
        size = self._store.size(self._key)
        if size is None:
            raise FileNotFoundError(self._location)
        return size

    def exists(self) -> bool:
        return self._store.size(self._key) is not None

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002 - as pyiceberg calls it
        del seekable
        return self._store.reader(self._key)


class _Output(OutputFile):  # type: ignore[misc]
    def __init__(self, location: str, store: Store, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self._store.size(self._key) is not None

    def to_input_file(self) -> InputFile:
        return _Input(self._location, self._store, self._key)

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - as pyiceberg calls it
        del overwrite  # names of metadata files are new ones
        return _UploadBuffer(self._location, self._store, self._key)


class _UploadBuffer(io.BytesIO):
    """Bytes that become a new file when they are closed: metadata is small."""

    def __init__(self, location: str, store: Store, key: str) -> None:
        super().__init__()
        self._location, self._store, self._key = location, store, key

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            if not self._store.create(self._key, data):
                raise FileExistsError(self._location)
