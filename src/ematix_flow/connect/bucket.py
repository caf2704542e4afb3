"""Objects in a bucket of any service, with the promises of a store; how a service is asked stands in its own module."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from ematix_flow.connect.bucket_place import BucketPlace
from ematix_flow.connect.bucket_requests import (
    ATTEMPTS,
    ConflictError,
    MissingObjectError,
    PreconditionError,
    pause,
    repeated,
)
from ematix_flow.connect.bucket_streams import ObjectReader, PartsOutput
from ematix_flow.connect.store import Store, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from ematix_flow.connect.bucket_streams import Upload
    from ematix_flow.connect.store import Found, Output

PAGE = 1000
"""Keys of one answer to a listing."""

_trusted: set[tuple[int, Any]] = set()
"""Places whose service has refused to replace an object when it was asked to, by process."""


P_co = TypeVar("P_co", bound=BucketPlace, covariant=True)


@dataclass(frozen=True, slots=True)
class BucketStore(Store, Generic[P_co]):
    """The objects below a prefix of a bucket."""

    place: P_co

    @property
    def shown(self) -> str:
        """Give the address of the bucket and the prefix."""
        return self.place.shown

    def address(self, key: str) -> str:
        """Give the address of an object."""
        return self.place.address(key)

    def path(self, key: str) -> str:
        """Give the address of an object."""
        return self.place.address(key)

    def at(self, prefix: str) -> Self:
        """Give the store of another prefix of the bucket."""
        return type(self)(replace(cast("Any", self.place), prefix=prefix))

    # What a service has to do

    @abstractmethod
    def find(self, key: str) -> Found | None:
        """Give what the service says about an object, or None when there is none."""

    @abstractmethod
    def range(self, key: str, first: int, last: int, version: str) -> bytes:
        """Give the bytes from the first to the last of one version; PreconditionError when it was replaced."""

    @abstractmethod
    def folders(self) -> set[str]:
        """Give the names up to the first slash after the prefix."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Put an object in place of whatever is there."""

    @abstractmethod
    def put_new(self, key: str, data: bytes) -> None:
        """Put an object that must not be there, by one request; PreconditionError when it is."""

    @abstractmethod
    def copy(self, staged: Found, final: str) -> None:
        """Copy an object inside the service; it is seen when it is whole."""

    @abstractmethod
    def upload(self, key: str) -> Upload:
        """Begin an upload in parts."""

    # What follows from it

    def reader(self, key: str, found: Found | None = None) -> IO[bytes]:
        """Open an object for reading by ranges."""
        known = found or self.find(key)
        if known is None:
            raise FileNotFoundError(f"there is no object {self.address(key)}")
        return cast("IO[bytes]", ObjectReader(self, known))

    def size(self, key: str) -> int | None:
        """Ask for the size of an object."""
        found = self.find(key)
        return None if found is None else found.size

    def write(self, key: str, data: bytes) -> None:
        """Put an object in place of whatever is there."""
        self.put(key, data)

    def output(self, key: str) -> Output:
        """Upload part by part."""
        return PartsOutput(self, key)

    def create(self, key: str, data: bytes) -> bool:
        """Put an object that must not be there yet; after a lost answer its bytes tell whose it is."""
        unsure = False
        for attempt in range(ATTEMPTS):
            try:
                self.put_new(key, data)
            except PreconditionError:
                return unsure and self.read(key) == data
            except ConflictError:
                pause(attempt)
            except StoreUnavailableError:
                unsure = True
                pause(attempt)
            else:
                self._check_conditions(key, data)
                return True
        found = self.read(key)
        if found is None:
            raise StoreUnavailableError(
                f"{self.address(key)} could not be written; whether it still will be is unknown"
            )
        return unsure and found == data

    def _check_conditions(self, key: str, data: bytes) -> None:
        """Refuse a service that replaces objects which it was told not to replace: commits would overwrite each other."""
        known = (os.getpid(), self.place)
        if self.place.keeps_conditions or known in _trusted:
            return
        try:
            repeated(lambda: self.put_new(key, data))
        except PreconditionError:
            _trusted.add(known)
            return
        message = (
            f"{self.place.endpoint} replaces objects that it is told not to replace (it ignores conditions on writes), "
            "so that loads could overwrite each other's commits: it can be a source, but no target"
        )
        raise StoreError(message)

    def move(self, staged: str, final: str) -> None:
        """Copy inside the service and delete the staged object."""
        found = self.find(staged)
        if found is not None and self._copied(found, final):
            self.delete(staged)
        elif self.size(final) is None:
            raise FileNotFoundError(f"there is no object {self.address(staged)}")

    def show_as(self, staged: str, final: str) -> None:
        """Copy inside the service."""
        found = self.find(staged)
        if found is None or not self._copied(found, final):
            raise FileNotFoundError(f"there is no object {self.address(staged)}")

    def _copied(self, staged: Found, final: str) -> bool:
        """Copy an object; False when another session has moved it meanwhile."""
        try:
            self.copy(staged, final)
        except MissingObjectError:
            if self.find(staged.key) is not None:
                # It is there, so the copy is at fault: whoever took it for gone would lose its rows.
                raise
            return False
        return True

    def own(self, key: str) -> str:
        """Give a key of the bucket as a key of this store."""
        return key.removeprefix(self.place.prefix)

    def whole(self, key: str) -> str:
        """Give a key of this store as a key of the bucket."""
        return f"{self.place.prefix}{key}"
