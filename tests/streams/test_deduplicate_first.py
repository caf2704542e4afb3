"""Rows that came before are left out in front of windows and joins, whatever is interrupted; rejects name their source."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Aggregation, Dedupe, Join, Source, StateStore, Window
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream import dead_letters
from ematix_flow.engine.stream.dead_letters import Selection
from ematix_flow.engine.stream.sinks.front import Front
from ematix_flow.engine.stream.sinks.stateful import StatefulSink
from ematix_flow.engine.stream.state import rows as state_rows
from ematix_flow.errors import DeclareError, UnsupportedError
from tests.depth import STATE_CHANGES, deep
from tests.streams.feeds import Topic, at, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from tests.services.kafka import KafkaBroker

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STATE_CHANGES),
    pytest.mark.usefixtures("spark", "stateful"),
    pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory"),
]

CREATED: dict[str, Any] = {"target_table": ("main", "w"), "create_table": True}
FIRST = Dedupe(keys=("id",), within=60_000, event_time_column="at")


def counted(**more: Any) -> Window:
    """Return windows of ten seconds by user."""
    aggregations = (Aggregation(agg="count", as_="n"), Aggregation(agg="sum", column="amount", as_="total"))
    given = {"kind": "tumbling", "duration_ms": 10_000, "event_time_column": "at", "group_by": ("user",)}
    return Window(aggregations=aggregations, **{**given, **more})


def event(number: int, second: float, user: str = "a", amount: int = 1) -> dict[str, Any]:
    """Return a message."""
    return {"id": number, "at": at(second), "user": user, "amount": amount}


RUNS = (
    [event(1, 1), event(1, 1), event(2, 2, amount=2), event(3, 3, "b"), event(1, 1.5, amount=9)],
    [event(2, 2, amount=2), event(4, 4, amount=4), event(3, 3, "b"), event(5, 12)],
    [event(5, 12), event(6, 31), event(4, 4, amount=4)],
)
EXPECTED = [("a", 1, 1), ("a", 3, 7), ("b", 1, 1)]


def closed(warehouse: Path) -> list[tuple[Any, ...]]:
    """Return the windows of the table."""
    return rows_in(warehouse, "SELECT user, n, total FROM w ORDER BY ALL")


def deduplicated(topic: Topic, warehouse: Path, **more: Any) -> Stream:
    """Declare windows over the first rows of their keys."""
    return topic.stream(duckdb_at(warehouse), **CREATED, **{"window": counted(), "deduplicate": FIRST, **more})


@pytest.mark.deep
def test_a_window_counts_the_first_rows_of_keys(topic: Topic, warehouse: Path) -> None:
    stream = deduplicated(topic, warehouse)
    for rows in RUNS:
        topic.write(rows, partition=0)
        drain(stream)
    assert closed(warehouse) == EXPECTED


@pytest.mark.deep
@pytest.mark.parametrize("point", [deep("in front"), "between"])
def test_what_is_interrupted_goes_on_where_it_was(
    topic: Topic, warehouse: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = deduplicated(topic, warehouse)
    owner: Any = Front if point == "in front" else StatefulSink
    name = "_apply" if point == "in front" else "_advance"
    work = getattr(owner, name)

    def interrupted(self: Any, *given: Any) -> None:
        if point == "in front" and given[1] > 0:
            work(self, *given)
            raise InterruptedError(point)
        if point == "between":
            raise InterruptedError(point)
        work(self, *given)

    for rows in RUNS:
        topic.write(rows, partition=0)
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, interrupted)
            with pytest.raises(InterruptedError):
                drain(stream)
        drain(stream)
    assert closed(warehouse) == EXPECTED


@pytest.mark.deep
def test_a_text_that_an_earlier_version_let_into_the_front_is_a_bad_row_behind_it(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = deduplicated(topic, warehouse, transform_on_error="dlq")
    topic.write([event(1, 1), {**event(2, 2), "amount": "many"}, b"{torn", event(3, 12)], partition=0)

    def interrupted(self: Front, *given: Any) -> None:
        raise InterruptedError(self, given)

    with monkeypatch.context() as patched:
        # What earlier versions did not look at.
        patched.setattr(state_rows, "summed_columns", lambda _: ())
        patched.setattr(Front, "_apply", interrupted)
        with pytest.raises(InterruptedError):
            drain(stream)
    drain(stream)
    assert closed(warehouse) == [("a", 1, 1)]
    rejects = dict(rows_in(warehouse, "SELECT column_name, row_json FROM ematix_flow.rejects"))
    assert len(rejects) == 2
    assert json.loads(rejects["amount"]) == {**event(2, 2), "amount": "many"}


@pytest.fixture
def sides(kafka_broker: KafkaBroker) -> tuple[Topic, Topic]:
    """Return two empty topics."""
    return Topic(kafka_broker, kafka_broker.create_topic(1)), Topic(kafka_broker, kafka_broker.create_topic(1))


@pytest.mark.deep
def test_each_side_of_a_join_is_deduplicated_by_itself(sides: tuple[Topic, Topic], warehouse: Path) -> None:
    left, right = sides
    join = Join(
        left_source=left.name, right_source=right.name, left_keys=("user",), right_keys=("user",),
        time_window_ms=5_000, event_time_column="at",
    )  # fmt: skip
    sources = [Source(one.connection, one.name) for one in sides]
    given = {
        "name": "j",
        "sources": sources,
        "target": duckdb_at(warehouse),
        **CREATED,
        "join": join,
        "deduplicate": FIRST,
    }
    stream = stream_from_keywords({**given, "state_store": StateStore(kind="in_memory")}, None)
    left.write([event(1, 1, amount=1), event(1, 1, amount=2), event(2, 2, "b", 3)])
    right.write([event(1, 1, amount=10), event(2, 3, "b", 20)])
    drain(stream)
    right.write([event(1, 2, amount=30), event(3, 4, amount=40)])
    left.write([event(2, 2, "b", 3)])
    drain(stream)
    pairs = rows_in(warehouse, "SELECT left_amount, right_amount FROM w ORDER BY ALL")
    assert len(pairs) == 3
    assert pairs[1:] == [(pairs[0][0], 40), (3, 20)]


@pytest.mark.deep
def test_late_rows_stay_dead_letters_and_the_others_are_replayed(topic: Topic, warehouse: Path) -> None:
    columns = "window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, user VARCHAR, n BIGINT, total TINYINT"
    rows_in(warehouse, f"CREATE TABLE w ({columns})")
    given = {"transform_on_error": "dlq", "window": counted(late_data="dlq")}
    stream = deduplicated(topic, warehouse, **given)
    topic.write([event(1, 1, amount=900), event(2, 30)], partition=0)
    with pytest.warns(UserWarning, match="behind deduplicate= flow dlq replay cannot count them"):
        drain(stream)
    topic.write([event(3, 2), event(4, 31)], partition=0)
    with pytest.warns(UserWarning, match="behind deduplicate="):
        drain(stream)
    assert sorted(letter.is_late for letter in dead_letters.records(stream)) == [False, True]
    rows_in(warehouse, "ALTER TABLE w ALTER total TYPE BIGINT")
    with pytest.raises(UnsupportedError, match=r"1 late row of stream .* cannot be counted") as raised:
        dead_letters.replay(stream, Selection())
    assert "flow dlq park" in str(raised.value.hint)
    assert closed(warehouse) == [("a", 1, 900)]
    (late,) = dead_letters.records(stream)
    dead_letters.park(stream, Selection(ids=(late.reject_id,)))
    assert dead_letters.replay(stream, Selection())["taken"] == 0


@pytest.mark.deep
def test_rejects_of_several_sources_name_theirs(sides: tuple[Topic, Topic], warehouse: Path) -> None:
    left, right = sides
    sources = [Source(one.connection, one.name) for one in sides]
    given = {"name": "r", "sources": sources, "target": duckdb_at(warehouse), **CREATED, "transform_on_error": "dlq"}
    stream = stream_from_keywords({**given, "window": counted(late_data="dlq")}, None)
    left.write([event(1, 1), {**event(2, 1), "at": "noon"}, event(3, 20)])
    right.write([b"{torn", event(4, 20)])
    drain(stream)
    right.write([event(5, 2), event(6, 21)])
    drain(stream)
    rejects = rows_in(warehouse, "SELECT reason, source_position, row_json FROM ematix_flow.rejects")
    by_source = {json.loads(position)["source"]: [] for _, position, _ in rejects}
    for reason, position, row in rejects:
        by_source[json.loads(position)["source"]].append((reason[:9], json.loads(position), row))
    assert [one[1] for one in by_source[left.name]] == [
        {"source": left.name, "topic": left.name, "partition": 0, "offset": 1}
    ]
    torn, late = sorted(by_source[right.name], key=lambda one: one[0].startswith("late_data"))
    assert torn[1] == {"source": right.name, "topic": right.name, "partition": 0, "offset": 0}
    assert late[1] == {"source": right.name}
    assert json.loads(late[2]) == event(5, 2)


@pytest.mark.deep
def test_both_go_by_one_time(topic: Topic, warehouse: Path) -> None:
    with pytest.raises(DeclareError, match="goes by the time '_event_ts', and what follows it by 'at'"):
        deduplicated(topic, warehouse, deduplicate=Dedupe(keys=("id",), within=1))


@pytest.mark.deep
def test_a_state_that_is_large_is_warned_of(topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_STATE_SIZE_WARN_BYTES", "1")
    stream = topic.stream(duckdb_at(warehouse), **CREATED, window=counted())
    topic.write(RUNS[0], partition=0)
    with pytest.warns(UserWarning, match="the state of stream .* may grow to"), pytest.warns(match="has grown to"):
        drain(stream)
