"""What the readers of files share: rows with the bad ones separated, and files that are opened as they are named."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar

from ematix_flow.connect.storage.base import StoreError, StoreUnavailableError
from ematix_flow.declare.connection.file_names import codec_from_path
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.storage.base import ObjectInfo, Store

_Answer = TypeVar("_Answer")

MAX_CONCURRENT_REQUESTS = 16

LONGEST_RECORD = 256 << 20
"""Bytes after which a record that does not end is refused; most often it is a quote that was not closed."""

BOM = b"\xef\xbb\xbf"
SNAPPY = "snappy"
NOT_UTF8 = "with bytes that are not UTF-8: "


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """Some rows of a file: the good ones as columns of text, and the others as text with the fields that are known."""

    good: pa.Table
    bad: tuple[tuple[str, Mapping[str, str | None]], ...]


class StoredFile(str):
    """The address of a file in a store, with the store and what was found there; the functions below open it."""

    __slots__ = ("info", "store")
    info: ObjectInfo
    store: Store

    def __new__(cls, store: Store, info: ObjectInfo) -> Self:
        """Return the address of an object."""
        stored = super().__new__(cls, store.address(info.key))
        stored.store = store
        stored.info = info
        return stored

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredFile, (self.store, self.info)

    def reader(self) -> IO[bytes]:
        """Open the object as it was found."""
        return self.store.reader(self.info.key, self.info)


def open_bytes(path: str) -> IO[bytes]:
    """Open a file for reading, decompressed as its name requires."""
    import pyarrow as pa

    codec = codec_from_path(path)
    if codec == SNAPPY:
        raise unreadable(path, f"text that is compressed with {codec} cannot be read a part at a time")
    with naming(path):
        source = open_raw(path) if isinstance(path, StoredFile) else path
        return pa.input_stream(source, compression=codec)  # type: ignore[no-any-return]


def open_raw(path: str) -> IO[bytes]:
    """Open a file for reading as it is."""
    with naming(path):
        if isinstance(path, StoredFile):
            return io.BufferedReader(path.reader())  # type: ignore[type-var]
        return Path(path).open("rb")


def for_arrow(path: str) -> Any:
    """Return what Arrow takes to read some parts of a file."""
    import pyarrow as pa

    if not isinstance(path, StoredFile):
        return path
    with naming(path):
        return pa.PythonFile(path.reader(), mode="r")


def size_of(path: str) -> int:
    """Return the bytes of a file."""
    if isinstance(path, StoredFile):
        return path.info.size
    with naming(path):
        return Path(path).stat().st_size


def side_by_side(call: Callable[[str], _Answer], paths: Sequence[str]) -> list[_Answer]:
    """Return the result for each file, in order.

    Of files in a store some are queried at a time, because responses come over the network.
    """
    if len(paths) == 1 or not isinstance(paths[0], StoredFile):
        return [call(path) for path in paths]
    with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS, "flow-files") as pool:
        return list(pool.map(call, paths))


@contextmanager
def translating_read_errors() -> Iterator[None]:
    """Raise errors of a store as errors of the load."""
    try:
        yield
    except StoreUnavailableError as error:
        raise TransientError(str(error)) from None
    except StoreError as error:
        raise RunError(str(error)) from None


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Name the file that cannot be read."""
    try:
        with translating_read_errors():
            yield
    except OSError as error:
        raise unreadable(path, str(error)) from None


def unreadable(path: str, reason: str) -> RunError:
    """Return the error for a file that is refused as a whole."""
    message = f"file {path} cannot be read: {reason}"
    return RunError(message, hint="a malformed file is refused as a whole; nothing was loaded.")
