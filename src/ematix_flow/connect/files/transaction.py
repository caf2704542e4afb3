"""Sessions over tables that are lists of files: what a commit lists is shown under its final names afterwards.

It knows names and sizes of files, and never what is in them.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ematix_flow.connect.metadata.session import StoreSession, newest_of, record_of
from ematix_flow.errors import TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from ematix_flow.connect.storage.base import Store

T = TypeVar("T")

MAX_ATTEMPTS = 50
"""How often folders are listed again because files came or went meanwhile."""

FILES = "ematix_flow_files"
REMOVED = "ematix_flow_removed_files"

_FILES = f"""CREATE TABLE {FILES} (
    path TEXT NOT NULL PRIMARY KEY, table_name TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL, staged TEXT
)"""
TABLES = (_FILES, f"CREATE TABLE {REMOVED} (path TEXT NOT NULL PRIMARY KEY)")
"""The files of every table (`staged` until they have their final name), and files that are no longer part of one."""

BELOW = "flow_files_below"
"""SQL function: the visible files below a folder, as a JSON list."""


class FileSession(StoreSession):
    """A session that renames files to their final names after its commits, and finishes what crashed sessions left."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, TABLES)

    def opened(self) -> sqlite3.Connection:
        """Return a connection that can also list the files of a folder."""
        connection = super().opened()
        connection.create_function(BELOW, 1, self._below)
        return connection

    def begin(self) -> None:
        """Begin from the newest state, with every file of it under its final name."""
        super().begin()
        try:
            if self.finalize_files():
                self.connection.execute(f"UPDATE {FILES} SET staged = NULL WHERE staged IS NOT NULL")
                self.connection.execute(f"DELETE FROM {REMOVED}")
        except BaseException:
            # A transaction that is left open would take later statements for a part of it, and lose them.
            self.rollback()
            raise

    def commit(self) -> None:
        """Commit, then show the files; a file that cannot be moved now is moved by the next session."""
        super().commit()
        failpoint("store.after_record")
        with suppress(OSError, TransientError):
            self.finalize_files()
            if self.query(f"SELECT 1 FROM {REMOVED} LIMIT 1"):
                # Another program may write a file of the same name: it must not be removed a second time.
                self.begin()
                super().commit()

    def _below(self, folder: str) -> str:
        """Return the objects below a folder that its readers see, as JSON."""
        return json.dumps([info.key for info in self.store.listed(folder) if visible(info.key)])

    def commit_metadata(self) -> dict[str, Any]:
        """Return what the record lists of files."""
        added = self.query(f"SELECT path, rows, bytes, staged FROM {FILES} WHERE staged IS NOT NULL ORDER BY path")
        removed = self.query(f"SELECT path FROM {REMOVED} ORDER BY path")
        names = ("path", "rows", "bytes", "staged")
        files = {
            "added": [dict(zip(names, row, strict=True)) for row in added],
            "removed": [path for (path,) in removed],
        }
        return {name: paths for name, paths in files.items() if paths}

    def finalize_files(self) -> bool:
        """Rename new files to their final names and remove old ones; return True when there was anything to do.

        A file that is neither staged nor under its final name was renamed already and removed by another program.
        """
        waiting = self.query(f"SELECT staged, path FROM {FILES} WHERE staged IS NOT NULL ORDER BY path")
        removed = self.query(f"SELECT path FROM {REMOVED}")
        for staged, path in waiting:
            with suppress(FileNotFoundError):
                self.store.move(staged, path)
            failpoint("store.mid_settle")
        for (path,) in removed:
            self.store.delete(path)
        if waiting:
            self._take_back({path for _, path in waiting})
        return bool(waiting or removed)

    def _take_back(self, published: set[str]) -> None:
        """Remove again what a newer commit removed: a move that is a copy may end after that of another session."""
        for number in range(self.head.number + 1, newest_of(self.store, self.home) + 1):
            for path in published.intersection(record_of(self.store, number, self.home).get("removed", ())):
                self.store.delete(path)

    def finalize_newest(self) -> None:
        """Finish what the newest commit left; the session begins nothing."""
        self._load()
        self.finalize_files()

    def undisturbed(self, read: Callable[[], T]) -> T:
        """Return what a listing of the folders shows while no commit changes which files there are."""
        for _ in range(MAX_ATTEMPTS):
            self.finalize_newest()
            before = self._paths()
            result = read()
            self._load()
            if self._paths() == before:
                return result
        message = f"files in {self.store.display_address} are replaced faster than they can be listed"
        raise TransientError(message, hint="run again when fewer loads write there.")

    def _paths(self) -> list[tuple[Any, ...]]:
        return self.query(f"SELECT path FROM {FILES} ORDER BY path")


_FOREIGN = re.compile(r"(^|/)[_.]")


def visible(key: str) -> bool:
    """Return whether readers of a folder see an object: no part of its key begins with _ or a dot."""
    return _FOREIGN.search(key) is None
