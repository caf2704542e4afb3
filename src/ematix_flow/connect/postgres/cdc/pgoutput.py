"""Decodes messages of `pgoutput`, version 1 of its protocol; docs/decisions/change-log-readers.md says why no library does.

The layout is in the chapter "Logical Replication Message Formats" of the manual of PostgreSQL.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

from ematix_flow.errors import RunError

EPOCH_US = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from which PostgreSQL counts."""

FULL_IDENTITY = "f"
"""The replica identity of tables whose changes have all old values."""

INDEX_IDENTITY = "i"
"""That of tables whose changes have the old values of the columns of an index."""

FULL_ROW, KEY_ONLY = "O", "K"
"""What the old row of a change has: all columns, or those of the replica identity."""


class Unchanged:
    """The value of a large column that a change did not touch, and that is not in the log."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()

Value: TypeAlias = str | Unchanged | None
Row: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of a transaction, which is in the log as a whole and in the order of commits."""

    commit_lsn: int
    """Where the record of its commit begins."""
    at_us: int
    """When it was committed, in microseconds since 1970."""
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction."""

    commit_lsn: int
    end_lsn: int
    """Where the record of its commit ends."""
    at_us: int
    """When it was committed, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a table, as it was when a row was changed."""

    name: str
    type_oid: int
    in_identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, as it was when the changes after this message were made."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that was inserted, updated or deleted."""

    operation: str
    """I, U or D."""
    relation: int
    old: Row | None = None
    old_kind: str = ""
    """FULL_ROW, KEY_ONLY, or nothing where the old row is not in the log."""
    new: Row | None = None


@dataclass(frozen=True, slots=True)
class Truncated:
    """Tables that were emptied."""

    relations: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | RowChange | Truncated


def decode(data: bytes) -> Message | None:
    """Return a message; None for one that changes no row."""
    try:
        return _decode(_Bytes(data))
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        message = f"a message of pgoutput cannot be read: {error}; it begins with {data[:16].hex()}"
        raise RunError(message) from None


def parse_lsn(text: str) -> int:
    """Return the number of a position in the log that is written like 16/B374D848."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def format_lsn(lsn: int) -> str:
    """Return a position in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


class _Bytes:
    """Reads a message from its beginning to its end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(f">{layout}", self._data, self._at)
        self._at += struct.calcsize(f">{layout}")
        return values

    def char(self) -> str:
        self._at += 1
        return chr(self._data[self._at - 1])

    def peek(self) -> str:
        return chr(self._data[self._at])

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        value = self._data[self._at : end].decode()
        self._at = end + 1
        return value

    def sized(self) -> str:
        (length,) = self.unpack("I")
        end = self._at + length
        if end > len(self._data):
            raise ValueError("a value is longer than its message")
        value = self._data[self._at : end].decode()
        self._at = end
        return value


def _decode(data: _Bytes) -> Message | None:
    match data.char():
        case "B":
            commit_lsn, at, xid = data.unpack("QqI")
            return Begin(commit_lsn, at + EPOCH_US, xid)
        case "C":
            _, commit_lsn, end_lsn, at = data.unpack("BQQq")
            return Commit(commit_lsn, end_lsn, at + EPOCH_US)
        case "R":
            return _relation(data)
        case "I":
            (oid,) = data.unpack("I")
            data.char()
            return RowChange("I", oid, new=_row(data))
        case "U":
            return _update(data)
        case "D":
            (oid,) = data.unpack("I")
            kind = data.char()
            return RowChange("D", oid, old=_row(data), old_kind=kind)
        case "T":
            count, _ = data.unpack("IB")
            return Truncated(data.unpack(f"{count}I"))
        case "Y" | "O" | "M":
            return None
        case other:
            raise ValueError(f"{other!r} is no kind of message")


def _relation(data: _Bytes) -> Relation:
    (oid,) = data.unpack("I")
    schema, name, identity = data.text() or "pg_catalog", data.text(), data.char()
    (count,) = data.unpack("H")
    columns = []
    for _ in range(count):
        (flags,) = data.unpack("B")
        column = data.text()
        type_oid, _ = data.unpack("Ii")
        columns.append(RelationColumn(column, type_oid, bool(flags & 1)))
    return Relation(oid, schema, name, identity, tuple(columns))


def _update(data: _Bytes) -> RowChange:
    (oid,) = data.unpack("I")
    old, kind = None, ""
    if data.peek() in (FULL_ROW, KEY_ONLY):
        kind = data.char()
        old = _row(data)
    data.char()
    return RowChange("U", oid, old=old, old_kind=kind, new=_row(data))


def _row(data: _Bytes) -> Row:
    (count,) = data.unpack("H")
    values: list[Value] = []
    for _ in range(count):
        match data.char():
            case "t":
                values.append(data.sized())
            case "n":
                values.append(None)
            case "u":
                values.append(UNCHANGED)
            case other:
                raise ValueError(f"{other!r} is no kind of value")
    return tuple(values)
