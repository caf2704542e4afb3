"""What events of the binary log come to that no server writes on demand."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock, patch

import pytest
from pymysql.constants.CR import CR_SERVER_LOST
from pymysql.err import OperationalError
from pymysql.protocol import MysqlPacket
from pymysqlreplication.constants.BINLOG import INTVAR_EVENT, ROTATE_EVENT, XID_EVENT
from pymysqlreplication.event import NotImplementedEvent, QueryEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import PartialUpdateRowsEvent, WriteRowsEvent

from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.mysql.cdc.binlog import LogReader, _Log, read_log
from ematix_flow.connect.mysql.cdc.entries import LoggedRows, LogPosition, TransactionEnd
from ematix_flow.connect.mysql.cdc.log_stream import ROUND, next_position
from ematix_flow.errors import StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator

ITEMS = TableId("shop", "items")


def event(kind: type, *, timestamp: int = 1, **more: Any) -> Any:
    fields = {
        "schema": "shop",
        "table": "items",
        "dbms": "mariadb",
        "columns": [],
        "packet": SimpleNamespace(event_size=10),
        **more,
    }
    return MagicMock(spec=kind, timestamp=timestamp, **fields)


def entries(log: _Log, one: Any, pos: int, file: str = "bin.000001") -> list[Any]:
    return list(log.entries(one, LogPosition(file, pos)))


def opened() -> _Log:
    log = _Log(frozenset({ITEMS}), LogPosition("bin.000001", 100))
    assert entries(log, event(QueryEvent, query="BEGIN"), 110) == []
    assert entries(log, event(WriteRowsEvent), 120) == []
    return log


def test_a_connection_that_is_opened_anew_does_not_divide_a_transaction() -> None:
    log = opened()
    assert entries(log, event(RotateEvent, timestamp=0), 120) == []
    assert entries(log, event(WriteRowsEvent), 130) == []
    ended = entries(log, event(XidEvent), 140)
    assert [type(one) for one in ended] == [LoggedRows, LoggedRows, TransactionEnd]


def test_what_has_no_end_in_its_file_was_not_committed() -> None:
    assert entries(opened(), event(RotateEvent, timestamp=0), 4, "bin.000002") == [
        TransactionEnd(LogPosition("bin.000002", 4))
    ]
    log = opened()
    assert len(entries(log, event(XidEvent), 130)) == 2
    assert entries(log, event(RotateEvent), 4, "bin.000002") == [TransactionEnd(LogPosition("bin.000002", 4))]
    assert entries(log, event(RotateEvent, timestamp=0), 4, "bin.000002") == []


@pytest.mark.parametrize("number", [40, 165, 166, 171])
def test_changes_that_are_compressed_are_not_passed_over(number: int) -> None:
    with pytest.raises(StreamLostError, match=r"bin.000001 has at 110 compressed changes") as lost:
        entries(opened(), event(NotImplementedEvent, event_type=number), 120)
    assert "log_bin_compress" in str(lost.value.hint)
    assert entries(opened(), event(NotImplementedEvent, event_type=160), 120) == []


def test_changes_of_parts_of_documents_are_not_passed_over() -> None:
    with pytest.raises(StreamLostError, match="parts of documents"):
        entries(opened(), event(PartialUpdateRowsEvent), 120)
    assert entries(opened(), event(PartialUpdateRowsEvent, table="other"), 120) == []


def packet(kind: int, low: int, body: bytes = b"", timestamp: int = 1) -> bytes:
    return b"\0" + struct.pack("<IBIIIH", timestamp, kind, 1, 19 + len(body), low, 0) + body


def file(name: str, pos: int = 4, timestamp: int = 0) -> bytes:
    return packet(ROTATE_EVENT, 0, struct.pack("<Q", pos) + name.encode(), timestamp)


def left_out(low: int) -> bytes:
    return packet(INTVAR_EVENT, low)


def commit(low: int) -> bytes:
    return packet(XID_EVENT, low, bytes(8))


class Wire:
    """A connection to a server whose log has some packets; None is a connection that is lost."""

    charset = "utf8"

    def __init__(self, packets: Iterator[bytes | None]) -> None:
        self._packets = packets

    def cursor(self) -> Any:
        return MagicMock(fetchone=lambda: None)

    def get_server_info(self) -> str:
        return "MariaDB"

    def close(self) -> None:
        """Close nothing."""

    def _write_bytes(self, data: bytes) -> None:
        """Ask for nothing."""

    def _read_packet(self) -> MysqlPacket:
        data = next(self._packets)
        if data is None:
            raise OperationalError(CR_SERVER_LOST, "lost")
        return MysqlPacket(data, "utf8")


def ends(begin: int, *packets: bytes | None) -> list[tuple[str, int]]:
    """Return the ends of the transactions in a log that is read from a position on."""
    wire = Wire(iter((*packets, b"\xfe\0\0\0\0")))
    reader: Any = LogReader(SimpleNamespace(name="my", server_id=1))  # type: ignore[arg-type]
    with patch.object(LogReader, "wire", lambda *_, **__: wire):
        read = list(read_log(reader, TransactionEnd(LogPosition("bin.000001", begin)), [ITEMS]))
    return [(one.position.file, one.position.pos) for one in read if isinstance(one, TransactionEnd)]


def test_what_is_left_out_counts_where_one_transaction_is_larger_than_32_bits_can_say() -> None:
    bulk = [left_out(low) for low in (2_000_000_000, 4_200_000_000, 1_000_000_000, 3_000_000_000, 4_000_000_000)]
    first = file("bin.000001", 900_000_000)
    assert ends(900_000_000, first, *bulk, commit(4_100_000_000)) == [("bin.000001", ROUND + 4_100_000_000)]
    more = [left_out(low) for low in (50, 2_000_000_000, 4_000_000_000)]
    second = [file("bin.000002", timestamp=1), file("bin.000002"), left_out(300), commit(400)]
    read = ends(900_000_000, first, *bulk, commit(4_100_000_000), *more, commit(100), *second)
    assert [pos for _, pos in read if pos > 4] == [ROUND + 4_100_000_000, 3 * ROUND + 100, 400]
    behind = ends(
        ROUND + 4_100_000_000, file("bin.000001"), left_out(900_000_000), *bulk, commit(4_100_000_000), commit(9)
    )
    assert behind == [("bin.000001", 2 * ROUND + 9)]


def test_a_connection_that_is_lost_where_positions_are_no_longer_told_is_not_opened_anew() -> None:
    bulk = [left_out(low) for low in (2_000_000_000, 4_000_000_000, 50)]
    first = file("bin.000001", 900_000_000)
    assert ends(900_000_000, first, *bulk[:2], None, file("bin.000001", 4_000_000_000), commit(4_100_000_000))
    with pytest.raises(TransientError, match=r"'my' was lost behind bin\.000001 4294967346"):
        ends(900_000_000, first, *bulk, None, file("bin.000001", 50), commit(100))


def test_places_grow() -> None:
    place, places = LogPosition("bin.000001", 900_000_000), []
    for low in (4_200_000_000, 100_000_000, 100_000_000, 4_000_000_000, 50, 100):
        place = next_position(place, low)
        places.append(place.pos)
    assert places == [
        4_200_000_000, 4_394_967_296, 4_394_967_296, 8_294_967_296, 8_589_934_642, 8_589_934_692,
    ]  # fmt: skip
    assert next_position(LogPosition("bin.000002", 500), 400).pos == 400
