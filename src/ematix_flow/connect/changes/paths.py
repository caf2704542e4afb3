"""Values inside of events by dotted paths, and keys of rows compared as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def at_path(document: Any, path: str) -> Any:
    """Return what is at a dotted path; None where nothing is. A field whose name has dots is found as it is."""
    if isinstance(document, dict) and path in document:
        return document[path]
    value = document
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def object_at(document: Any, path: str) -> dict[str, Any] | None:
    """Return the object at a dotted path; None where there is none."""
    value = at_path(document, path) if path else document
    return value if isinstance(value, dict) else None


def key_at(document: Mapping[str, Any], path: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return the key that an event has in a field of its own: an object, or the value of the only column."""
    value = at_path(document, path)
    if isinstance(value, dict):
        return {key: value[key] for key in keys if key in value}
    return {keys[0]: value} if value is not None and len(keys) == 1 else {}


def same_key(left: Mapping[str, Any], right: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Return whether two rows have the same key."""
    return all(left.get(key) == right.get(key) for key in keys)
