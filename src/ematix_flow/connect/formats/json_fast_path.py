"""Reads JSON objects that are written alike by one pattern; what does not fit it is left to the exact reader of `json_lines`.

The messages of one writer have the same keys in the same order. A pattern made from the first of them takes the texts of
the values out of the others, digit by digit as they are written, in a third of the time. It fits valid JSON only: plain
values, strings without escapes, no key twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from ematix_flow.connect.formats.json_lines import row_of
from ematix_flow.connect.formats.json_patterns import (
    SPACE,
    UNQUOTED,
    are_plain,
    are_too_large,
    decoded_text,
    object_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

Row: TypeAlias = "dict[str, str | None] | str"
"""The values of a message as texts, or what is wrong with it."""

LAYOUTS = 4
"""Patterns that are tried on a message."""

TRIES = 16
"""Messages of which a pattern is made, as long as there are not enough of them."""

WIDEST = 200
"""Keys of a message from which no pattern is made: making one takes longer than it could ever save."""

_VALUE = rf'"[^"\\\x00-\x1f]*+"|{UNQUOTED}'
_NOTHING = "(?:(?!)())?+"
"""A group that never has a value: what keys have that are not in the message."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The pattern of messages with the same keys, and the group of each requested name.

    The last one is the empty group.
    """

    pattern: re.Pattern[str]
    groups: tuple[int, ...]

    def values(self, text: str) -> tuple[str | None, ...] | None:
        """Return the values as they are written, with their quotes; None where the message is another one."""
        match = self.pattern.fullmatch(text)
        return None if match is None else match.group(*self.groups)


@dataclass(slots=True)
class ParsedMessages:
    """What became of some messages: those that fit a pattern, with their indices, and the others by their indices."""

    indexes: list[int] = field(default_factory=list)
    written: list[tuple[str | None, ...]] = field(default_factory=list)
    others: dict[int, Row] = field(default_factory=dict)

    def columns(self, names: Sequence[str]) -> tuple[pa.Array | pa.ChunkedArray, ...]:
        """Return the texts of the names in the order of the messages."""
        import pyarrow as pa

        rows = [{} if isinstance(row, str) else row for row in self.others.values()]
        single = [pa.array([row.get(name) for row in rows], pa.string()) for name in names]
        if not self.written:
            return tuple(single)
        alike = [_texts(values) for values in list(zip(*self.written, strict=True))[:-1]]
        if not rows:
            return tuple(alike)
        indexes = [*self.indexes, *self.others]
        order = pa.array(sorted(range(len(indexes)), key=indexes.__getitem__), pa.int64())
        return tuple(pa.chunked_array(both).take(order) for both in zip(alike, single, strict=True))


def read_alike(payloads: Sequence[bytes | None], names: tuple[str, ...]) -> ParsedMessages:
    """Read one object from each payload."""
    read = ParsedMessages()
    patterns = _Patterns(names, 0 if are_too_large(payloads) or not names else TRIES)
    for index, payload in enumerate(payloads):
        text = decoded_text(payload)
        values = patterns.values(text)
        if values is None:
            row = row_of(payload or b"")
            values = patterns.learn(text, row)
            if values is None:
                read.others[index] = row
                continue
        read.indexes.append(index)
        read.written.append(values)
    return read


@dataclass(slots=True)
class _Patterns:
    """The patterns that were made so far."""

    names: tuple[str, ...]
    tries: int
    layouts: list[_Layout] = field(default_factory=list)

    def values(self, text: str | None) -> tuple[str | None, ...] | None:
        """Return the values of a message that fits one of them."""
        if text is not None:
            for layout in self.layouts:
                values = layout.values(text)
                if values is not None:
                    return values
        return None

    def learn(self, text: str | None, row: Row) -> tuple[str | None, ...] | None:
        """Return the values of a message that a pattern made of its own keys fits, and keep that pattern."""
        if text is None or isinstance(row, str) or not self.tries or len(self.layouts) == LAYOUTS:
            return None
        self.tries -= 1
        if len(row) > WIDEST or not are_plain(row):
            return None
        layout = _layout(tuple(row), self.names)
        values = layout.values(text)
        if values is not None:
            self.layouts.append(layout)
        return values


@lru_cache(maxsize=64)
def _layout(keys: tuple[str, ...], names: tuple[str, ...]) -> _Layout:
    captured = [key for key in keys if key in names]
    inside = object_pattern({key: f"({_VALUE})" if key in names else f"(?:{_VALUE})" for key in keys})
    pattern = re.compile(f"{SPACE}{inside}{SPACE}{_NOTHING}")
    nothing = len(captured) + 1
    groups = [captured.index(name) + 1 if name in captured else nothing for name in names]
    return _Layout(pattern, (*groups, nothing))


def _texts(values: Sequence[str | None]) -> pa.Array:
    """Return values as texts: strings without their quotes, of which they have no others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    written = pa.array(values, pa.string())
    known = pc.if_else(pc.equal(written, "null"), pa.scalar(None, pa.string()), written)
    return pc.ascii_trim(known, characters='"')
