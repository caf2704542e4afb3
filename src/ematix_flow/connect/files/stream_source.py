"""Folders of files as sources of streams: a position is a listing of the folder.

The targets know which files are new.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.stream_source import EARLIEST, LATEST, StreamSource
from ematix_flow.connect.files.source import Files
from ematix_flow.errors import RunError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stream_source import MessagePartition, Position
    from ematix_flow.records import SourceFile

_SNAPSHOT, _FILES = "look", "files"


class FileStream(StreamSource):
    """The files that a path or a pattern below a connection means, listed anew at every read."""

    kind: ClassVar[str] = "object_store_local"
    columns: ClassVar[tuple[SourceColumn, ...]] = ()
    divisible: ClassVar[bool] = False
    system: ClassVar[type[Files]] = Files
    states_position: bool = False
    """Whether the position says which files were read, because the stream remembers them; otherwise each target does."""

    def __init__(self, connection: Any, query: str) -> None:
        super().__init__(connection.name, query)
        self.files = self.system(connection)

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return the folder."""
        return self.files.read_paths

    def start(self, where: str) -> Position:
        """Return the listing of an empty folder, or of the folder as it is."""
        if where == EARLIEST:
            return self.position_of([])
        if where == LATEST:
            return self.position_of(self.list_files())
        message = f"{where!r} is no place in a folder: which files were loaded is known file by file"
        raise RunError(message, hint="a stream of files begins with all files that are there.")

    def seek(self, position: Position | None, where: str) -> Position:
        """Refuse another position: the metadata of each target knows its files one by one.

        A stream that remembers them itself can forget them.
        """
        del position
        if self.states_position and where == EARLIEST:
            return self.start(where)
        message = f"a stream of files cannot go on from {where!r}: which files were loaded is known file by file"
        raise RunError(message, hint="a stream with another name loads all files again.")

    def list_files(self) -> list[SourceFile]:
        """Return the files that are there."""
        return [file for _, file in self.files.list_files(self.query)]

    def position_of(self, files: Sequence[SourceFile]) -> Position:
        """Return the position of some files: another one as soon as one of them is another."""
        listing = "\n".join(sorted(f"{file.key}\t{file.etag}\t{file.size}" for file in files))
        return {_SNAPSHOT: hashlib.sha256(listing.encode()).hexdigest()[:32], _FILES: len(files)}

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return the listing of the folder as it is; how many files a batch has is not bounded."""
        del most
        there = end_offset if end_offset is not None else self.start(LATEST)
        return there if there[_FILES] and there[_SNAPSHOT] != position[_SNAPSHOT] else position

    def plan_partitions(self, begin: Position, end: Position, requested: Sequence[str]) -> tuple[MessagePartition, ...]:
        """Refuse to return rows of files as messages."""
        del begin, end, requested
        message = f"the files of {self.query!r} are loaded as they are, and cannot be taken apart into messages"
        raise UnsupportedError(message, hint="give the stream a table or a folder as its target.")

    def distance(self, begin: Position, end: Position) -> int:
        """Return at least one where the folder has changed."""
        if begin[_SNAPSHOT] == end[_SNAPSHOT] or not end[_FILES]:
            return 0
        return max(1, int(end[_FILES]) - int(begin[_FILES]))
