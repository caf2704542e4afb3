"""Objects of a bucket as files: read by ranges, written part by part with a small buffer; nothing is retried here."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Any, cast

from ematix_flow.connect.storage.base import Output, StoreUnavailableError, format_staged_path
from ematix_flow.connect.storage.requests import PreconditionError

if TYPE_CHECKING:
    from ematix_flow.connect.storage.base import ObjectInfo
    from ematix_flow.connect.storage.location import BucketLocation
    from ematix_flow.connect.storage.object_store import BucketStore

PART = 8 << 20
"""Bytes of one part of an upload; all but the last have this size, which some services insist on."""

SMALLEST_READ = 64 << 10
LARGEST_READ = 8 << 20


class Upload(ABC):
    """An object that a service is sent part by part; it is not visible before `finish`."""

    @abstractmethod
    def send(self, part: bytes) -> None:
        """Send a part that is not the last one."""

    @abstractmethod
    def finish(self, part: bytes) -> None:
        """Send the last part and make an object of all of them."""

    @abstractmethod
    def abort(self) -> None:
        """Forget the parts; an upload that is gone is no error."""


class ObjectReader(io.RawIOBase):
    """One version of an object; who reads on is given more at a time."""

    def __init__(self, store: BucketStore[BucketLocation], info: ObjectInfo) -> None:
        super().__init__()
        self._store = store
        self._key = info.key
        self._size = info.size
        self._version = info.version
        self._position = 0
        self._window = b""
        self._begin = 0
        self._ahead = SMALLEST_READ

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position; no request is sent."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return as many bytes as were requested, fewer only at the end: Arrow requires that."""
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        chunks = []
        while self._position < end:
            chunks.append(self._some(end - self._position))
            self._position += len(chunks[-1])
        return b"".join(chunks)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, or as much of it as is at hand."""
        view = memoryview(buffer).cast("B")
        data = self._some(len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _some(self, count: int) -> bytes:
        offset = self._position - self._begin
        if not 0 <= offset < len(self._window):
            if count == 0 or self._position >= self._size:
                return b""
            self._fetch(count)
            offset = 0
        return self._window[offset : offset + count]

    def _fetch(self, count: int) -> None:
        reads_on = bool(self._window) and self._position == self._begin + len(self._window)
        self._ahead = min(self._ahead * 2, LARGEST_READ) if reads_on else SMALLEST_READ
        last = min(self._position + max(count, self._ahead), self._size) - 1
        try:
            self._window = self._store.range(self._key, self._position, last, self._version)
        except PreconditionError:
            message = f"{self._store.address(self._key)} was replaced while it was read"
            raise StoreUnavailableError(message) from None
        self._begin = self._position


class PartsOutput(Output):
    """An object that is uploaded part by part; one that fits into the buffer is sent at once."""

    def __init__(self, store: BucketStore[BucketLocation], key: str) -> None:
        self._parts = _Parts(store, key)
        self.stream = cast("IO[bytes]", self._parts)

    def finish(self) -> str:
        """Finish the upload."""
        return self._parts.finish()

    def abandon(self) -> None:
        """Abort the upload."""
        self._parts.abort()


class _Parts(io.RawIOBase):
    def __init__(self, store: BucketStore[BucketLocation], key: str) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._buffer = bytearray()
        self._sent = 0
        self._upload: Upload | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent + len(self._buffer)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PART):
            self._buffer += view[start : start + PART]
            if len(self._buffer) > PART:
                self._send()
        return len(view)

    def _send(self) -> None:
        if self._upload is None:
            self._upload = self._store.upload(self._key)
        self._upload.send(bytes(memoryview(self._buffer)[:PART]))
        del self._buffer[:PART]
        self._sent += PART

    def finish(self) -> str:
        size = self.tell()
        if self._upload is None:
            self._store.put(self._key, bytes(self._buffer))
        else:
            self._upload.finish(bytes(self._buffer))
        return format_staged_path(self._key, size)

    def abort(self) -> None:
        self._buffer.clear()
        if self._upload is not None:
            self._upload.abort()
