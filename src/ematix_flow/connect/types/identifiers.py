"""Names and texts in SQL: names in double quotes, or in the backticks of MySQL and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def quoted(name: str) -> str:
    """Return a name so that any character in it is safe."""
    return '"' + name.replace('"', '""') + '"'


def backticked(name: str) -> str:
    """Return a name for MySQL and Spark so that any character in it is safe."""
    return "`" + name.replace("`", "``") + "`"


def listed(names: Iterable[str]) -> str:
    """Return names as a list of columns."""
    return ", ".join(quoted(name) for name in names)


def text(value: str) -> str:
    """Return a text literal."""
    return "'" + value.replace("'", "''") + "'"


def spark_text(value: str) -> str:
    """Return a text as a literal of Spark's SQL, whose escapes begin with a backslash."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
