"""Reads a Delta table's log without an engine: its columns, and whether a change was made; it writes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ematix_flow.connect.store import Store

LOG = "_delta_log/"


@dataclass(frozen=True, slots=True)
class LogState:
    """What the log says of a table at its newest version, beside its files."""

    version: int
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    transactions: Mapping[str, int] = field(default_factory=dict)
    """The last number of every application that counts its commits."""


def state(store: Store, folder: str) -> LogState | None:
    """Give the newest state; commits after the last checkpoint are looked for one by one.

    None where there is no table, or where its checkpoint is of a kind that is not read here.
    """
    number = _checkpoint(store, folder)
    found: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    for row in _whole(store, folder, number) if number >= 0 else ():
        _note(row, found, numbers)
    while (data := store.read(commit_key(folder, number + 1))) is not None:
        number += 1
        for action in actions_of(data):
            _note(action, found, numbers)
    if "metaData" not in found or "protocol" not in found:
        return None
    return LogState(number, found["metaData"], found["protocol"], numbers)


def _note(action: Mapping[str, Any], found: dict[str, Any], numbers: dict[str, int]) -> None:
    for name in ("metaData", "protocol"):
        if action.get(name):
            found[name] = action[name]
    if action.get("txn"):
        numbers[action["txn"]["appId"]] = action["txn"]["version"]


def commit_key(folder: str, number: int) -> str:
    """Give the key of a commit."""
    return f"{folder}{LOG}{number:020}.json"


def commits(store: Store, folder: str, after: int = -1) -> Iterator[list[dict[str, Any]]]:
    """Give the actions of every commit after a number that the log still holds one by one, the newest first."""
    for _, actions in _numbered(store, folder, after):
        yield actions


def _numbered(store: Store, folder: str, after: int = -1) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    keys = [f.key for f in store.listed(f"{folder}{LOG}") if _is_commit(f.key) and _number(f.key) > after]
    for key in reversed(keys):
        yield _number(key), actions_of(store.read(key) or b"")


def commit_times(store: Store, folder: str, now: datetime) -> dict[str, datetime]:
    """Return the key of each commit that the log still holds and when it was written, the newest first."""
    found = [f for f in store.listed(f"{folder}{LOG}") if _is_commit(f.key)]
    return {file.key: now - timedelta(seconds=file.age) for file in reversed(found)}


def versions(store: Store, folder: str) -> list[int]:
    """Give the numbers of all commits that the log still holds one by one, the oldest first; none where there is no table."""
    return sorted(_number(f.key) for f in store.listed(f"{folder}{LOG}") if _is_commit(f.key))


def version(store: Store, folder: str) -> int | None:
    """Give the number of the newest commit, or None where there is no table."""
    return max(versions(store, folder), default=None)


def commit(store: Store, folder: str, number: int) -> list[dict[str, Any]] | None:
    """Give the actions of one commit, or None where the log does not hold it any more."""
    data = store.read(commit_key(folder, number))
    return None if data is None else actions_of(data)


def last_change(store: Store, folder: str) -> str:
    """Give the number of the newest commit that added or removed files; empty where the log has none.

    What came before the oldest commit of the log counts as one change: the log is only cut where a checkpoint is.
    """
    for number, actions in _numbered(store, folder):
        if changes_files(actions):
            return str(number)
    return ""


def changes_files(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a commit adds or removes files."""
    return any("add" in action or "remove" in action for action in actions)


def columns(store: Store, folder: str) -> list[tuple[str, str, bool]] | None:
    """Give name, type and nullability of the columns, or None where there is no table."""
    found = described(store, folder)
    return None if found is None else fields(found["schemaString"])


def partitions(store: Store, folder: str) -> tuple[str, ...]:
    """Give the columns that a table is divided by."""
    return tuple((described(store, folder) or {}).get("partitionColumns") or ())


def described(store: Store, folder: str) -> dict[str, Any] | None:
    """Give what the newest commit that describes the table says of it, or None where there is no table."""
    # What a checkpoint holds need not be read commit by commit: a log keeps a month of them.
    whole = _checkpoint(store, folder)
    found = whole >= 0
    for actions in commits(store, folder, whole):
        found = True
        for action in actions:
            if "metaData" in action:
                return dict(action["metaData"])
    described = _from_checkpoint(store, folder)
    if described is None and found:
        message = f"the log of the Delta table {store.path(folder)} does not say which columns it has"
        raise OSError(message)
    return described


def remembers(store: Store, folder: str, change: str) -> bool:
    """Say whether a commit of the log names a change."""
    for actions in commits(store, folder):
        for action in actions:
            said = action.get("commitInfo", {}).get("userMetadata")
            if said and change in said:
                return _names(said) == change
    return False


def _names(said: str) -> str:
    try:
        return str(json.loads(said).get("ematix_flow", ""))
    except ValueError:
        return ""


def actions_of(data: bytes) -> list[dict[str, Any]]:
    """Return the actions of a commit."""
    return [json.loads(line) for line in data.splitlines() if line]


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].partition(".")[0])


def _is_commit(key: str) -> bool:
    name, dot, extension = key.rpartition("/")[2].partition(".")
    return name.isdecimal() and bool(dot) and extension == "json"


def fields(schema: str) -> list[tuple[str, str, bool]]:
    """Give name, type and nullability of the columns that a text of Delta describes."""
    return [
        (
            field["name"],
            field["type"] if isinstance(field["type"], str) else str(field["type"].get("type")),
            field["nullable"],
        )
        for field in json.loads(schema)["fields"]
    ]


def last_checkpoint(store: Store, folder: str) -> dict[str, Any] | None:
    """Give what is noted of the newest checkpoint that is whole; the note is written after its last file."""
    data = store.read(last_checkpoint_key(folder))
    return None if data is None else dict(json.loads(data))


def last_checkpoint_key(folder: str) -> str:
    """Give the key of the note about the newest checkpoint."""
    return f"{folder}{LOG}_last_checkpoint"


def checkpoint_key(folder: str, number: int) -> str:
    """Give the key of a checkpoint that is one file."""
    return f"{folder}{LOG}{number:020}.checkpoint.parquet"


def _checkpoint(store: Store, folder: str) -> int:
    noted = last_checkpoint(store, folder)
    return -1 if noted is None else int(noted["version"])


def _checkpoint_files(store: Store, folder: str) -> list[str]:
    found = store.listed(f"{folder}{LOG}")
    return [file.key for file in found if file.key.endswith(".parquet") and ".checkpoint." in file.key]


def _whole(store: Store, folder: str, number: int) -> Iterator[dict[str, Any]]:
    """Give what a checkpoint says beside files."""
    import pyarrow.parquet as pq

    one = checkpoint_key(folder, number)
    mark = one.removesuffix("parquet")
    keys = [one] if store.size(one) is not None else [k for k in _checkpoint_files(store, folder) if k.startswith(mark)]
    for key in keys:
        with store.reader(key) as file:
            table = pq.read_table(file, columns=["metaData", "protocol", "txn"])
        for name in table.column_names:
            yield from ({name: dict(value)} for value in table.column(name).to_pylist() if value is not None)


def _from_checkpoint(store: Store, folder: str) -> dict[str, Any] | None:
    import pyarrow.parquet as pq

    for key in reversed(_checkpoint_files(store, folder)):
        with store.reader(key) as file:
            table = pq.read_table(file, columns=["metaData"])
        for row in table.column("metaData").to_pylist():
            if row is not None and row.get("schemaString"):
                return dict(row)
    return None
