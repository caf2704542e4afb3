"""Several sources as one: positions of each, fair shares, and the order within each line."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.combined_source import LINE, CombinedSource, source_in
from ematix_flow.connect.base.stream_source import (
    EARLIEST,
    LATEST,
    MESSAGE_OFFSET,
    VALUE,
    MessagePartition,
    StreamSource,
    from_text,
)
from ematix_flow.errors import RunError, StreamLostError, UnsupportedError
from ematix_flow.run.read.infer_messages import json_payload, typed_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.base.stream_source import Position

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIME = SourceColumn("_event_ts", "timestamp_tz")


class Numbers(StreamSource):
    """Messages of one line, each with the second at which it came; two are read together."""

    kind: ClassVar[str] = "numbers"
    columns: ClassVar[tuple[SourceColumn, ...]] = (TIME, SourceColumn("_key", "text"), SourceColumn("_offset", "text"))

    def __init__(self, query: str, seconds: Sequence[int], name: str = "memory") -> None:
        super().__init__(name, query)
        self.seconds = list(seconds)
        self.begun = self.closed = False
        self.committed: list[Any] = []

    def begin(self) -> None:
        self.begun = True

    def start(self, where: str) -> Position:
        if where.startswith("{"):
            return {"next": int(from_text(where)["next"])}
        return {"next": {EARLIEST: 0, LATEST: len(self.seconds)}[where]}

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        if position["next"] > len(self.seconds):
            raise StreamLostError("gone")
        last = len(self.seconds) if end_offset is None else min(len(self.seconds), end_offset["next"])
        return {"next": max(position["next"], min(last, position["next"] + most))}

    def plan_partitions(self, begin: Position, end: Position, requested: Sequence[str]) -> tuple[MessagePartition, ...]:
        starts = range(begin["next"], end["next"], 2)
        return tuple(
            MessagePartition(
                self.query, 2, partial(read, self.query, self.seconds, range(n, min(n + 2, end["next"])), requested)
            )
            for n in starts
        )

    def distance(self, begin: Position, end: Position) -> int:
        return max(0, int(end["next"]) - int(begin["next"]))

    def commit_offsets(self, positions: Sequence[Position]) -> None:
        self.committed = list(positions)

    def close(self) -> None:
        self.closed = True
        if self.query == "stubborn":
            raise OSError("it does not close")


class Lines(Numbers):
    """Messages of two lines, which are read together."""

    kind: ClassVar[str] = "lines"
    line: ClassVar[str] = "_partition"
    columns: ClassVar[tuple[SourceColumn, ...]] = (
        TIME,
        SourceColumn("_partition", "integer"),
        SourceColumn("_offset", "integer"),
    )

    def plan_partitions(self, begin: Position, end: Position, requested: Sequence[str]) -> tuple[MessagePartition, ...]:
        numbers = range(begin["next"], end["next"])
        return (MessagePartition(self.query, 2, partial(read, self.query, self.seconds, numbers, requested)),)


def read(query: str, seconds: Sequence[int], numbers: range, requested: Sequence[str]) -> Iterator[pa.Table]:
    known = {
        "_event_ts": pa.array([NOON + timedelta(seconds=seconds[n]) for n in numbers], pa.timestamp("us", tz="UTC")),
        "_partition": pa.array([n % 2 for n in numbers], pa.int64()),
        "_key": pa.array([str(n) for n in numbers]),
    }
    payloads = [json.dumps({"from": query, "n": n}).encode() for n in numbers]
    offsets = [json.dumps({"of": query, "n": n}) for n in numbers]
    yield pa.table(
        {VALUE: pa.array(payloads, pa.binary()), MESSAGE_OFFSET: pa.array(offsets)}
        | {name: known[name] for name in requested}
    )


@dataclass(frozen=True)
class Register:
    """As much of a registry as sources are compared by."""

    display_address: str


def at(**positions: int) -> Position:
    return {"sources": {f"numbers:{query}": {"next": number} for query, number in positions.items()}}


def rows_of(source: CombinedSource, begin: Position, end: Position) -> list[str]:
    """Return source and number of messages in the order that counts."""
    partitions = source.plan_partitions(begin, end, [LINE, "_event_ts"])
    there = pickle.loads(pickle.dumps(partitions))  # noqa: S301 - as tasks get them
    rows = typed_rows(there, json_payload, [], source.line).rows
    return [f"{row['from']}{row['n']}" for row in rows.to_pylist()]


def test_a_position_holds_the_position_of_every_source_and_parts_see_nothing_else() -> None:
    one, two = Numbers("a", range(5)), Numbers("b", range(3))
    source = CombinedSource([one, two])
    assert source.start(EARLIEST) == at(a=0, b=0)
    assert source.start(LATEST) == at(a=5, b=3)
    moved = at(a=2, b=1) | {"turn": 4}
    assert source.ahead(moved, 100) == at(a=5, b=3)
    assert source.distance(moved, at(a=5, b=3)) == 5
    assert source.part_position(moved, two) == {"next": 1}
    assert source.parts == (one, two)
    assert source.waiting(moved) == {"a": 3, "b": 2}
    source.commit_offsets([moved, at(a=1, b=2)])
    assert (one.committed, two.committed) == ([{"next": 2}, {"next": 1}], [{"next": 1}, {"next": 2}])
    assert (source.query, source.name, source.read_paths) == ("a, b", "memory", ())


def test_a_source_alone_is_its_own_part() -> None:
    one = Numbers("a", range(5))
    assert one.parts == (one,)
    assert one.part_position({"next": 3}, one) == {"next": 3}


@pytest.mark.parametrize(
    ("there", "most", "claimed"),
    [((10, 10), 6, (3, 3)), ((1, 10), 6, (1, 5)), ((10, 0), 6, (6, 0)), ((10, 2), 7, (5, 2)), ((2, 2), 9, (2, 2))],
)
def test_each_source_gets_its_share_and_what_one_leaves_others_take(
    there: tuple[int, int], most: int, claimed: tuple[int, int]
) -> None:
    source = CombinedSource([Numbers("a", range(there[0])), Numbers("b", range(there[1]))])
    assert source.ahead(at(a=0, b=0), most) == at(a=claimed[0], b=claimed[1])


def test_fewer_messages_than_sources_are_taken_of_each_in_turn() -> None:
    source = CombinedSource([Numbers("a", range(10)), Numbers("b", range(10)), Numbers("c", range(10))])
    position = at(a=0, b=0, c=0)
    for number in range(6):
        end = source.ahead(position, 1)
        assert source.distance(position, end) == 1, number
        position = end
    assert position == at(a=2, b=2, c=2)


def test_no_source_goes_behind_the_end() -> None:
    source = CombinedSource([Numbers("a", range(10)), Numbers("b", range(10))])
    assert source.ahead(at(a=1, b=4), 100, at(a=2, b=3)) == at(a=2, b=4)
    assert source.ahead(at(a=1, b=4), 100, at(a=2)) == at(a=2, b=4), "a source that the end does not name stays"


def test_a_source_that_is_new_begins_with_its_oldest_message() -> None:
    source = CombinedSource([Numbers("a", range(4)), Numbers("b", range(3))])
    before = at(a=2)
    end = source.ahead(before, 100)
    assert end == at(a=4, b=3)
    assert source.distance(before, end) == 5
    assert rows_of(source, before, end) == ["b0", "b1", "a2", "b2", "a3"]
    assert source.waiting(before) == {"a": 2, "b": 3}


def test_a_source_that_is_gone_from_the_declaration_is_refused_until_an_operator_says_so() -> None:
    source = CombinedSource([Numbers("a", range(4)), Numbers("b", range(3))])
    before = at(a=2, b=1, c=9) | {"turn": 1}
    with pytest.raises(StreamLostError, match="has read numbers:c before") as refused:
        source.ahead(before, 100)
    assert """rewind NAME --to '{"sources": {}}'""" in str(refused.value)
    assert source.seek(before, '{"sources": {}}') == at(a=2, b=1)


def test_a_position_whose_messages_are_gone_is_refused_by_its_source() -> None:
    source = CombinedSource([Numbers("a", range(4)), Numbers("b", range(3))])
    for _ in range(2):
        with pytest.raises(StreamLostError, match="gone"):
            source.ahead(at(a=0, b=9), 1)
    with pytest.raises(StreamLostError, match="no position in several sources"):
        source.ahead({"offsets": {"0": 1}}, 1)


def test_an_operator_moves_all_sources_or_some() -> None:
    source = CombinedSource([Numbers("a", range(4)), Numbers("b", range(3))])
    now = at(a=2, b=1)
    assert source.seek(now, "earliest") == at(a=0, b=0)
    assert source.seek(now, '{"sources": {"numbers:a": {"next": 1}}}') == at(a=1, b=1)
    assert source.seek(now, '{"b": "latest"}') == at(a=2, b=3)
    assert source.seek(None, '{"b": "latest"}') == at(a=0, b=3)
    assert source.start(json.dumps(now | {"turn": 3})) == now
    for wrong in ('{"sources": {"numbers:z": "latest"}}', '{"a": 3}', '{"sources": 3}'):
        with pytest.raises(RunError, match="gives no position for sources"):
            source.seek(now, wrong)


def test_sources_of_one_name_are_told_apart_by_their_connections() -> None:
    source = CombinedSource([Numbers("a", range(2), "east"), Numbers("a", range(3), "west")])
    end = source.start(LATEST)
    assert end == {"sources": {"numbers:a@east": {"next": 2}, "numbers:a@west": {"next": 3}}}
    assert source.waiting(source.start(EARLIEST)) == {"a@east": 2, "a@west": 3}
    partitions = source.plan_split_partitions(source.start(EARLIEST), end, [])
    offsets = [offset for one in partitions for table in one.read() for offset in table[MESSAGE_OFFSET].to_pylist()]
    assert len(set(offsets)) == 5
    assert {source_in(offset) for offset in offsets} == {"a@east", "a@west"}
    assert json.loads(offsets[0]) == {"source": "a@east", "of": "a", "n": 0}


@pytest.mark.parametrize("text", [None, "", "no JSON", "[1]", '{"topic": "a"}'])
def test_a_location_that_names_no_source_has_none(text: str | None) -> None:
    assert source_in(text) is None


def test_messages_of_one_line_keep_their_order_and_lines_go_by_time() -> None:
    one, two = Lines("a", [0, 5, 9, 6]), Numbers("b", [7, 1, 8, 2, 3])
    source = CombinedSource([one, two])
    assert [column.name for column in source.columns] == ["_event_ts"], "only what all have, of one family"
    begin, end = source.start(EARLIEST), source.start(LATEST)
    ordered = rows_of(source, begin, end)
    assert [row for row in ordered if row[0] == "b"] == ["b0", "b1", "b2", "b3", "b4"]
    assert ordered.index("a0") < ordered.index("a2")
    assert ordered.index("a1") < ordered.index("a3")
    assert ordered == ["a0", "a1", "a3", "b0", "b1", "b2", "b3", "b4", "a2"]
    assert not source.has_one_line(begin, end)
    assert rows_of(source, begin, end) == ordered


def test_lines_of_two_sources_with_one_number_are_two_lines() -> None:
    source = CombinedSource([Lines("a", [1, 1, 1, 1]), Lines("b", [1, 1, 1, 1])])
    assert rows_of(source, source.start(EARLIEST), source.start(LATEST)) == [
        "a0", "a2", "a1", "a3", "b0", "b2", "b1", "b3",
    ]  # fmt: skip


def test_payloads_that_are_read_in_two_ways_are_refused() -> None:
    one, two = Numbers("a", ()), Numbers("b", ())
    two.payload_format = "avro"
    with pytest.raises(UnsupportedError, match="'a' has payloads of json, and 'b' of avro"):
        CombinedSource([one, two])
    one.payload_format = "avro"
    one.registry, two.registry = Register("http://one"), Register("http://two")  # type: ignore[assignment]
    with pytest.raises(UnsupportedError, match="at http://one, and those of 'b' at http://two"):
        CombinedSource([one, two])
    two.registry = Register("http://one")  # type: ignore[assignment]
    assert CombinedSource([one, two]).registry is one.registry


def test_all_sources_are_begun_and_closed_whatever_becomes_of_one() -> None:
    parts = [Numbers("a", ()), Numbers("stubborn", ()), Numbers("c", ())]
    source = CombinedSource(parts)
    source.begin()
    assert all(part.begun for part in parts)
    with pytest.raises(OSError, match="does not close"):
        source.close()
    assert all(part.closed for part in parts)
