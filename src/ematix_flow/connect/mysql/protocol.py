"""Implements MySQL's text protocol in bulk, on top of a PyMySQL connection: rows come in as columns and go out as text.

PyMySQL makes one Python object per value, which is most of the time of a load. Here the packets of many rows are cut
with numpy and handed to Arrow as they are. Nothing else in the package touches PyMySQL's inner parts.
"""
# ruff: noqa: SLF001 - the bulk paths have no public API in PyMySQL; constraints.txt pins the version they work with

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pymysql
from pymysql.connections import Connection
from pymysql.constants import COMMAND, CR
from pymysql.protocol import EOFPacketWrapper, FieldDescriptorPacket, MysqlPacket, OKPacketWrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Indexes = npt.NDArray[np.int64]
    _Connection = Connection[Any]
else:
    _Connection = Connection

CONNECT_SECONDS = 10
PEER_OPTIONS = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 60_000}
"""A host that is silent for a minute counts as gone."""

CHUNK_ROWS = 65_536
CHUNK_BYTES = 8 << 20
_RECEIVE = 1 << 20
_SEND = 1 << 18
_LONGEST = 0xFFFFFF
"""A packet of this length is continued in the next one."""

_NULL, _TWO, _THREE, _EIGHT, _ERROR = 0xFB, 0xFC, 0xFD, 0xFE, 0xFF
_EOF_BELOW = 9
"""A shorter packet that begins like a length of eight bytes is the end of the rows."""
_HEADER = struct.Struct("<I")


_TLS: dict[Any, Any] = {}


class Wire(_Connection):
    """A connection whose handshake has a deadline of its own, and that moves rows in bulk."""

    def _create_ssl_ctx(self, options: Any) -> Any:
        """Return the settings of TLS, made once per process: reading the system's certificates takes tens of milliseconds."""
        known = tuple(sorted(options.items())) if isinstance(options, dict) else options
        if known not in _TLS:
            _TLS[known] = cast("Any", super())._create_ssl_ctx(options)
        return _TLS[known]

    def open_socket(self) -> None:
        """Connect and log in within the connect timeout, whatever the peer does."""
        inner = cast("Any", self)
        inner._read_timeout = inner._write_timeout = CONNECT_SECONDS
        if self.unix_socket:
            self.connect()
            return
        try:
            peer = socket.create_connection((self.host, self.port), CONNECT_SECONDS)
        except OSError as error:
            message = f"cannot reach the server {self.host}:{self.port} ({error})"
            raise pymysql.OperationalError(CR.CR_CONN_HOST_ERROR, message) from None
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in PEER_OPTIONS.items():
            if hasattr(socket, name):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.connect(peer)

    def set_timeout(self, seconds: float) -> None:
        """Set how long an answer may take from now on."""
        inner = cast("Any", self)
        inner._read_timeout = inner._write_timeout = seconds

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; for small results."""
        self.query(sql)
        return list(cast("Any", self)._result.rows or ())

    def fields(self, sql: str) -> tuple[Field, ...]:
        """Return the columns of a query: the server prepares it, which runs nothing."""
        inner = cast("Any", self)
        inner._execute_command(COMMAND.COM_STMT_PREPARE, sql)
        response = inner._read_packet()
        response.advance(1)
        number, columns, parameters = response.read_uint32(), response.read_uint16(), response.read_uint16()
        for _ in range(parameters + bool(parameters)):
            inner._read_packet()
        descriptors = [inner._read_packet(FieldDescriptorPacket) for _ in range(columns)]
        if columns:
            inner._read_packet()
        # No answer comes to this one.
        inner._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", number))
        return _fields(descriptors)

    def break_off(self) -> None:
        """Close without a word; the server rolls back what was open."""
        cast("Any", self)._force_close()

    def start_load(self, statement: str) -> None:
        """Begin a LOAD DATA LOCAL statement; what `send` is given until `end_load` is its file.

        The name that the server requests is ignored: no file of this machine is ever sent.
        """
        inner = cast("Any", self)
        inner._execute_command(COMMAND.COM_QUERY, statement)
        if not inner._read_packet().is_load_local_packet():
            raise pymysql.OperationalError(CR.CR_COMMANDS_OUT_OF_SYNC, "the server did not request the rows")

    def send(self, text: memoryview) -> None:
        """Send a part of the file."""
        for start in range(0, len(text), _SEND):
            cast("Any", self).write_packet(text[start : start + _SEND])

    def end_load(self) -> tuple[int, int]:
        """End the file and return the rows that were stored and the number of warnings."""
        inner = cast("Any", self)
        inner.write_packet(b"")
        done = OKPacketWrapper(inner._read_packet())
        inner.server_status = done.server_status
        return int(done.affected_rows), int(done.warning_count)


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a result as the server describes it."""

    name: str
    code: int
    """Protocol type."""
    length: int
    scale: int
    unsigned: bool
    binary: bool
    """True when the bytes are no text of a character set."""


