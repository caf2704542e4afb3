"""Delta tables as sources of streams: positions are versions of the table's log, which is read without an engine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

from ematix_flow.connect.delta import log as delta_log
from ematix_flow.connect.delta.copy import snapshot
from ematix_flow.connect.delta.table import DeltaS3Source, DeltaSource
from ematix_flow.connect.lake.stream_source import AddedFiles, History, LakeCommit, LakeStream, WholeTable
from ematix_flow.errors import RunError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.delta.copy import Snapshot
    from ematix_flow.connect.lake.stream_source import Added
    from ematix_flow.declare.connection.registry import Connection

_TABLE = "table"
_MAPPING = "delta.columnMapping.mode"


class DeltaStream(LakeStream):
    """A Delta table below a folder."""

    kind = "delta_local"
    key: ClassVar[str] = "version"
    system: ClassVar[type[DeltaSource]] = DeltaSource

    def __init__(self, connection: Connection, query: str) -> None:
        super().__init__(self.system(connection), query)
        self._store = self.lake.location.store
        self._folder = "".join(f"{part}/" for part in (self.schema, self.table) if part)
        self._known: dict[int, LakeCommit] = {}
        self._described: tuple[int, Snapshot] | None = None

    def history(self, position: Position, end: Position | None = None) -> History:
        """Read the versions after a position from the log."""
        del end
        number, versions = position[self.key], self._versions()
        first, last = versions[0], versions[-1]
        if position.get(_TABLE) not in (None, self._id(last)):
            raise self.lost(f"Delta table {self.query!r} is not the one that was read before: it was made again")
        self._refuse_mapped(last)
        if number is not None and not first - 1 <= number <= last:
            raise self.lost(f"Delta table {self.query!r} has versions {first} to {last}, and {number + 1} is next")
        later = tuple(self._commit(one) for one in versions if number is None or one > number)
        return History(later, cut=first > 0)

    def position_at(self, number: int) -> Position:
        """Return a version with the id of its table, which another table of the same name has not."""
        return {self.key: number, _TABLE: self._id(self._versions()[-1])}

    def newest(self) -> Position:
        """Return the newest version."""
        return self.position_at(self._versions()[-1])

    def added(self, begin: Position, end: Position) -> Added:
        """Return the files that the log adds."""
        if begin[self.key] is None:
            return WholeTable(self.relation, end[self.key])
        groups: dict[tuple[tuple[str, str | None], ...], list[str]] = {}
        for number in range(begin[self.key] + 1, end[self.key] + 1):
            for add in _adds(self._actions(number)):
                values = tuple((name, value or None) for name, value in add["partitionValues"].items())
                groups.setdefault(values, []).append(self._path(add["path"], number))
        return AddedFiles(self.relation, end[self.key], tuple((values, tuple(p)) for values, p in groups.items()))

    def _versions(self) -> list[int]:
        versions = delta_log.versions(self._store, self._folder)
        if not versions:
            raise self._no_table()
        return versions

    def _no_table(self) -> RunError:
        return RunError(f"there is no Delta table at {self._store.address(self._folder)}")

    def _id(self, newest: int) -> str:
        return self._about(newest).id

    def _about(self, newest: int) -> Snapshot:
        """Return what the log records of the table; read again whenever there is a new version."""
        before = self._described
        if before is not None and before[0] == newest:
            return before[1]
        now = snapshot(self._store, self._folder)
        if now is None:
            raise self._no_table()
        if before is not None and before[1].id != now.id:
            self._known.clear()
        self._described = (newest, now)
        return now

    def _commit(self, number: int) -> LakeCommit:
        if number not in self._known:
            self._known[number] = _lake_commit(number, self._actions(number))
        return self._known[number]

    def _actions(self, number: int) -> list[dict[str, Any]]:
        actions = delta_log.commit(self._store, self._folder, number)
        if actions is None:
            raise self.lost(f"version {number} of Delta table {self.query!r} was removed from its log")
        return actions

    def _path(self, path: str, number: int) -> str:
        """Return the address of a file; one that was vacuumed is refused."""
        if urlsplit(path).scheme:
            return unquote(path)
        key = self._folder + unquote(path)
        if self._store.size(key) is None:
            raise self.lost(f"files of version {number} of Delta table {self.query!r} were vacuumed")
        return self._store.path(key)

    def _refuse_mapped(self, newest: int) -> None:
        if self._about(newest).configuration.get(_MAPPING, "none") != "none":
            message = (
                f"Delta table {self.query!r} has columns under other names in its files, which streams cannot read"
            )
            raise UnsupportedError(message, hint=f"read a table without {_MAPPING}, or load it with @ematix.pipeline.")


class DeltaS3Stream(DeltaStream):
    """A Delta table below a prefix of a bucket."""

    kind = "delta_s3"
    system = DeltaS3Source


def _adds(actions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [action["add"] for action in actions if action.get("add", {}).get("dataChange")]


def _lake_commit(number: int, actions: Sequence[dict[str, Any]]) -> LakeCommit:
    """Return what a version did to the rows; files that were only written anew say that they change no data."""
    adds = _adds(actions)
    removes = any(action.get("remove", {}).get("dataChange") for action in actions)
    has_deletion_vectors = any(add.get("deletionVector") for add in adds)
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    timestamp_ms = info.get("inCommitTimestamp") or info.get("timestamp") or 0
    rows = sum(int(json.loads(add.get("stats") or "{}").get("numRecords", 1)) for add in adds)
    at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    replaces = any("remove" in action for action in actions)
    return LakeCommit(number, at, max(rows, int(bool(adds))), removes or has_deletion_vectors, replaces)
