"""A backfill of a stream gives what the stream gave, and what a plain computation gives."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Aggregation, Dedupe, StateStore, Window
from ematix_flow.engine.stream import dead_letters
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.dead_letters import Selection
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.state.backfill import backfill_stream
from ematix_flow.errors import PlanError, RefusedError, StreamLostError, UnsupportedError
from tests.depth import STATE_CHANGES, deep
from tests.streams.feeds import BEGIN, at, drain, duckdb_at, rows_in
from tests.streams.test_stream_joins import joined
from tests.streams.test_window_model import EPOCH, OFFSET, message
from tests.streams.test_windows import COUNT, closed, events, into, tumbling
from tests.streams.window_model import expected

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STATE_CHANGES),
    pytest.mark.usefixtures("spark", "stateful"),
    pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory"),
]

KINDS: dict[str, dict[str, Any]] = {
    "tumbling": {"duration_ms": 10_000},
    "hopping": {"duration_ms": 10_000, "hop_ms": 4_000},
    "session": {"gap_ms": 3_000, "max_session_duration_ms": 9_000},
}
AGGREGATIONS = (
    *COUNT,
    Aggregation(agg="sum", column="amount", as_="total"),
    Aggregation(agg="last", column="amount", as_="final"),
)
FIRST, LAST = 10, 30
"""Seconds of the interval that is computed again."""


def backfilled(stream: Stream, first: float = FIRST, last: float = LAST, **how: Any) -> int:
    """Compute some seconds again and return how many rows were written."""
    bounds = (BEGIN + timedelta(seconds=seconds) for seconds in (first, last))
    (one,) = backfill_stream(stream, *bounds, StreamOptions(), **how)
    return one.rows


def window_of(kind: str) -> Window:
    """Return windows by user."""
    return Window(kind=kind, aggregations=AGGREGATIONS, event_time_column="at", group_by=("user",), **KINDS[kind])


def stored(warehouse: Path, where: str = "TRUE") -> list[tuple[Any, ...]]:
    """Return the rows of the table of windows, with their bounds in milliseconds."""
    names = 'epoch_ms(window_start), epoch_ms(window_end), "user", n, total, final'
    return sorted(rows_in(warehouse, f"SELECT {names} FROM shop.w WHERE {where}"))


@pytest.mark.parametrize("kind", [deep("tumbling"), deep("hopping"), deep("session")])
def test_a_backfill_gives_what_the_stream_gave_and_the_model_gives(line: Topic, warehouse: Path, kind: str) -> None:
    # Every group pauses, so that each session is one by itself.
    plain = [
        {"at": OFFSET + second * 1000, "user": "abc"[second * second % 3], "amount": second % 7}
        for second in range(60)
        if second % 10 < 6
    ]
    line.write([message(one) for one in plain])
    window = window_of(kind)
    keys = ["session_id"] if kind == "session" else ["window_start", "user"]
    store = {"state_store": StateStore(kind="postgres", url="x")} if kind == "session" else {}
    stream = into(line, warehouse, window, target_primary_key=keys, **store)
    drain(stream)
    by_model = sorted(tuple(row) for row in expected([plain], window).appended())
    by_stream = stored(warehouse)
    assert by_stream == by_model
    start = f"window_start >= TIMESTAMPTZ '{at(FIRST)}' AND window_start < TIMESTAMPTZ '{at(LAST)}'"
    inside = stored(warehouse, start)
    assert 3 < len(inside) < len(by_stream)
    # A part is gone, a part is wrong: both are as before afterwards, and nothing else is touched.
    rows_in(warehouse, f"DELETE FROM shop.w WHERE {start} AND \"user\" = 'a'")
    rows_in(warehouse, f"UPDATE shop.w SET total = -1 WHERE {start}")
    rows_in(warehouse, f"UPDATE shop.w SET total = -2 WHERE NOT ({start})")
    assert backfilled(stream, dry_run=True) == 0
    assert backfilled(stream) == len(inside)
    assert stored(warehouse, start) == inside
    assert {row[4] for row in stored(warehouse, f"NOT ({start})")} == {-2}
    # The stream itself goes on as if nothing had been.
    line.write(events((90, "a", 1)))
    drain(stream)
    assert len(stored(warehouse)) > len(by_stream)


@pytest.mark.deep
def test_sessions_that_are_computed_again_take_the_place_of_those_that_were_there(line: Topic, warehouse: Path) -> None:
    window = Window(
        kind="session", gap_ms=10_000, max_session_duration_ms=60_000, event_time_column="at", group_by=("user",),
        aggregations=COUNT,
    )  # fmt: skip
    store = {"state_store": StateStore(kind="postgres", url="x")}
    stream = into(line, warehouse, window, target_primary_key=["window_start", "user"], **store)
    # The first never pauses, so that its sessions are cut by their longest duration.
    line.write(events(*((5 * number, "a", 1) for number in range(81)), (500, "b", 1), (515, "b", 1), (1000, "c", 1)))
    drain(stream)
    counts = "SELECT \"user\", epoch(window_start) - epoch(TIMESTAMPTZ '2026-03-01 00:00:00Z') AS s, n FROM shop.w ORDER BY ALL"
    chain = [("a", 65.0 * number, 13) for number in range(6)] + [("a", 390.0, 3)]
    assert rows_in(warehouse, counts) == [*chain, ("b", 500.0, 1), ("b", 515.0, 1)]
    with pytest.warns(UserWarning, match="1 group had no pause before or after the interval"):
        assert backfilled(stream, 300, 380) == 0
    line.write(events((495, "b", 1), (507, "b", 1)))
    drain(stream)
    assert rows_in(warehouse, counts) == [*chain, ("b", 500.0, 1), ("b", 515.0, 1)]
    assert backfilled(stream, 480, 520) == 1
    assert rows_in(warehouse, counts) == [*chain, ("b", 495.0, 4)]


def test_late_rows_that_are_replayed_are_counted_in_their_windows(topic: Topic, warehouse: Path) -> None:
    window = tumbling(late_data="dlq", aggregations=COUNT)
    given = {"target_primary_key": ["window_start", "user"], "transform_on_error": "dlq"}
    stream = into(topic, warehouse, window, **given)
    topic.write([*events((1, "a", 5), (12, "a", 1), (100, "a", 1)), b"{torn"], partition=0)
    drain(stream)
    topic.write(events((2, "a", 5), (13, "b", 1)), partition=0)
    drain(stream)
    rows = [(0.0, "a", 1), (10.0, "a", 1)]
    assert closed(warehouse, "user, n") == rows
    with pytest.raises(UnsupportedError, match="is a row that its windows count, and no row of its table"):
        dead_letters.replay(stream, Selection())
    assert sorted(letter.stage for letter in dead_letters.records(stream)) == ["late_data", "late_data", "transform"]
    (torn,) = (letter.reject_id for letter in dead_letters.records(stream) if letter.is_message)
    dead_letters.park(stream, Selection(ids=(torn,)))
    result = dead_letters.replay(stream, Selection())
    assert (result["taken"], result["succeeded"]) == (2, 2)
    assert closed(warehouse, "user, n") == [(0.0, "a", 2), (10.0, "a", 1), (10.0, "b", 1)]
    assert dead_letters.records(stream) == []


@pytest.mark.deep
def test_a_late_row_of_a_session_is_counted_in_the_one_that_it_makes_longer(line: Topic, warehouse: Path) -> None:
    window = replace(window_of("session"), late_data="dlq", aggregations=COUNT)
    given = {"target_primary_key": ["session_id"], "state_store": StateStore(kind="postgres", url="x")}
    stream = into(line, warehouse, window, **given)
    line.write(events((10, "a", 1), (14, "a", 1), (100, "a", 1)))
    drain(stream)
    line.write(events((8, "a", 1), (12, "a", 1)))
    drain(stream)
    assert closed(warehouse, "user, n") == [(10.0, "a", 1), (14.0, "a", 1)]
    assert dead_letters.replay(stream, Selection())["succeeded"] == 2
    assert closed(warehouse, "user, n") == [(8.0, "a", 4)]


@pytest.mark.deep
def test_dead_letters_of_a_join_are_no_rows_of_its_table(sides: tuple[Topic, Topic], warehouse: Path) -> None:
    left, right = sides
    stream = replace(joined(sides, warehouse), transform=replace(joined(sides, warehouse).transform, on_error="dlq"))
    left.write([{"k": 1, "n": 1, "at": at(1)}, {"k": 1, "n": 2}])
    right.write([{"k": 1, "n": 3, "at": at(1)}])
    drain(stream)
    with pytest.raises(UnsupportedError, match="is a row that its join pairs, and no row of its table"):
        dead_letters.replay(stream, Selection())


@pytest.mark.deep
def test_a_backfill_of_a_join_gives_the_pairs_that_the_stream_gave(sides: tuple[Topic, Topic], warehouse: Path) -> None:
    left, right = sides
    lefts = [{"k": n % 4, "n": n, "at": at(n)} for n in range(0, 50, 2)]
    rights = [{"k": n % 4, "n": 100 + n, "at": at(n)} for n in range(1, 50, 3)]
    left.write(lefts)
    right.write(rights)
    rows_in(warehouse, "CREATE SCHEMA shop")
    columns = "left_n BIGINT, right_n BIGINT, left_k BIGINT, right_k BIGINT, left_at VARCHAR, right_at VARCHAR"
    rows_in(warehouse, f"CREATE TABLE shop.pairs ({columns}, PRIMARY KEY (left_n, right_n))")
    stream = joined(sides, warehouse)
    drain(stream)

    def pairs() -> list[tuple[Any, ...]]:
        return sorted(rows_in(warehouse, "SELECT left_n, right_n, left_k FROM shop.pairs"))

    by_model = sorted(
        (one["n"], other["n"], one["k"])
        for one in lefts
        for other in rights
        if one["k"] == other["k"] and abs(other["n"] - 100 - one["n"]) <= 5
    )
    assert pairs() == by_model
    inside = [pair for pair in by_model if FIRST <= pair[0] < LAST]
    assert 2 < len(inside) < len(by_model)
    rows_in(warehouse, f"DELETE FROM shop.pairs WHERE left_n % 4 = 0 AND left_n >= {FIRST} AND left_n < {LAST}")
    rows_in(warehouse, "UPDATE shop.pairs SET left_k = -1")
    assert backfilled(stream) == len(inside)
    assert pairs() == sorted((n, m, k if (n, m, k) in inside else -1) for n, m, k in by_model)


def test_a_backfill_that_could_double_rows_is_refused(topic: Topic, warehouse: Path) -> None:
    topic.write(events((1, "a", 5), (40, "b", 1)), partition=0)
    without = into(topic, warehouse, tumbling())
    with pytest.raises(RefusedError, match="has no key"):
        backfilled(without)
    latest = into(topic, warehouse, tumbling(), mode="merge", target_primary_key=["user"])
    with pytest.raises(RefusedError, match="older ones would replace newer ones"):
        backfilled(latest)
    keyed = into(topic, warehouse, tumbling(), target_primary_key=["window_start", "user"])
    with pytest.raises(PlanError, match="has given nothing out yet"):
        backfilled(keyed)
    dedupe = Dedupe(keys=("user",), within=timedelta(seconds=30), event_time_column="at")
    first = topic.stream(duckdb_at(warehouse), deduplicate=dedupe, target_table=("shop", "w"), create_table=True)
    with pytest.raises(UnsupportedError, match="leaves out rows that came before"):
        backfilled(first)
    with pytest.raises(PlanError, match="before it begins"):
        backfilled(keyed, 30, 10)
    drain(keyed)
    with pytest.raises(PlanError, match="everything before 2026-03-01T00:00:40"):
        backfilled(keyed, 50, 60)


def test_messages_of_a_stream_without_state_are_loaded_again_by_key(topic: Topic, warehouse: Path) -> None:
    for second in range(6):
        instant = int((BEGIN + timedelta(seconds=10 * second) - EPOCH).total_seconds() * 1000)
        topic.write([{"id": second, "v": second}], partition=0, timestamp=instant)
    stream = topic.stream(
        duckdb_at(warehouse), target_table=("shop", "plain"), create_table=True, target_primary_key=["id"]
    )
    drain(stream)
    rows_in(warehouse, "UPDATE shop.plain SET v = -1")
    assert backfilled(stream) == 2
    assert rows_in(warehouse, "SELECT id, v FROM shop.plain ORDER BY id") == [
        (0, -1), (1, 1), (2, 2), (3, -1), (4, -1), (5, -1),
    ]  # fmt: skip


@pytest.mark.deep
def test_a_window_that_a_stream_began_within_is_computed_from_the_messages_before_that(
    line: Topic, warehouse: Path
) -> None:
    stream = into(line, warehouse, tumbling(aggregations=COUNT), target_primary_key=["window_start", "user"])
    for second in (1, 2, 3, 12):
        known = int((BEGIN + timedelta(seconds=second) - EPOCH).total_seconds() * 1000)
        line.write(events((second, "a", 1)), partition=0, timestamp=known)
    move_stream(stream, (BEGIN + timedelta(seconds=3)).isoformat(), StreamOptions())
    drain(stream)
    assert closed(warehouse, "user, n") == [(0.0, "a", 1)]
    assert backfilled(stream, 0, 10) == 1
    assert closed(warehouse, "user, n") == [(0.0, "a", 3)]


@pytest.mark.deep
def test_windows_whose_messages_are_partly_gone_are_left_as_they_are(line: Topic, warehouse: Path) -> None:
    def write(*seconds: float, late: float | None = None) -> None:
        for second in seconds:
            known = int((BEGIN + timedelta(seconds=late or second) - EPOCH).total_seconds() * 1000)
            line.write(events((second, "a", 1)), partition=0, timestamp=known)
        drain(stream)

    window = tumbling(late_data="dlq", aggregations=COUNT)
    stream = into(line, warehouse, window, target_primary_key=["window_start", "user"])
    write(1, 3, 5, 40)
    write(150, 300)
    write(2, 151, 152, late=301)
    rows = [(0.0, "a", 3), (150.0, "a", 1), (40.0, "a", 1)]
    assert closed(warehouse, "user, n") == rows
    old, *recent = sorted(dead_letters.records(stream), key=lambda letter: letter.reason)
    # Of one the reason names a window that no message has.
    moved = f"reason = replace(reason, '00:02:30.000', '00:03:20.000') WHERE reject_id = '{recent[0].reject_id}'"
    rows_in(warehouse, f"UPDATE ematix_flow.rejects SET {moved}")
    line.remove_until(2)
    lost = (
        r"2 late rows .* first \S+ of 2026-03-01T00:00:00\+00:00: records 0 to 1 .* are gone.* \(1 other is counted\)"
    )
    with pytest.raises(StreamLostError, match=lost) as caught:
        dead_letters.replay(stream, Selection())
    assert f"flow dlq park {stream.name} --id {old.reject_id[:12]}" in str(caught.value.hint)
    assert closed(warehouse, "user, n") == [(0.0, "a", 3), (150.0, "a", 3), (40.0, "a", 1)]
    left = {old.reject_id, recent[0].reject_id}
    assert {letter.reject_id for letter in dead_letters.records(stream)} == left
    dead_letters.park(stream, Selection(ids=(old.reject_id,)))
    with pytest.raises(StreamLostError, match="the topic has no message of its window any more"):
        dead_letters.replay(stream, Selection())
    for dry_run in (True, False):
        with pytest.raises(
            StreamLostError, match=r"cannot be computed again as a whole: records 0 to 1 of partition 0"
        ):
            backfilled(stream, 0, 160, dry_run=dry_run)
    assert backfilled(stream, 40, 160) == 2
