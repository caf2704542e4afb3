"""The functions of `ematix_flow._core` about dead letters and positions, over a topic and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow import _core
from ematix_flow.errors import UnknownNameError
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


def test_dead_letters_are_counted_shown_replayed_parked_and_purged(topic: Topic, warehouse: Path) -> None:
    rows_in(warehouse, "CREATE TABLE main.days (id BIGINT, day DATE NOT NULL)")
    stream = topic.stream(duckdb_at(warehouse), target_table=("main", "days"), transform_on_error="dlq")
    topic.write([{"id": 1, "day": "2026-01-01"}, {"id": 2, "day": "soon"}, b"{no", {"id": 3, "day": "x"}], partition=0)
    drain(stream)
    assert _core.dlq_stats(stream) == {
        "pipeline": stream.name, "depth": {"pending": 3, "parked": 0},
        "by_stage": {"transform": 1, "write": 2}, "replayed": 0,
    }  # fmt: skip
    records = {record["offset"]: record for record in _core.dlq_records(stream)}
    (unread,) = (record for record in records.values() if record["stage"] == "transform")
    assert (unread["payload"], unread["attempt"], unread["status"]) == (b"{no", 1, "pending")
    assert _core.dlq_record_by_id(stream, unread["id"]) == unread
    assert _core.dlq_park(stream, {"kind": "ids", "ids": [unread["id"]]}) == {"parked": 1}
    rows_in(warehouse, "ALTER TABLE main.days ALTER day TYPE TEXT")
    done = _core.dlq_replay(stream, {"kind": "first_n", "n": 1}, max_attempts=5)
    assert (done["taken"], done["succeeded"], done["redeadlettered"], done["parked"]) == (1, 1, 0, 0)
    assert _core.dlq_replay(stream)["succeeded"] == 1
    assert _core.dlq_purge(stream, {"kind": "all"}) == {"purged": 3}
    assert _core.dlq_records(stream, status=None) == []
    assert rows_in(warehouse, "SELECT id FROM main.days ORDER BY id") == [(1,), (2,), (3,)]


def test_a_stream_is_rewound_to_an_instant_an_offset_or_a_word(topic: Topic, warehouse: Path) -> None:
    at = 1_700_000_000_000
    for number in range(4):
        topic.write([{"id": number}], partition=0, timestamp=at + number)
    stream = topic.stream(duckdb_at(warehouse), target_table=("main", "ids"), create_table=True)
    drain(stream)
    moved = _core.stream_rewind(stream, {"kind": "timestamp", "ms": at + 3})
    assert (moved["pipeline"], moved["state_cleared"]) == (stream.name, False)
    assert drain(stream)["total_rows"] == 1
    _core.stream_rewind(stream, {"kind": "offset", "bytes": list(b'{"0": 2}')})
    assert drain(stream)["total_rows"] == 2
    _core.stream_rewind(stream, "earliest")
    assert drain(stream)["total_rows"] == 4
    with pytest.raises(ValueError, match="no place to rewind to"):
        _core.stream_rewind(stream, {"kind": "snapshot"})


def test_a_name_that_nobody_declared_is_told() -> None:
    with pytest.raises(UnknownNameError):
        _core.dlq_stats("nobody")
