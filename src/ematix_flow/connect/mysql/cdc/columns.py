"""Columns of the binary log as the library is given them: it hands over the bytes of texts and times, of which it cannot read all."""

from __future__ import annotations

from typing import Any

from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import TableMapEvent

BYTES = "binary"
"""The charset of columns that have no text; of all columns as the library is told, so that it leaves their bytes alone."""


def leave_bytes(columns: list[Any], *, own_types: bool) -> None:
    """Let the library hand over texts and times of columns as they are in the log, before it reads a row.

    A server with types of its own has some of them as bytes.
    """
    for column in columns:
        if hasattr(column, "logged_type"):
            continue
        column.logged_type, column.charset = column.type, _charset(column)
        column.character_set_name, column.own_types = BYTES, own_types
        if column.type == FIELD_TYPE.TIME2:
            column.type, column.bytes = FIELD_TYPE.BIT, 3 + (column.fsp + 1) // 2
            column.bits = 8 * column.bytes


def _charset(column: Any) -> str | None:
    """Return the charset that the log says; None where it has one that the library does not know."""
    if column.collation_name is None:
        return None
    return str(column.collation_name).partition("_")[0]


def _read_sized(packet: Any) -> bytes:
    return bytes(packet.read(packet.read_length_coded_binary()))


def _read_members(event: Any, length: int) -> list[list[str]]:
    """Return the members of ENUM and SET columns with all their bytes."""
    packet = event.packet
    end, columns = packet.read_bytes + length, []
    while packet.read_bytes < end:
        count = packet.read_length_coded_binary()
        columns.append([_read_sized(packet).decode(errors="surrogateescape") for _ in range(count)])
    return columns


# The library takes names of more than 127 bytes for longer ones, and has no members that are not UTF-8.
BinLogPacketWrapper.read_variable_length_string = _read_sized
TableMapEvent._read_type_values = _read_members  # noqa: SLF001
