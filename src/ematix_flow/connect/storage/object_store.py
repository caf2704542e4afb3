"""Objects in a bucket of any service, with the guarantees of a store; a service only knows its own requests and errors.

Why no library does this for all services: docs/decisions/object-stores.md.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from ematix_flow.connect.base.retry import BUCKET_PROBE, BUCKET_REQUEST
from ematix_flow.connect.storage.base import Store, StoreError, StoreUnavailableError
from ematix_flow.connect.storage.location import BucketLocation
from ematix_flow.connect.storage.object_io import ObjectReader, PartsOutput
from ematix_flow.connect.storage.requests import (
    PROBE_SECONDS,
    ConflictError,
    MissingObjectError,
    PreconditionError,
    deadlines,
    repeated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.retry import RetryPolicy
    from ematix_flow.connect.storage.base import ObjectInfo, Output
    from ematix_flow.connect.storage.object_io import Upload

PAGE = 1000
"""Keys of one response to a listing."""

_trusted: set[tuple[int, Any]] = set()
"""Locations whose service has been seen to refuse to replace an object, by process."""

_opening = threading.Lock()

P_co = TypeVar("P_co", bound=BucketLocation, covariant=True)
_Response = TypeVar("_Response")


@dataclass(frozen=True, slots=True)
class Page:
    """One response to a listing, with the time of the service."""

    now: datetime
    objects: Sequence[ObjectInfo]
    folders: Sequence[str] = ()
    """Keys of the bucket up to the slash after the prefix, if the listing is cut there."""
    next: Any = None
    """Where the next page begins; nothing after the last one."""


@dataclass(frozen=True, slots=True)
class BucketStore(Store, Generic[P_co]):
    """The objects below a prefix of a bucket."""

    location: P_co

    @property
    def display_address(self) -> str:
        """Return the address of the bucket and the prefix."""
        return self.location.display_address

    def address(self, key: str) -> str:
        """Return the address of an object."""
        return self.location.address(key)

    def path(self, key: str) -> str:
        """Return the address of an object."""
        return self.location.address(key)

    def at(self, prefix: str) -> Self:
        """Return the store of another prefix of the bucket."""
        return type(self)(replace(cast("Any", self.location), prefix=prefix))

    # What a service has to do; everything but the last three is one request

    @staticmethod
    @abstractmethod
    def connect(location: Any, seconds: tuple[float, float]) -> Any:
        """Return a client of the service that sends every request once."""

    @staticmethod
    @abstractmethod
    def error_of(location: Any, operation: str, error: Exception) -> StoreError | None:
        """Return what an error of the client means, or None for any other error."""

    @abstractmethod
    def _get(self, key: str) -> bytes: ...

    @abstractmethod
    def _head(self, key: str) -> ObjectInfo: ...

    @abstractmethod
    def _range(self, key: str, first: int, last: int, version: str) -> bytes: ...

    @abstractmethod
    def _page(self, client: Any, prefix: str, token: Any, size: int, *, cut: bool) -> Page: ...

    @abstractmethod
    def _put(self, key: str, data: bytes, *, new: bool) -> None: ...

    @abstractmethod
    def _delete(self, key: str) -> None: ...

    @abstractmethod
    def copy(self, staged: ObjectInfo, final: str) -> None:
        """Copy an object inside the service; it is seen when it is whole."""

    @abstractmethod
    def upload(self, key: str) -> Upload:
        """Begin an upload in parts."""

    # Requests

    def client(self, seconds: float | None = None) -> Any:
        """Return the client of this process; `seconds` bounds how long a response may take.

        A client belongs to one process: what travels to tasks is the location with its credentials.
        """
        with _opening:  # to make a client is not safe in threads, to use it is
            return self.once(
                "reach", lambda: _client(os.getpid(), type(self), self.location.anywhere, deadlines(seconds))
            )

    def once(self, operation: str, call: Callable[[], _Response]) -> _Response:
        """Return the response to a request; what goes wrong is an error of stores."""
        try:
            return call()
        except Exception as error:
            refused = self.error_of(self.location, operation, error)
            if refused is None:
                raise
            raise refused from None

    def request(self, operation: str, call: Callable[[], _Response], policy: RetryPolicy = BUCKET_REQUEST) -> _Response:
        """Return the response to a request that is sent again while the service is away, busy or out of order."""
        return repeated(lambda: self.once(operation, call), policy)

    # Reading

    def probe(self) -> str:
        """Check that the bucket answers and return a sentence for people; no caller waits longer than a few seconds."""
        client = self.client(PROBE_SECONDS)
        self.request("list", lambda: self._page(client, self.location.prefix, None, 1, cut=False), BUCKET_PROBE)
        return f"{self.location.noun} {self.location.root} at {self.location.service}"

    def now(self) -> datetime:
        """Request one key, and return the time of the response."""
        return self.request("list", lambda: self._page(self.client(), self.location.prefix, None, 1, cut=False)).now

    def read(self, key: str) -> bytes | None:
        """Get an object."""
        try:
            return self.request("read", lambda: self._get(key))
        except MissingObjectError:
            return None

    def find(self, key: str) -> ObjectInfo | None:
        """Return what the service reports about an object, or None when there is none."""
        try:
            return self.request("read", lambda: self._head(key))
        except MissingObjectError:
            return None

    def size(self, key: str) -> int | None:
        """Return the size of an object."""
        info = self.find(key)
        return None if info is None else info.size

    def range(self, key: str, first: int, last: int, version: str) -> bytes:
        """Return the bytes from the first to the last of one version; PreconditionError when it was replaced."""
        try:
            return self.request("read", lambda: self._range(key, first, last, version))
        except MissingObjectError:
            if self.find(key) is not None:
                raise PreconditionError(f"{self.address(key)} is another one") from None
            raise FileNotFoundError(f"there is no object {self.address(key)} any more") from None

    def reader(self, key: str, info: ObjectInfo | None = None) -> IO[bytes]:
        """Open an object for reading by ranges."""
        known = info or self.find(key)
        if known is None:
            raise FileNotFoundError(f"there is no object {self.address(key)}")
        return cast("IO[bytes]", ObjectReader(self, known))

    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        """List page by page; ages are by the clock of the service, and keys of folders are left out."""
        return (info for page in self._pages(prefix) for info in page.objects if not info.key.endswith("/"))

    def folders(self) -> set[str]:
        """Return the names up to the first slash after the prefix."""
        return {self.own(name).strip("/") for page in self._pages("", cut=True) for name in page.folders}

    def _pages(self, prefix: str, *, cut: bool = False, **more: Any) -> Iterator[Page]:
        token: Any = None

        def fetch() -> Page:
            return self._page(self.client(), self.whole(prefix), token, PAGE, cut=cut, **more)

        while True:
            page = self.request("list", fetch)
            yield page
            token = page.next
            if not token:
                return

    # Writing

    def put(self, key: str, data: bytes) -> None:
        """Put an object, replacing what is there."""
        self.request("write", lambda: self._put(key, data, new=False))

    def write(self, key: str, data: bytes) -> None:
        """Put an object, replacing what is there."""
        self.put(key, data)

    def delete(self, key: str) -> None:
        """Delete an object."""
        with suppress(MissingObjectError):
            self.request("delete", lambda: self._delete(key))

    def output(self, key: str) -> Output:
        """Upload part by part."""
        return PartsOutput(self, key)

    def create(self, key: str, data: bytes) -> bool:
        """Put an object that must not be there yet; after a lost response its bytes show whose it is."""
        unsure = False

        def put() -> None:
            nonlocal unsure
            try:
                self.once("write", lambda: self._put(key, data, new=True))
            except StoreUnavailableError as error:
                unsure = unsure or not isinstance(error, ConflictError)
                raise

        try:
            repeated(put)
        except PreconditionError:
            return unsure and self.read(key) == data
        except StoreUnavailableError:
            existing = self.read(key)
            if existing is None:
                message = f"{self.address(key)} could not be written; whether it still will be is unknown"
                raise StoreUnavailableError(message) from None
            return unsure and existing == data
        self._check_conditions(key, data)
        return True

    def _check_conditions(self, key: str, data: bytes) -> None:
        """Refuse a service that ignores the condition of a write: commits would overwrite each other."""
        known = (os.getpid(), self.location)
        if self.location.honors_conditions or known in _trusted:
            return
        try:
            self.request("write", lambda: self._put(key, data, new=True))
        except PreconditionError:
            _trusted.add(known)
            return
        message = (
            f"{self.location.endpoint} overwrites objects although the request forbids it (it ignores conditions on writes), "
            "so that loads could overwrite each other's commits: it can be a source, but no target"
        )
        raise StoreError(message)

    def move(self, staged: str, final: str) -> None:
        """Copy inside the service and delete the staged object."""
        info = self.find(staged)
        if info is not None and self._copied(info, final):
            self.delete(staged)
        elif self.size(final) is None:
            raise FileNotFoundError(f"there is no object {self.address(staged)}")

    def publish_as(self, staged: str, final: str) -> None:
        """Copy inside the service."""
        info = self.find(staged)
        if info is None or not self._copied(info, final):
            raise FileNotFoundError(f"there is no object {self.address(staged)}")

    def _copied(self, staged: ObjectInfo, final: str) -> bool:
        """Copy an object; False when another session has moved it meanwhile."""
        try:
            self.copy(staged, final)
        except MissingObjectError:
            if self.find(staged.key) is not None:
                # It is there, so the copy is at fault: a caller that took it for gone would lose its rows.
                raise
            return False
        return True

    def own(self, key: str) -> str:
        """Return a key of the bucket as a key of this store."""
        return key.removeprefix(self.location.prefix)

    def whole(self, key: str) -> str:
        """Return a key of this store as a key of the bucket."""
        return f"{self.location.prefix}{key}"


@lru_cache(maxsize=32)
def _client(process: int, store: type[BucketStore[Any]], location: BucketLocation, seconds: tuple[float, float]) -> Any:
    del process
    return store.connect(location, seconds)
