"""TOML as text: reads and writes plain values, and finds the line of a key; what they mean is not known here."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

LARGEST = 1 << 18
"""Characters of a configuration; more than people write, and few enough to be read at once whatever they contain."""

_KEY_SEGMENT = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w.-]){_KEY_SEGMENT}(?:[ \t]*+\.[ \t]*+{_KEY_SEGMENT}){{50}}")
"""A key of so many parts that the time to read it grows with their square."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")


def read_text(file: str | os.PathLike[str]) -> str:
    """Return the text of a file, or as much of it as is enough to refuse it; one that cannot be read is refused."""
    path = Path(file)
    try:
        with path.open(encoding="utf-8") as opened:
            return opened.read(LARGEST + 1)
    except FileNotFoundError:
        raise DeclareError(f"{path} does not exist", hint=f"looked from {Path.cwd()}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DeclareError(f"{path} cannot be read: {type(error).__name__}") from None


def dumps(document: Mapping[str, Any]) -> str:
    """Return a document as TOML; None is left out, because TOML has no word for it."""
    return "\n".join(_table_lines((), document)).strip() + "\n"


def parsed(text: str, name: str) -> dict[str, Any]:
    """Return the tables of a text; `name` is what errors call it. Any input is read or refused at once."""
    if len(text) > LARGEST:
        raise DeclareError(f"{name} is longer than {LARGEST:,} characters", hint="is it the right file?")
    if _LONG_KEY.search(text):
        raise DeclareError(f"{name} has a key of more than 50 parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise DeclareError(f"{name} is nested too deeply") from None
    except ValueError as error:
        raise DeclareError(f"{name} is no valid TOML: {error}") from None


def line_of(text: str, path: Sequence[str | int], key: str | None = None) -> int:
    """Return the line of a table, or of one of its keys; the first line where it cannot be found."""
    section_path = tuple(str(segment) for segment in path)
    sections, first = _sections(text)
    if key is not None:
        written = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]")
        for section in sections:
            if section.path == section_path:
                for number, line in enumerate(section.lines, section.line):
                    if written.match(line):
                        return number
            elif section.path[: len(section_path) + 1] == (*section_path, key):
                return section.line
    return first.get(section_path, 1)


@dataclass(frozen=True, slots=True)
class _Section:
    """The lines from one header to the next."""

    path: tuple[str, ...]
    line: int
    lines: tuple[str, ...]


@lru_cache(maxsize=2)
def _sections(text: str) -> tuple[tuple[_Section, ...], dict[tuple[str, ...], int]]:
    """Return the sections of a text, and the line on which each table begins first."""
    counts: dict[str, int] = {}
    lines = text.splitlines()
    starts: list[tuple[tuple[str, ...], int]] = [((), 1)]
    for number, line in enumerate(lines, 1):
        header = _HEADER.match(line)
        if header:
            starts.append((tuple(_numbered(header[2], header[1] == "[[", counts)), number))
    ends = [line for _, line in starts[1:]] + [len(lines) + 1]
    sections = tuple(
        _Section(path, line, tuple(lines[line - 1 : end - 1])) for (path, line), end in zip(starts, ends, strict=True)
    )
    return sections, {section.path: section.line for section in reversed(sections)}


def _numbered(name: str, is_list: bool, counts: dict[str, int]) -> list[str]:  # noqa: FBT001 - the two brackets
    """Return the path that a header means, with the indices that lists of tables have reached."""
    segments = [segment.strip().strip("\"'") for segment in name.split(".")]
    if is_list:
        counts[".".join(segments)] = counts.get(".".join(segments), -1) + 1
    path: list[str] = []
    for depth, segment in enumerate(segments, 1):
        path.append(segment)
        if ".".join(segments[:depth]) in counts:
            path.append(str(counts[".".join(segments[:depth])]))
    return path


def _table_lines(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if value is not None and not _is_nested(value)}
    yield from (f"{_key(key)} = {_value(value)}" for key, value in plain.items())
    for key, value in table.items():
        if not _is_nested(value):
            continue
        inner = (*path, key)
        name = ".".join(_key(segment) for segment in inner)
        for entry, header in (
            ((value, f"[{name}]"),) if isinstance(value, Mapping) else ((e, f"[[{name}]]") for e in value)
        ):
            yield ""
            yield header
            yield from _table_lines(inner, entry)


def _is_nested(value: Any) -> bool:
    tables = isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)
    return isinstance(value, Mapping) or tables


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return _value(value.total_seconds())
    if isinstance(value, float):
        return repr(int(value) if value.is_integer() else value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(value: str) -> str:
    # JSON and TOML escape alike, but for the one character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
