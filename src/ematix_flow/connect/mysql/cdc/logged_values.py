"""Values of columns that the library hands over as bytes.

Texts are in the charset of their column. What Python does not know of charsets the server says, as it does for a query.
"""

from __future__ import annotations

import codecs
import socket
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from pymysqlreplication.constants import FIELD_TYPE

from ematix_flow.connect.mysql.cdc.binlog import readable
from ematix_flow.connect.mysql.cdc.columns import BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.change_log.tables import TableId
    from ematix_flow.connect.mysql.cdc.binlog import LogReader
    from ematix_flow.connect.mysql.session import MySQLSession

_CODECS = {
    "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le",
    "utf32": "utf-32-be", "big5": "big5", "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "euckr": "euc_kr",
    "ujis": "euc_jp", "sjis": "shift_jis", "cp932": "cp932",
}  # fmt: skip
"""Charsets with more than one byte for a character; the others are tables that the server has."""

_TEXTS = (FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB)
_MEMBERS = (FIELD_TYPE.ENUM, FIELD_TYPE.SET)

_OWN_TYPES: dict[str, Callable[[bytes], str]] = {
    "uuid": lambda value: str(uuid.UUID(bytes=value)),
    "inet6": lambda value: socket.inet_ntop(socket.AF_INET6, value),
    "inet4": socket.inet_ntoa,
}
"""Types of MariaDB that the log has as BINARY of a length, and a query as text."""
_OWN_LENGTHS = (4, 16)

_MOST_TEXTS, _LONGEST_TEXT = 20_000, 256
"""How many texts are kept that the server has converted, and how many bytes they have at most."""

_COLUMNS = """
SELECT column_name, data_type, character_set_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ?
"""


@dataclass(frozen=True, slots=True)
class _Charsets:
    """What a server has said of its charsets, which do not change."""

    characters: dict[str, str | None] = field(default_factory=dict)
    """The 256 characters of a charset; None of one with more."""
    texts: dict[tuple[str, bytes], str] = field(default_factory=dict)


_known: dict[str, _Charsets] = {}
"""By the URL of the server: a process reads many ranges of its log."""


class ColumnReader:
    """Reads values that the library left as they are; it queries the server only where it has to."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._session: MySQLSession | None = None
        self._catalogs: dict[TableId, dict[str, tuple[str, str | None]]] = {}
        self._charsets = _known.setdefault(reader.connection.url, _Charsets())

    def close(self) -> None:
        """Let go of the connection."""
        if self._session is not None:
            self._session.close()

    def value(self, table: TableId, column: Any, value: Any) -> Any:
        """Return a value that is not NULL."""
        kind = column.logged_type
        if kind == FIELD_TYPE.TIME2:
            return clock(int(value, 2), int(column.fsp))
        if kind in _MEMBERS:
            charset = self._charset(table, column)
            if isinstance(value, set):
                return {self.text(_raw(member), charset) for member in value}
            return self.text(_raw(value), charset)
        if kind not in _TEXTS:
            return value
        data = value.encode() if isinstance(value, str) else value  # the library takes ASCII for text
        charset = self._charset(table, column)
        return self._bytes(table, column, data) if charset == BYTES else self.text(data, charset)

    def members(self, table: TableId, column: Any) -> tuple[str, ...]:
        """Return the members of a SET."""
        if not column.set_values:
            return ()
        if not hasattr(column, "members"):
            charset = self._charset(table, column)
            column.members = tuple(self.text(_raw(member), charset) for member in column.set_values)
        return cast("tuple[str, ...]", column.members)

    def text(self, data: bytes, charset: str) -> str:
        """Return a text that is in a charset."""
        if charset in _CODECS:
            try:
                return data.decode(_CODECS[charset])
            except UnicodeDecodeError:
                return self._converted(data, charset)
        characters = self._table(charset)
        if characters is None:
            return self._converted(data, charset)
        return codecs.charmap_decode(data, "strict", characters)[0]

    def _table(self, charset: str) -> str | None:
        known = self._charsets.characters
        if charset not in known:
            single = self._query(
                "SELECT maxlen = 1 FROM information_schema.character_sets WHERE character_set_name = ?", charset
            )
            every = self._converted(bytes(range(256)), charset) if single and single[0][0] else ""
            known[charset] = every if len(every) == 256 else None  # noqa: PLR2004 - one for each byte
        return known[charset]

    def _converted(self, data: bytes, charset: str) -> str:
        """Return a text as the server converts it, which takes a round trip."""
        known = self._charsets.texts
        text = known.get((charset, data))
        if text is None:
            text = str(self._query(f"SELECT CONVERT(_{charset} X'{data.hex()}' USING utf8mb4)")[0][0])
            if len(known) >= _MOST_TEXTS:
                known.clear()
            if len(data) <= _LONGEST_TEXT:
                known[charset, data] = text
        return text

    def _bytes(self, table: TableId, column: Any, data: bytes) -> bytes | str:
        width = int(getattr(column, "max_length", 0) or 0)
        if not column.own_types or column.logged_type != FIELD_TYPE.STRING or width not in _OWN_LENGTHS:
            return data
        kind, _ = self._catalog(table).get(column.name, ("", None))
        return _OWN_TYPES[kind](data.ljust(width, b"\0")) if kind in _OWN_TYPES else data

    def _charset(self, table: TableId, column: Any) -> str:
        """Return the charset of a column, as the server has it now where the log has none that is known."""
        if column.charset is None:
            column.charset = self._catalog(table).get(column.name, ("", None))[1] or "utf8mb4"
        return str(column.charset)

    def _catalog(self, table: TableId) -> dict[str, tuple[str, str | None]]:
        if table not in self._catalogs:
            rows = self._query(_COLUMNS, table.schema, table.name)
            self._catalogs[table] = {str(name): (str(kind).lower(), charset) for name, kind, charset in rows}
        return self._catalogs[table]

    def _query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with readable(self._reader):
            if self._session is None:
                self._session = self._reader.session()
            return self._session.query(sql, parameters)


def clock(packed: int, digits: int) -> timedelta:
    """Return a TIME as the log has it: hours, minutes, seconds and a fraction in one number, around its middle."""
    size = 8 * ((digits + 1) // 2)
    number = packed - (1 << 23 + size)
    whole, fraction = divmod(abs(number), 1 << size)
    time = timedelta(
        hours=whole >> 12 & 0x3FF,
        minutes=whole >> 6 & 0x3F,
        seconds=whole & 0x3F,
        microseconds=fraction * 10 ** (6 - size // 4),
    )
    return -time if number < 0 else time


def _raw(member: str) -> bytes:
    return member.encode(errors="surrogateescape")
