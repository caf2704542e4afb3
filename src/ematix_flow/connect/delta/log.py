"""Reads the commits of a Delta table's log one by one, as streams and maintenance need them; what they add up to is not known here.

deltalake reports what a table is at a version, but not what each version did: see docs/decisions/delta-log.md.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ematix_flow.connect.storage.base import Store

LOG = "_delta_log/"


def commit_key(folder: str, number: int) -> str:
    """Return the key of a commit."""
    return f"{folder}{LOG}{number:020}.json"


def commits(store: Store, folder: str) -> Iterator[list[dict[str, Any]]]:
    """Return the actions of every commit that the log still holds one by one, the newest first."""
    for _, actions in _numbered(store, folder):
        yield actions


def _numbered(store: Store, folder: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for key in reversed([file.key for file in store.listed(f"{folder}{LOG}") if _is_commit(file.key)]):
        yield _version_of_key(key), actions_of(store.read(key) or b"")


def commit_times(store: Store, folder: str, now: datetime) -> dict[str, datetime]:
    """Return the key of each commit that the log still holds and when it was written, the newest first."""
    files = [f for f in store.listed(f"{folder}{LOG}") if _is_commit(f.key)]
    return {file.key: now - timedelta(seconds=file.age) for file in reversed(files)}


def versions(store: Store, folder: str) -> list[int]:
    """Return the numbers of all commits that the log still holds one by one, the oldest first; none where there is no table."""
    return sorted(_version_of_key(f.key) for f in store.listed(f"{folder}{LOG}") if _is_commit(f.key))


def version(store: Store, folder: str) -> int | None:
    """Return the number of the newest commit, or None where there is no table."""
    return max(versions(store, folder), default=None)


def commit(store: Store, folder: str, number: int) -> list[dict[str, Any]] | None:
    """Return the actions of one commit, or None where the log does not hold it any more."""
    data = store.read(commit_key(folder, number))
    return None if data is None else actions_of(data)


def last_change(store: Store, folder: str) -> str:
    """Return the number of the newest commit that added or removed files; empty where the log has none.

    What came before the oldest commit of the log counts as one change: the log is only cut where a checkpoint is.
    """
    for number, actions in _numbered(store, folder):
        if changes_files(actions):
            return str(number)
    return ""


def changes_files(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a commit adds or removes files."""
    return any("add" in action or "remove" in action for action in actions)


def remembers(store: Store, folder: str, change: str) -> bool:
    """Return whether a commit of the log names a change."""
    for actions in commits(store, folder):
        for action in actions:
            user_metadata = action.get("commitInfo", {}).get("userMetadata")
            if user_metadata and change in user_metadata:
                return _names(user_metadata) == change
    return False


def _names(user_metadata: str) -> str:
    try:
        return str(json.loads(user_metadata).get("ematix_flow", ""))
    except ValueError:
        return ""


def actions_of(data: bytes) -> list[dict[str, Any]]:
    """Return the actions of a commit."""
    return [json.loads(line) for line in data.splitlines() if line]


def _version_of_key(key: str) -> int:
    return int(key.rpartition("/")[2].partition(".")[0])


def _is_commit(key: str) -> bool:
    name, dot, extension = key.rpartition("/")[2].partition(".")
    return name.isdecimal() and bool(dot) and extension == "json"