@dataclass(frozen=True, slots=True)
class ColumnData:
    """The values of one column in a chunk: offsets into `data`, with nulls marked."""

    nulls: npt.NDArray[np.bool_] | None
    offsets: npt.NDArray[np.int32]
    data: Bytes


def _fields(described: Sequence[Any]) -> tuple[Field, ...]:
    """Return the columns out of PyMySQL's descriptions."""
    binary_charset, unsigned_flag = 63, 32
    return tuple(
        Field(f.name, f.type_code, f.length, f.scale, bool(f.flags & unsigned_flag), f.charsetnr == binary_charset)
        for f in described
    )


class RowStream:
    """The rows of one query, a chunk of columns at a time; never more than a chunk is in memory."""

    def __init__(self, wire: Wire, sql: str) -> None:
        wire.query(sql, unbuffered=True)
        self._inner = cast("Any", wire)
        self._result = self._inner._result
        # PyMySQL would wait for the rest of the rows when its result is dropped.
        self._result.unbuffered_active = False
        self.fields = _fields(self._result.fields)
        self.warnings = 0
        self._done = False

    def chunks(self) -> Iterator[tuple[list[ColumnData], int]]:
        """Return the columns and the number of rows of each chunk."""
        starts: list[int] = []
        held, base = bytearray(), 0
        while not self._done:
            base = self._cut(held, starts, base)
            long = not self._done and _is_long(held, base)
            if starts and (self._done or long or len(starts) >= CHUNK_ROWS or base >= CHUNK_BYTES):
                yield _columns(held, starts, len(self.fields)), len(starts)
                del held[:base]
                starts, base = [], 0
            if long:
                row, held = self._long_row(held)
                yield _columns(row, [0], len(self.fields)), 1
            elif not self._done:
                held += self._receive()

    def _cut(self, held: bytearray, starts: list[int], base: int) -> int:
        """Find the rows that are complete and return the end of the last one."""
        limit, add_start, header = len(held), starts.append, _HEADER.unpack_from
        while base + 4 <= limit:
            size = header(held, base)[0] & _LONGEST
            if base + 4 + size > limit or size == _LONGEST:
                break
            if size < _EOF_BELOW and held[base + 4] == _EIGHT:
                self._finish(held[base + 4 : base + 4 + size])
                return base
            add_start(base + 4)
            base += size + 4
        if starts and held[starts[-1]] == _ERROR:
            # Nothing follows an error, so that inspecting the last packet is enough.
            self._finish(held[starts[-1] : base])
        return base

    def _finish(self, payload: bytearray) -> None:
        packet: Any = MysqlPacket(bytes(payload), "utf8")
        packet.check_error()
        self.warnings = EOFPacketWrapper(packet).warning_count
        self._done = True

    def _long_row(self, held: bytearray) -> tuple[bytearray, bytearray]:
        """Put together a row of more than one packet; return it and what follows it."""
        row, size = bytearray(), _LONGEST
        while size == _LONGEST:
            while len(held) < _HEADER.size or len(held) < 4 + (size := int.from_bytes(held[:3], "little")):
                held += self._receive()
            row += held[4 : 4 + size]
            del held[: 4 + size]
        return row, held

    def _receive(self) -> bytes:
        try:
            received = self._inner._rfile.read1(_RECEIVE)
        except OSError as error:
            self._inner._force_close()
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, f"lost connection while reading rows ({error})") from None
        if not received:
            self._inner._force_close()
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, "lost connection while reading rows")
        return cast("bytes", received)


def _is_long(held: bytearray, base: int) -> bool:
    return held[base : base + 3] == b"\xff\xff\xff"


def _columns(held: bytearray, starts: list[int], count: int) -> list[ColumnData]:
    """Return every column of the rows that begin at `starts`."""
    wire: Bytes = np.frombuffer(bytes(held), np.uint8)
    at: Indexes = np.array(starts, np.int64)
    columns = []
    for _ in range(count):
        begin, length, nulls = _lengths(wire, at)
        at = begin + length
        offsets = np.zeros(len(length) + 1, np.int64)
        np.cumsum(length, out=offsets[1:])
        indexes = np.repeat(begin - offsets[:-1], length)
        indexes += np.arange(offsets[-1])
        columns.append(ColumnData(nulls, offsets.astype(np.int32), wire[indexes]))
    return columns


def _lengths(wire: Bytes, at: Indexes) -> tuple[Indexes, Indexes, npt.NDArray[np.bool_] | None]:
    """Read the length before each value; return where the values begin, how long they are and which are NULL."""
    first = wire[at]
    length = first.astype(np.int64)
    if not (first >= _NULL).any():
        return at + 1, length, None
    begin = at + 1
    nulls = first == _NULL
    length[nulls] = 0
    for code, width in ((_TWO, 2), (_THREE, 3), (_EIGHT, 8)):
        rows = np.flatnonzero(first == code)
        if len(rows):
            indexes = at[rows] + 1
            length[rows] = sum(wire[indexes + i].astype(np.int64) << (8 * i) for i in range(width))
            begin[rows] += width
    return begin, length, nulls if nulls.any() else None
