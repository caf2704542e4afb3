"""Writes the checkpoint of a Delta table's log without an engine, so that nobody has to read the log from its beginning.

Whoever reads a table does without a checkpoint as well, so one that cannot be written is left to the next commit.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.connect import delta_log
from ematix_flow.connect.delta_retention import kept_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ematix_flow.connect.store import Store

EVERY = 10
"""Commits from one checkpoint to the next, as Delta itself has it."""


def write_checkpoint(store: Store, folder: str, number: int) -> bool:
    """Write the state at a version; False where an older checkpoint has something that is not understood here."""
    import io

    import pyarrow.parquet as pq

    kept = _State()
    for action in _actions_up_to(store, folder, number):
        if action is None or not kept.take(action):
            return False
    rows = list(kept.rows())
    sink = io.BytesIO()
    pq.write_table(_table(rows), sink, compression="snappy")
    with suppress(OSError):
        if not store.create(delta_log.checkpoint_key(folder, number), sink.getvalue()):
            return False
        told = {
            "version": number,
            "size": len(rows),
            "sizeInBytes": len(sink.getvalue()),
            "numOfAddFiles": len(kept.files),
        }
        store.write(delta_log.last_checkpoint_key(folder), json.dumps(told).encode())
        return True
    return False


class _State:
    """What is left of a log when every action has had its effect."""

    def __init__(self) -> None:
        self.files: dict[str, Mapping[str, Any]] = {}
        self._removed: dict[str, Mapping[str, Any]] = {}
        self._numbers: dict[str, Mapping[str, Any]] = {}
        self._single: dict[str, Mapping[str, Any]] = {}

    def take(self, action: Mapping[str, Any]) -> bool:
        """Take the next action; False for one whose meaning is not known."""
        for name, value in action.items():
            if value is None:
                continue
            if name == "add" and not value.get("deletionVector"):
                self.files[value["path"]] = value
                self._removed.pop(value["path"], None)
            elif name == "remove" and not value.get("deletionVector"):
                self.files.pop(value["path"], None)
                self._removed[value["path"]] = value
            elif name == "txn":
                self._numbers[value["appId"]] = value
            elif name in ("metaData", "protocol"):
                self._single[name] = value
            elif name not in ("commitInfo", "cdc"):
                return False
        return True

    def rows(self) -> Iterator[dict[str, Any]]:
        """Give the rows of the checkpoint."""
        yield from ({name: dict(value)} for name, value in self._single.items())
        yield from ({"txn": dict(value)} for value in self._numbers.values())
        yield from ({"add": {**value, "dataChange": False}} for value in self.files.values())
        # As Delta itself does: files that were removed are remembered until they may be cleaned up.
        kept = kept_files(self._single.get("metaData", {}).get("configuration") or {})
        since = -1 if kept is None else time.time_ns() // 1_000_000 - kept // timedelta(milliseconds=1)
        for value in self._removed.values():
            if (value.get("deletionTimestamp") or 0) > since:
                yield {"remove": {**value, "dataChange": False}}


def _actions_up_to(store: Store, folder: str, number: int) -> Iterator[Mapping[str, Any] | None]:
    """Give every action up to a version, from the checkpoint before it on; None where that cannot be read here."""
    import pyarrow.parquet as pq

    first = 0
    before = delta_log.last_checkpoint(store, folder)
    if before is not None and before["version"] < number:
        first = before["version"] + 1
        key = delta_log.checkpoint_key(folder, before["version"])
        if before.get("parts") or store.size(key) is None:
            yield None
            return
        with store.reader(key) as file:
            table = pq.read_table(file)
        for row in table.to_pylist(maps_as_pydicts="strict"):
            yield {name: value for name, value in row.items() if value is not None}
    for version in range(first, number + 1):
        actions = delta_log.commit(store, folder, version)
        yield from actions if actions is not None else [None]


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    text, long, words = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
    listed = pa.list_(text)
    schema = pa.schema({
        "txn": pa.struct({"appId": text, "version": long, "lastUpdated": long}),
        "add": pa.struct({
            "path": text, "partitionValues": words, "size": long, "modificationTime": long, "dataChange": pa.bool_(),
            "stats": text, "tags": words,
        }),
        "remove": pa.struct({
            "path": text, "deletionTimestamp": long, "dataChange": pa.bool_(), "extendedFileMetadata": pa.bool_(),
            "partitionValues": words, "size": long,
        }),
        "metaData": pa.struct({
            "id": text, "name": text, "description": text, "format": pa.struct({"provider": text, "options": words}),
            "schemaString": text, "partitionColumns": listed, "configuration": words, "createdTime": long,
        }),
        "protocol": pa.struct({
            "minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(), "readerFeatures": listed, "writerFeatures": listed,
        }),
    })  # fmt: skip
    return pa.Table.from_pylist([_listed_maps(row) for row in rows], schema=schema)


def _listed_maps(row: dict[str, Any]) -> dict[str, Any]:
    """Give a row with its maps as lists of pairs, which is how Arrow takes them."""
    return {
        name: {
            key: _listed_maps({"": value})[""]
            if key == "format"
            else list(value.items())
            if isinstance(value, dict)
            else value
            for key, value in action.items()
        }
        for name, action in row.items()
    }
