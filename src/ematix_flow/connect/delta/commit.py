"""Commits to Delta tables without an engine: a table is created, files are added, a number is refused.

deltalake writes the next version in a copy of the log, and the store publishes it in the table: whole, once, and for
good. What a table requires of its writers beyond that is left to Delta itself. See docs/decisions/delta-log.md.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.connect.delta.copy import (
    LAST_CHECKPOINT,
    checkpoint_key,
    log_copy,
    open_copy,
    snapshot_of,
    translated_errors,
)
from ematix_flow.connect.delta.log import LOG, commit_key
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltalake import CommitProperties, DeltaTable

    from ematix_flow.connect.base.columns import ColumnSchema
    from ematix_flow.connect.delta.copy import Snapshot
    from ematix_flow.connect.lake.change import Change
    from ematix_flow.connect.storage.base import Store

ATTEMPTS = 50
"""How often a commit tries the next free number before it gives way to the others."""

INTERVAL, CHECKPOINT_INTERVAL = "delta.checkpointInterval", 10
"""The property that says how many commits lie between two checkpoints, and what Delta does without it."""

CLIENT = "ematix-flow"

BASIC_FEATURES = ("appendOnly", "invariants")
"""What every writer of Delta knows, and a table that lists its features has to list."""

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


def create_table(store: Store, folder: str, columns: Sequence[ColumnSchema]) -> bool:
    """Write the first commit of a table; False where there is one, or where a type needs Delta itself."""
    from deltalake import CommitProperties, DeltaTable, Schema

    fields = [_field(column) for column in columns]
    if any(field is None for field in fields):
        return False
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
    with scratch_folder("delta") as scratch:
        named = CommitProperties(custom_metadata={"clientVersion": CLIENT})
        DeltaTable.create(scratch, schema, commit_properties=named)
        written = (Path(scratch) / commit_key("", 0)).read_bytes()
        content = written.replace(Path(scratch).as_uri().encode(), json.dumps(store.address(folder))[1:-1].encode())
    return store.create(commit_key(folder, 0), b"".join(map(_with_basic_features, content.splitlines(keepends=True))))


def _with_basic_features(line: bytes) -> bytes:
    """Return an action; a protocol that lists features lists those of the oldest writers too, or Delta refuses NOT NULL columns."""
    protocol = json.loads(line).get("protocol")
    if protocol is None or "writerFeatures" not in protocol:
        return line
    features = sorted({*protocol["writerFeatures"], *BASIC_FEATURES})
    return json.dumps({"protocol": {**protocol, "writerFeatures": features}}).encode() + b"\n"


def add_files(
    store: Store, folder: str, change: Change, files: Sequence[NewFile], check: Callable[[Snapshot], None]
) -> None:
    """Make files part of a table, once, by a commit that carries the change; `check` refuses a table that is another by now."""
    metrics = {
        "numFiles": len(files),
        "numOutputRows": sum(f.rows for f in files),
        "numOutputBytes": sum(f.size for f in files),
    }
    commit_info = {
        "isBlindAppend": True,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "userMetadata": json.dumps({"ematix_flow": change.id}),
    }
    _commit(store, folder, change, commit_info, files, check)


def refuse(store: Store, folder: str, change: Change) -> None:
    """Use up the number of a change that was not made, so that the table never takes it."""
    commit_info = {"isBlindAppend": True, "userMetadata": json.dumps({"refused": change.id})}
    _commit(store, folder, change, commit_info, [], lambda _: None)


def application(change: Change) -> str:
    """Return the name under which a table counts the changes of its metadata."""
    return f"ematix_flow/{change.ledger}"


def has_number(table: DeltaTable, change: Change) -> bool:
    """Return whether a table has let the number of a change through, for this change or for its refusal."""
    newest = table.transaction_version(application(change))
    return newest is not None and newest >= change.number


def _commit(
    store: Store,
    folder: str,
    change: Change,
    commit_info: Mapping[str, Any],
    files: Sequence[NewFile],
    check: Callable[[Snapshot], None],
) -> None:
    for _ in range(ATTEMPTS):
        with log_copy(store, folder) as copy:
            table = open_copy(copy, store.address(folder))
            if table is None:
                message = f"there is no Delta table at {store.address(folder)} any more"
                raise TransientError(message)
            if has_number(table, change):
                message = "the table has heard of this change already, and takes it once"
                raise TransientError(message, hint="it is tried again by itself, or run it again.")
            snapshot = snapshot_of(table)
            check(snapshot)
            number = snapshot.version + 1
            with translated_errors(copy, store.address(folder)):
                _write_next(table, files, _properties(change, commit_info))
            if store.create(commit_key(folder, number), (copy / commit_key("", number)).read_bytes()):
                if number % _interval(snapshot) == 0:
                    _write_checkpoint(store, folder, copy, number)
                return
    message = f"others commit to the Delta table at {store.address(folder)} faster than this load"
    raise TransientError(message, hint="it is tried again by itself, or run it again.")


def _properties(change: Change, commit_info: Mapping[str, Any]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    counted = Transaction(application(change), change.number, _now())
    named = {"clientVersion": CLIENT, **commit_info}
    return CommitProperties(custom_metadata=named, max_commit_retries=0, app_transactions=[counted])


def _write_next(table: DeltaTable, files: Sequence[NewFile], properties: CommitProperties) -> None:
    """Write the next version of an opened copy."""
    from deltalake import PostCommitHookProperties
    from deltalake.transaction import AddAction

    adds = [
        AddAction(file.path, file.size, {}, _now(), data_change=True, stats=file.stats or _count(file))
        for file in files
    ]
    table.create_write_transaction(
        [*adds],
        "append",
        table.schema(),
        commit_properties=properties,
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    )


def _count(file: NewFile) -> str:
    return json.dumps({"numRecords": file.rows})


def _interval(snapshot: Snapshot) -> int:
    interval = snapshot.configuration.get(INTERVAL, "")
    return max(1, int(interval)) if interval.isdecimal() else CHECKPOINT_INTERVAL


def _write_checkpoint(store: Store, folder: str, copy: Path, number: int) -> None:
    """Write a checkpoint; every reader does without, so one that cannot be written is left to a later commit."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    with suppress(OSError, DeltaError):
        DeltaTable(copy).create_checkpoint()
        if store.create(checkpoint_key(folder, number), (copy / checkpoint_key("", number)).read_bytes()):
            # Spark keeps a checksum next to what it writes in folders, and trusts it more than the file.
            store.delete(f"{folder}{LOG}.{LAST_CHECKPOINT}.crc")
            store.write(f"{folder}{LOG}{LAST_CHECKPOINT}", (copy / LOG / LAST_CHECKPOINT).read_bytes())


def _field(column: ColumnSchema) -> dict[str, Any] | None:
    """Return a column in the words of Delta, or None where it has no plain word."""
    kind = TYPES.get(column.type) or (column.type.lower() if column.type.startswith("DECIMAL(") else None)
    return None if kind is None else {"name": column.name, "type": kind, "nullable": column.nullable, "metadata": {}}


def _now() -> int:
    return time.time_ns() // 1_000_000
