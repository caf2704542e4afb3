"""Names in the SQL of databases that quote with double quotes; MySQL has its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def quoted(name: str) -> str:
    """Give a name so that any character in it is safe."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Give names as a list of columns."""
    return ", ".join(quoted(name) for name in names)


def text(value: str) -> str:
    """Give a text literal."""
    return "'" + value.replace("'", "''") + "'"
