"""Files in a bucket as a batch source: which objects a path means; Python reads them, even with Spark."""

from __future__ import annotations

import re
from abc import abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.files.source import ALL_FILES, Files
from ematix_flow.connect.files.transaction import FileSession, visible
from ematix_flow.connect.formats.text import StoredFile, translating_read_errors
from ematix_flow.connect.metadata.session import COMMITS, HOME
from ematix_flow.records import SourceFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.storage.base import ObjectInfo
    from ematix_flow.connect.storage.location import BucketLocation
    from ematix_flow.connect.storage.object_store import BucketStore
    from ematix_flow.declare.connection.files import BucketConnection

_WILD = re.compile(r"[*?\[]")
_WILDCARD = re.compile(r"(\*+|\?|\[[^\]]+\])")
_MEANS = {"*": "[^/]*", "**": "[^/]*", "?": "[^/]"}


class BucketFiles(Files):
    """The objects below a prefix of a bucket."""

    store: BucketStore[BucketLocation]

    def __init__(self, connection: BucketConnection) -> None:
        self.name = connection.name
        self.store = self.opened(connection)
        self.display_path = self.store.display_address
        self.format = connection.format
        self.csv_options: Mapping[str, Any] = dict(connection.csv_read_options or {})
        self.json_options: Mapping[str, Any] = dict(connection.json_read_options or {})

    @abstractmethod
    def opened(self, connection: Any) -> BucketStore[BucketLocation]:
        """Return the store that a connection names."""

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same objects."""
        return self.store.location.identity()

    def info(self) -> Mapping[str, object]:
        """Return the service and the address."""
        return self.store.location.info()

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return nothing: a bucket is reached from everywhere."""
        return ()

    @property
    def display_address(self) -> str:
        """Return the address."""
        return self.store.display_address

    def probe(self) -> str:
        """Check that the bucket answers and return a sentence about it."""
        with translating_read_errors():
            return self.store.probe()

    def folders(self) -> tuple[str, ...]:
        """Return the names up to the first slash that queries may use as tables."""
        with translating_read_errors():
            names = self.store.folders()
        return tuple(sorted(name for name in names if name and visible(name) and name.lower() != ALL_FILES))

    def stat_file(self, path: str) -> SourceFile:
        """Return an object by its key below the prefix, with the tag that the service gave its content."""
        assert isinstance(path, StoredFile)  # noqa: S101 - every path of this class is one
        return SourceFile(path.info.key, path.info.version.strip('"'), path.info.size)

    def changed(self, paths: Sequence[str], before: Sequence[SourceFile]) -> list[str]:
        """Return none: every read names the tag it expects, so that a changed object has failed the load."""
        del paths, before
        return []

    def _paths(self, pattern: str) -> tuple[str, ...]:
        with translating_read_errors():
            home = self._home()
            if home is None:
                return self._matching(pattern)
            # Files that loads brought here have their names, and those they replaced are gone, whatever died.
            with closing(FileSession(home)) as session:
                return session.undisturbed(lambda: self._matching(pattern))

    def _home(self) -> BucketStore[BucketLocation] | None:
        """Return the location, this one or one above, that loads brought files to."""
        segments = self.store.location.prefix.split("/")[:-1]
        for count in range(len(segments), -1, -1):
            above = self.store.at("".join(f"{segment}/" for segment in segments[:count]))
            if next(above.listed(HOME + COMMITS), None) is not None:
                return above
        return None

    def _matching(self, pattern: str) -> tuple[str, ...]:
        return tuple(StoredFile(self.store, info) for info in self._list_objects(pattern.strip("/")))

    def _list_objects(self, pattern: str) -> list[ObjectInfo]:
        wild = _WILD.search(pattern)
        if wild is not None:
            chosen = re.compile(_expression(pattern))
            begin = pattern[: wild.start()].rpartition("/")
            return [info for info in self.store.listed("".join(begin[:2])) if _chosen(info.key, chosen)]
        exact = self.store.find(pattern) if pattern else None
        if exact is not None:
            return [exact]
        return [info for info in self.store.listed(f"{pattern}/" if pattern else "") if visible(info.key)]


def _chosen(key: str, expression: re.Pattern[str]) -> bool:
    return visible(key) and expression.fullmatch(key) is not None


def _expression(pattern: str) -> str:
    """Return the keys that a pattern means: a star stays in its folder, two of them reach into all below."""
    segments = pattern.split("/")
    folders = ("(?:[^/]+/)*" if segment == "**" else f"{_segment(segment)}/" for segment in segments[:-1])
    last = ".*" if segments[-1] == "**" else _segment(segments[-1])
    return "".join(folders) + last


def _segment(segment: str) -> str:
    return "".join(map(_translated, _WILDCARD.split(segment)))


def _translated(token: str) -> str:
    if token in _MEANS:
        return _MEANS[token]
    if _WILDCARD.fullmatch(token):
        inner = token[1:-1].replace("\\", "\\\\")
        return f"[^/{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(token)
