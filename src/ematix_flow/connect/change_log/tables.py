"""Which tables a stream of changes reads: names and patterns, in which any character can be quoted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = re.compile(r"[^\W\d][\w$]*")
_PART = re.compile(r'\s*(?:"(?P<exact>(?:[^"]|"")+)"|(?P<glob>[^\s",.]+))\s*(?P<end>[.,]|$)')
_HINT = 'write schema.table, a pattern such as shop.*, or several with commas; "quotes" take any name.'


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """Schema and name of a table of the source."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{_written(self.schema)}.{_written(self.name)}"


@dataclass(frozen=True, slots=True)
class _Name:
    text: str
    is_pattern: bool

    def matches(self, name: str) -> bool:
        return fnmatchcase(name, self.text) if self.is_pattern else name == self.text


@dataclass(frozen=True, slots=True)
class TablePattern:
    """One entry of the query of a stream: a table, or all tables that a pattern names."""

    schema: _Name
    name: _Name

    @property
    def is_pattern(self) -> bool:
        """Return whether there may be no table, or several."""
        return self.schema.is_pattern or self.name.is_pattern

    def matches(self, table: TableId) -> bool:
        """Return whether a table is meant."""
        return self.schema.matches(table.schema) and self.name.matches(table.name)


def patterns_in(query: str, default_schema: str) -> tuple[TablePattern, ...]:
    """Return the entries of a query; a name without a schema is in the default one."""
    entries: list[TablePattern] = []
    names: list[_Name] = []
    at, end = 0, ","
    while at < len(query) or end == ".":
        match = _PART.match(query, at)
        if match is None:
            raise _unreadable(query)
        exact, glob, end = match["exact"], match["glob"], match["end"]
        names.append(
            _Name(exact.replace('""', '"'), is_pattern=False)
            if exact
            else _Name(glob, is_pattern=any(sign in glob for sign in "*?["))
        )
        at = match.end()
        if end != ".":
            entries.append(_entry(query, names, default_schema))
            names = []
    if not entries:
        raise _unreadable(query)
    return tuple(entries)


def matching(patterns: Iterable[TablePattern], tables: Iterable[TableId]) -> tuple[TableId, ...]:
    """Return the tables that are meant, sorted; an entry without a pattern that names none is refused."""
    there = sorted(set(tables))
    chosen: set[TableId] = set()
    for pattern in patterns:
        matches = [table for table in there if pattern.matches(table)]
        if not matches and not pattern.is_pattern:
            missing = TableId(pattern.schema.text, pattern.name.text)
            raise RunError(f"there is no table {missing} to read changes of", hint=_HINT)
        chosen.update(matches)
    return tuple(sorted(chosen))


def table_named(text: str) -> TableId:
    """Return the table that a text of `str(TableId)` means."""
    (pattern,) = patterns_in(text, "")
    return TableId(pattern.schema.text, pattern.name.text)


def _entry(query: str, names: list[_Name], default_schema: str) -> TablePattern:
    match names:
        case [name]:
            return TablePattern(_Name(default_schema, is_pattern=False), name)
        case [schema, name]:
            return TablePattern(schema, name)
    raise _unreadable(query)


def _written(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _unreadable(query: str) -> RunError:
    return RunError(f"{query[:200]!r} does not name tables", hint=_HINT)
