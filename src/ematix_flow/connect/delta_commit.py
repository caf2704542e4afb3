"""Writes commits to the log of a Delta table without an engine: a table is made, files are added, a number is refused.

It writes only what every reader of Delta knows. A table that uses more is left to Delta itself.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect import delta_log
from ematix_flow.connect.delta_checkpoint import EVERY, write_checkpoint
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ematix_flow.connect.base import FoundColumn
    from ematix_flow.connect.delta_log import LogState
    from ematix_flow.connect.lake_change import Change
    from ematix_flow.connect.store import Store

ATTEMPTS = 50
"""How often a commit looks for the next free number before it gives way to the others."""

ENGINE = "ematix-flow"
NTZ = "timestampNtz"
PLAIN = frozenset({"appendOnly", "invariants", NTZ})
"""Features of tables that files can be added to without knowing more."""

TYPES = {
    "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double", "BOOLEAN": "boolean",
    "STRING": "string", "DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz", "BINARY": "binary",
}  # fmt: skip
"""The words of Delta for types of Spark's SQL."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file that becomes part of a table."""

    path: str
    """Below the table's folder."""
    size: int
    rows: int
    stats: str = ""
    """What is known of its columns, as the log writes it."""


def takes_files(state: LogState) -> bool:
    """Say whether files can be added to a table by whoever knows its columns: no feature asks for more."""
    protocol, metadata = state.protocol, state.metadata
    used = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    plain = (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (1, 2) or (
        (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (3, 7) and used <= PLAIN
    )
    fields = json.loads(metadata["schemaString"])["fields"]
    return (
        plain and not metadata.get("partitionColumns") and not any("delta." in str(f.get("metadata")) for f in fields)
    )


def make_table(store: Store, folder: str, columns: Sequence[FoundColumn]) -> bool:
    """Write the first commit of a table; False where there is one, or where a type needs Delta itself."""
    fields = [_field(column) for column in columns]
    if any(field is None for field in fields):
        return False
    features = {"readerFeatures": [NTZ], "writerFeatures": sorted(PLAIN)}
    has_ntz = any(field["type"] == "timestamp_ntz" for field in fields if field)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features} if has_ntz else _version(1, 2)
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": _now(),
    }
    said = _said("CREATE TABLE", {"isManaged": "false", "partitionBy": "[]", "properties": "{}"}, append=False)
    actions: list[dict[str, Any]] = [{"commitInfo": said}, {"protocol": protocol}, {"metaData": metadata}]
    return store.create(delta_log.commit_key(folder, 0), _lines(actions))


def add_files(
    store: Store, folder: str, change: Change, files: Sequence[NewFile], check: Callable[[LogState], None]
) -> None:
    """Make files part of a table, once, by a commit that carries the change; `check` refuses a table that is another by now."""
    at = _now()
    adds = [
        {
            "add": {
                "path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": at,
                "dataChange": True, "stats": file.stats or json.dumps({"numRecords": file.rows}),
            }
        }
        for file in files
    ]  # fmt: skip
    metrics = {
        "numFiles": len(files),
        "numOutputRows": sum(f.rows for f in files),
        "numOutputBytes": sum(f.size for f in files),
    }
    said = _said("WRITE", {"mode": "Append", "partitionBy": "[]"}, metrics, append=True)
    _commit(store, folder, change, {**said, "userMetadata": json.dumps({"ematix_flow": change.id})}, adds, check)


def refuse(store: Store, folder: str, change: Change) -> None:
    """Use up the number of a change that was not made, so that the table never takes it."""
    said = {**_said("WRITE", {"mode": "Append"}, append=True), "userMetadata": json.dumps({"refused": change.id})}
    _commit(store, folder, change, said, [], lambda _: None)


def application(change: Change) -> str:
    """Give the name under which a table counts the changes of its books."""
    return f"ematix_flow/{change.ledger}"


def _commit(
    store: Store,
    folder: str,
    change: Change,
    said: Mapping[str, Any],
    actions: Sequence[Mapping[str, Any]],
    check: Callable[[LogState], None],
) -> None:
    counted = {"txn": {"appId": application(change), "version": change.number, "lastUpdated": _now()}}
    for _ in range(ATTEMPTS):
        state = delta_log.state(store, folder)
        if state is None:
            message = f"the log of the Delta table at {store.address(folder)} cannot be read any more"
            raise TransientError(message)
        if state.transactions.get(application(change), -1) >= change.number:
            message = "the table has heard of this change already, and takes it once"
            raise TransientError(message, hint="it is tried again by itself, or run it again.")
        check(state)
        number = state.version + 1
        if store.create(delta_log.commit_key(folder, number), _lines([{"commitInfo": said}, counted, *actions])):
            if number % EVERY == 0:
                write_checkpoint(store, folder, number)
            return
    message = f"others commit to the Delta table at {store.address(folder)} faster than this load"
    raise TransientError(message, hint="it is tried again by itself, or run it again.")


def _field(column: FoundColumn) -> dict[str, Any] | None:
    """Give a column in the words of Delta; None where it has no plain word."""
    kind = TYPES.get(column.type) or (column.type.lower() if column.type.startswith("DECIMAL(") else None)
    return None if kind is None else {"name": column.name, "type": kind, "nullable": column.nullable, "metadata": {}}


def _said(
    operation: str, parameters: Mapping[str, str], metrics: Mapping[str, int] | None = None, *, append: bool
) -> dict[str, Any]:
    return {
        "timestamp": _now(),
        "operation": operation,
        "operationParameters": dict(parameters),
        "isolationLevel": "Serializable",
        "isBlindAppend": append,
        "operationMetrics": {name: str(value) for name, value in (metrics or {}).items()},
        "engineInfo": ENGINE,
        "txnId": str(uuid.uuid4()),
    }


def _version(reader: int, writer: int) -> dict[str, int]:
    return {"minReaderVersion": reader, "minWriterVersion": writer}


def _lines(actions: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in actions).encode()


def _now() -> int:
    return time.time_ns() // 1_000_000
