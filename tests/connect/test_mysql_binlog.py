"""What events of the binary log come to that no server writes on demand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pymysqlreplication.event import NotImplementedEvent, QueryEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import PartialUpdateRowsEvent, WriteRowsEvent

from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.mysql.cdc.binlog import _Log, next_position
from ematix_flow.connect.mysql.cdc.entries import LoggedRows, LogPosition, TransactionEnd
from ematix_flow.errors import StreamLostError

ITEMS = TableId("shop", "items")


def event(kind: type, *, timestamp: int = 1, **more: Any) -> Any:
    fields = {"schema": "shop", "table": "items", "columns": [], "packet": SimpleNamespace(event_size=10), **more}
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


def test_places_grow_where_one_transaction_is_larger_than_32_bits_can_say() -> None:
    place, places = LogPosition("bin.000001", 900_000_000), []
    for low in (4_200_000_000, 100_000_000, 100_000_000, 4_000_000_000, 50, 100):
        place = next_position(place, "bin.000001", low)
        places.append(place.pos)
    assert places == [
        4_200_000_000, 4_394_967_296, 4_394_967_296, 8_294_967_296, 8_589_934_642, 8_589_934_692,
    ]  # fmt: skip
    assert next_position(place, "bin.000002", 4) == LogPosition("bin.000002", 4)
    assert next_position(LogPosition("bin.000002", 500), "bin.000002", 400).pos == 400
