"""TOML as text: writes plain values, and finds the line on which a key stands; what they mean is not known here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")


def dumps(document: Mapping[str, Any]) -> str:
    """Give a document as TOML; None is left out, because TOML has no word for it."""
    return "\n".join(_table((), document)).strip() + "\n"


def line_of(text: str, path: Sequence[str | int], key: str | None = None) -> int:
    """Give the line of a table, or of one of its keys; the first line where it cannot be found."""
    wanted = [str(part) for part in path]
    here: list[str] = []
    counts: dict[str, int] = {}
    found = 0
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            here = _numbered(header[2], header[1] == "[[", counts)
        at_table = here == wanted and (header is not None or not wanted)
        if at_table and not found:
            found = number
        if key is not None and here == wanted and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]", line):
            return number
        if key is not None and here[: len(wanted) + 1] == [*wanted, key]:
            return number
    return found or 1


def _numbered(name: str, is_list: bool, counts: dict[str, int]) -> list[str]:  # noqa: FBT001 - the two brackets
    """Give the path that a header means, with the places that lists of tables have reached."""
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    if is_list:
        counts[".".join(parts)] = counts.get(".".join(parts), -1) + 1
    path: list[str] = []
    for depth, part in enumerate(parts, 1):
        path.append(part)
        if ".".join(parts[:depth]) in counts:
            path.append(str(counts[".".join(parts[:depth])]))
    return path


def _table(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if value is not None and not _is_nested(value)}
    yield from (f"{_key(key)} = {_value(value)}" for key, value in plain.items())
    for key, value in table.items():
        if not _is_nested(value):
            continue
        inner = (*path, key)
        name = ".".join(_key(part) for part in inner)
        for entry, header in (
            ((value, f"[{name}]"),) if isinstance(value, Mapping) else ((e, f"[[{name}]]") for e in value)
        ):
            yield ""
            yield header
            yield from _table(inner, entry)


def _is_nested(value: Any) -> bool:
    tables = isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)
    return isinstance(value, Mapping) or tables


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return _value(value.total_seconds())
    if isinstance(value, float):
        return repr(int(value) if value.is_integer() else value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    return _text(value) if isinstance(value, str) else str(value)


def _text(value: str) -> str:
    # JSON and TOML escape alike, but for the one character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
