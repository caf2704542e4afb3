"""Patterns of Debezium's messages that are written alike; what fits none is left to the exact reader.

The messages of one connector about one table have the same keys in the same order, and with a schema the same text
before their payload. A pattern made from one of them takes the values out of the others as they are written. It fits
valid JSON only, and only changes that are read without a question: a row that is written or deleted, with plain values
and a time in whole numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ematix_flow.connect.changes.debezium import is_flattened, unwrapped
from ematix_flow.connect.changes.order import LOCATIONS
from ematix_flow.connect.formats.json_patterns import (
    DIGITS,
    SPACE,
    UNQUOTED,
    are_plain,
    are_too_large,
    decoded_text,
    object_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.changes.change import Semantic
    from ematix_flow.connect.changes.decoder import ChangeDecoder

    Column: TypeAlias = Sequence[str | None] | pa.Array

Path: TypeAlias = tuple[str, ...]
"""Where a value is in a payload."""

OP: Path = ("op",)
LSN: Path = ("source", "lsn")
COMMIT: Path = ("source", "sequence")
EPOCH: Path = ("source", "epoch")
TIMES: tuple[Path, ...] = (("source", "ts_ms"), ("ts_ms",))
"""Where the time of a change is; the first that is there counts."""

LAYOUTS = 8
"""Patterns that are tried on a message: of created, updated and deleted rows, and those of a table that was changed."""

TRIES = 32
"""Messages of which a pattern is made, as long as there are not enough of them."""

WIDEST, DEEPEST = 500, 8
"""Values and levels of a message from which no pattern is made: making one takes longer than it could ever save."""

_TEXT = r'"[^"\\\x00-\x1f]*+(?:\\["\\/bfnrt][^"\\\x00-\x1f]*+)*+"'
_VALUE = rf"{_TEXT}|{UNQUOTED}"
_SPECIAL = {
    LSN: f"({DIGITS})",
    EPOCH: "([1-9][0-9]*+)",
    # PostgreSQL's locations as a text of JSON: that of the commit, and that of the change itself.
    COMMIT: r'(?:"\[(?:\\"([0-9]++)\\"|null),\\"[0-9]++\\"\]"|null)',
    **dict.fromkeys(TIMES, "(0|[1-9][0-9]{0,13}+|null)"),
}
_PAYLOAD = re.compile(rf'"payload"{SPACE}:{SPACE}')


@dataclass(frozen=True, slots=True)
class Layout:
    """The pattern of messages that are alike, and what its groups are."""

    head: str
    """The text before the payload: the schema, where messages have one."""
    pattern: re.Pattern[str]
    captured: tuple[Path, ...]
    row: str
    """Where the row is: `after` where it is written, `before` where it is deleted."""
    names: tuple[str, ...]
    """The columns of the row."""
    semantics: Mapping[str, Semantic]

    @property
    def written(self) -> bool:
        """Return whether rows are written, and not deleted."""
        return self.row == "after"

    def values(self, text: str) -> tuple[str | None, ...] | None:
        """Return the captured values as they are written, with their quotes; None where the message is another one."""
        if not text.startswith(self.head):
            return None
        match = self.pattern.fullmatch(text, len(self.head))
        return None if match is None else match.groups()


@dataclass(slots=True)
class AlikeMessages:
    """The messages of one layout: their numbers, and their values."""

    layout: Layout
    numbers: list[int] = field(default_factory=list)
    written: list[tuple[str | None, ...]] = field(default_factory=list)

    @property
    def columns(self) -> dict[Path, Column]:
        """Return the captured values by where they are."""
        return dict(zip(self.layout.captured, zip(*self.written, strict=True), strict=True))


@dataclass(frozen=True, slots=True)
class SameMessages:
    """Messages of one layout that differ in the values of their rows only, which are known."""

    layout: Layout
    first: tuple[str | None, ...]
    """The captured values of the first message."""
    fields: pa.StructArray

    @property
    def numbers(self) -> range:
        """Return the numbers of all messages."""
        return range(len(self.fields))

    @property
    def columns(self) -> dict[Path, Column]:
        """Return the captured values by where they are."""
        import pyarrow as pa

        same = zip(self.layout.captured, self.first, strict=True)
        columns: dict[Path, Column] = {
            path: pa.repeat(pa.scalar(value, pa.string()), len(self.fields)) for path, value in same
        }
        return columns | {(self.layout.row, name): self.fields.field(name) for name in self.layout.names}


def read_same(first: bytes | None, fields: pa.StructArray, decoder: ChangeDecoder) -> SameMessages | None:
    """Return messages that differ in the fields of rows only; None where they have to be looked at one by one."""
    text = decoded_text(first) or ""
    layout = _learned(text, decoder) if text else None
    values = None if layout is None else layout.values(text)
    if layout is None or values is None or not layout.written:
        return None
    return SameMessages(layout, values, fields) if set(layout.names) == set(fields.type.names) else None


def read_alike(payloads: Sequence[bytes | None], decoder: ChangeDecoder) -> tuple[list[AlikeMessages], list[int]]:
    """Return messages by their layouts, and the numbers of those that have to be read by themselves."""
    groups: list[AlikeMessages] = []
    others: list[int] = []
    tries = 0 if are_too_large(payloads) else TRIES
    for number, payload in enumerate(payloads):
        text = decoded_text(payload) or ""
        for group in groups:
            values = group.layout.values(text)
            if values is not None:
                group.numbers.append(number)
                group.written.append(values)
                break
        else:
            layout = None
            if text and tries and len(groups) < LAYOUTS:
                layout, tries = _learned(text, decoder), tries - 1
            if layout is None:
                others.append(number)
            else:
                groups.append(AlikeMessages(layout, [number], [layout.values(text) or ()]))
    return groups, others


def _learned(text: str, decoder: ChangeDecoder) -> Layout | None:
    """Return the layout of a message that no other one fits; None where it has to be read by itself."""
    document = decoder.document_of(text.encode())
    layout = None if isinstance(document, str) else _layout_of(text, document, decoder.table.keys)
    return layout if layout is not None and _is_readable(layout, decoder) else None


def _is_readable(layout: Layout, decoder: ChangeDecoder) -> bool:
    """Return whether the columns of a layout are enough for a table, so that no change of it has to be refused."""
    cdc, table = decoder.cdc, decoder.table
    if not set(table.keys) <= set(layout.names) or cdc.soft_column in table.keys:
        return False
    lacks = table.names.difference(layout.names, (cdc.soft_column,))
    is_whole = not lacks or cdc.missing_columns == "null" or not decoder.whole
    is_known = cdc.schema_evolution != "fail" or table.names.issuperset(layout.names)
    return not layout.written or (is_whole and is_known)


def _layout_of(text: str, document: Mapping[str, Any], keys: Sequence[str]) -> Layout | None:
    """Return the layout of a message; None where it has to be read by itself."""
    payload, semantics = unwrapped(document)
    if payload is None or is_flattened(payload) or not isinstance(payload.get("source"), dict):
        return None
    row = "after" if isinstance(payload.get("after"), dict) else "before"
    if not isinstance(payload.get(row), dict):
        return None
    builder = _Builder(row, tuple(keys))
    inside = builder.pattern(payload, ())
    if not builder.plain or OP not in builder.captured:
        return None
    is_wrapped = payload is not document
    pattern = re.compile(f"{inside}{SPACE}" + (rf"\}}{SPACE}" if is_wrapped else ""))
    starts = [match.end() for match in _PAYLOAD.finditer(text)] if is_wrapped else [0]
    # The remaining text is a payload only where that begins, because it is the last that the message has.
    begin = next((start for start in starts if pattern.fullmatch(text, start)), None)
    if begin is None:
        return None
    return Layout(text[:begin], pattern, tuple(builder.captured), row, tuple(payload[row]), semantics)


@dataclass(slots=True)
class _Builder:
    """Makes a pattern of a payload."""

    row: str
    keys: tuple[str, ...]
    captured: list[Path] = field(default_factory=list)
    values: int = 0
    plain: bool = True
    """Whether all values can be told by a pattern."""

    def pattern(self, value: Any, path: Path) -> str:
        """Return the pattern of a value."""
        self.values += 1
        is_nested = isinstance(value, dict) and path[:1] == (self.row,) and len(path) > 1
        if isinstance(value, list) or is_nested or len(path) > DEEPEST or self.values > WIDEST:
            self.plain = False
        if not self.plain:
            return ""
        if not isinstance(value, dict):
            return self._leaf(value, path)
        self.plain &= are_plain(value)
        return object_pattern({key: self.pattern(one, (*path, key)) for key, one in value.items()})

    def _leaf(self, value: Any, path: Path) -> str:
        if path == OP:
            self.captured.append(path)
            return '"([cru])"' if self.row == "after" else '"(d)"'
        if path == LSN and value is None:
            return "null"
        if path in _SPECIAL:
            self.captured.append(path)
            return _SPECIAL[path]
        if not self._is_captured(path):
            return f"(?:{_VALUE})"
        self.captured.append(path)
        return f"({_VALUE})"

    def _is_captured(self, path: Path) -> bool:
        match path:
            case (block, _) if block == self.row:
                return True
            case ("before", name):
                return name in self.keys  # a row whose key was another one before is read by itself
            case ("source", name):
                return name in LOCATIONS
            case _:
                return False
