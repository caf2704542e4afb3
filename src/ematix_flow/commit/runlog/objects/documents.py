"""Documents with compare-and-set on a store that can only create: numbered objects, of which the last one counts.

The writer of the next number has won. A number is removed only long after a higher one was written, so that a writer
that comes late finds it taken; one that comes later than that sees the higher number after its own and takes it back.
"""

from __future__ import annotations

import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.storage.base import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.storage.base import ObjectInfo, Store

RETAIN_SECONDS = 3600.0
"""How old a number has to be before it goes."""

READERS = 16
_NUMBERED = re.compile(r"/\d{12}\.json$")


@dataclass(frozen=True, slots=True)
class Version:
    """One number of a document."""

    prefix: str
    number: int
    content: Mapping[str, Any]
    age: float = 0.0

    @property
    def nonce(self) -> str:
        """Return what distinguishes it from an equal one of another writer."""
        return str(self.content["nonce"])

    @property
    def dropped(self) -> bool:
        """Return whether it only marks the document as gone."""
        return bool(self.content.get("dropped"))


class Versions:
    """The documents below a prefix of a store: `<prefix><twelve digits>.json`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: dict[str, Version] = {}
        """The last number that was read of each document; what has a number never changes."""

    def newest(self, prefix: str) -> Version | None:
        """Return the last number of a document, dropped or not."""
        while True:
            entries = self._listed(prefix)
            if not entries:
                return None
            version = self._read(prefix, entries[-1])
            if version is not None:  # else it was replaced and removed meanwhile
                return version

    def every(self, prefix: str) -> list[Version]:
        """Return the last number of every document below a prefix, in the order of their names."""
        last = {_prefix(entry.key): entry for entry in self._listed(prefix)}
        with ThreadPoolExecutor(READERS) as pool:
            read = pool.map(lambda pair: self._read(*pair) or self.newest(pair[0]), last.items())
            return [version for version in read if version is not None]

    def at(self, prefix: str, number: int) -> Version | None:
        """Return one number of a document, or None when it is not there any more."""
        return self._read(prefix, _Numbered(_key(prefix, number)))

    def follow(self, prefix: str, before: Version | None, content: Mapping[str, Any]) -> int | None:
        """Create the number after `before`; return it, or None when another writer was first."""
        number = 1 if before is None else before.number + 1
        nonce = uuid.uuid4().hex
        document = {**content, "version": number, "nonce": nonce, "follows": before.nonce if before else ""}
        # After a lost answer the store compares what is there with what was sent: the nonce makes it ours alone.
        if not self._store.create(_key(prefix, number), json.dumps(document).encode()):
            return None
        entries = self._listed(prefix)
        if _version_number(entries[-1].key) > number and not self._is_followed(prefix, number, nonce):
            return None
        for old in entries[:-1]:
            if old.age > RETAIN_SECONDS:
                self._store.delete(old.key)
        self._cache[prefix] = Version(prefix, number, document)
        return number

    def _is_followed(self, prefix: str, number: int, nonce: str) -> bool:
        """Return whether the next number was written after this one, and not long before it; then this one goes."""
        after = self.at(prefix, number + 1)
        if after is not None and after.content.get("follows") == nonce:
            return True
        self._store.delete(_key(prefix, number))
        if after is None:
            # This writer, or the one who read before it wrote, was suspended for more than an hour.
            raise StoreUnavailableError(f"{self._store.address(prefix)} changed meanwhile; who was first is unknown")
        return False

    def _listed(self, prefix: str) -> list[ObjectInfo]:
        """Return the numbers below a prefix in order; objects of others are left alone."""
        return [entry for entry in self._store.listed(prefix) if _NUMBERED.search(entry.key)]

    def remove(self, prefix: str) -> None:
        """Remove a document with all its numbers."""
        self._cache.pop(prefix, None)
        self._store.remove_below(prefix)

    def forget(self) -> None:
        """Drop the cache."""
        self._cache.clear()

    def _read(self, prefix: str, entry: ObjectInfo | _Numbered) -> Version | None:
        number, known = _version_number(entry.key), self._cache.get(prefix)
        if known is not None and known.number == number:
            return Version(prefix, number, known.content, entry.age)
        data = self._store.read(entry.key)
        if data is None:
            return None
        version = Version(prefix, number, json.loads(data), entry.age)
        if known is None or known.number < number:
            self._cache[prefix] = version
        return version


@dataclass(frozen=True, slots=True)
class _Numbered:
    """An object that was not listed."""

    key: str
    age: float = 0.0


def _key(prefix: str, number: int) -> str:
    return f"{prefix}{number:012d}.json"


def _prefix(key: str) -> str:
    return f"{key.rpartition('/')[0]}/"


def _version_number(key: str) -> int:
    return int(key.rpartition("/")[2].removesuffix(".json"))
