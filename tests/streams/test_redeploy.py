"""A state that is built anew: no window is lost, none is there twice, and what is open has complete values."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Aggregation, StateStore, Watermark, Window
from ematix_flow.engine.stream.control import stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.state.backfill import backfill_stream
from ematix_flow.engine.stream.state.redeploy import redeploy_stream
from ematix_flow.errors import PlanError, RefusedError, StreamLostError
from ematix_flow.failpoints import REDEPLOY_NAMES, FailpointError, arm
from tests.depth import STATE_CHANGES, deep
from tests.streams.feeds import BEGIN, at, drain, duckdb_at, rows_in
from tests.streams.test_stream_joins import joined, pairs
from tests.streams.test_window_model import LATENESS, message, random_events, split, window_of
from tests.streams.test_windows import COUNT, closed, events, into, tumbling
from tests.streams.window_model import expected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.state.redeploy import Redeployment
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STATE_CHANGES),
    pytest.mark.usefixtures("spark", "stateful"),
    pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory"),
]

MOST = Aggregation(agg="max", column="amount", as_="most")
WITHOUT = (COUNT[0],)
WITH = (COUNT[0], MOST)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    """Disarm what a test has armed."""
    yield
    arm("")


def redeployed(stream: Stream, **how: Any) -> Redeployment:
    """Build the state of a stream with one target anew."""
    (one,) = redeploy_stream(stream, StreamOptions(), **how)
    return one


@pytest.mark.deep
def test_an_added_aggregation_is_complete_in_open_windows_and_null_in_those_given_out(
    topic: Topic, warehouse: Path
) -> None:
    held = {"watermark": Watermark(lateness_ms=10_000), "max_rows_per_batch": 3}
    before = into(topic, warehouse, tumbling(aggregations=WITHOUT), **held)
    now = into(topic, warehouse, tumbling(aggregations=WITH), **held)
    with pytest.raises(PlanError, match="remembers nothing yet"):
        redeployed(now)
    topic.write(events((1, "a", 5), (2, "b", 1), (11, "a", 9)), partition=0)
    topic.write(events((12, "a", 2), (21, "a", 4), (13, "b", 3)), partition=0)
    topic.write(events((22, "a", 3), (25, "a", 1)), partition=0)
    drain(before)
    assert closed(warehouse, "user, n") == [(0.0, "a", 1), (0.0, "b", 1)]
    with pytest.raises(StreamLostError, match="aggregations was") as refused:
        drain(now)
    assert "flow stream redeploy" in str(refused.value.hint)
    (status,) = stream_status(now, StreamOptions())
    assert status.state is not None
    assert "flow stream redeploy" in status.state.remedy
    planned = redeployed(now, dry_run=True)
    # The first range has the first event of the oldest window that is open.
    assert (planned.messages, planned.done, planned.begin["offsets"]["0"], planned.end["offsets"]["0"]) == (
        8,
        False,
        0,
        8,
    )
    drain(before)
    assert redeployed(now).done
    (status,) = stream_status(now, StreamOptions())
    assert status.state is not None
    assert status.state.changes == ()
    topic.write(events((19, "b", 8), (40, "z", 0)), partition=0)
    drain(now)
    assert closed(warehouse, "user, n, most") == [
        (0.0, "a", 1, None), (0.0, "b", 1, None), (10.0, "a", 2, 9), (10.0, "b", 2, 8), (20.0, "a", 3, 4),
    ]  # fmt: skip
    topic.write(events((60, "z", 0)), partition=0)
    drain(now)
    assert closed(warehouse, "user, n, most")[5:] == [(40.0, "z", 1, 0)]


@pytest.mark.deep
def test_rows_that_a_new_sum_cannot_take_are_not_left_out_of_open_windows(topic: Topic, warehouse: Path) -> None:
    total = (*WITHOUT, Aggregation(agg="sum", column="amount", as_="total"))
    keys = {"target_primary_key": ["window_start", "user"]}
    topic.write([*events((1, "a", 5)), {"at": at(2), "user": "a", "amount": "many"}], partition=0)
    drain(into(topic, warehouse, tumbling(aggregations=WITHOUT), **keys))
    with pytest.raises(
        RefusedError, match=r"1 row of the messages of what is open would be missing.* 'amount'"
    ) as raised:
        redeployed(into(topic, warehouse, tumbling(aggregations=total), **keys))
    assert "transform_sql" in str(raised.value.hint)
    sql = "SELECT at, user, TRY_CAST(amount AS DOUBLE) AS amount FROM source"
    mended = into(topic, warehouse, tumbling(aggregations=total), transform_sql=sql, **keys)
    assert redeployed(mended).done
    topic.write(events((20, "a", 1)), partition=0)
    drain(mended)
    assert closed(warehouse, "user, n, total") == [(0.0, "a", 2, 5)]
    # A backfill goes on without them, and says so.
    summed = into(topic, warehouse, tumbling(aggregations=total), **keys)
    with pytest.warns(UserWarning, match=r"1 row of the messages that were read again is a bad row \(1 by 'amount'\)"):
        backfill_stream(summed, BEGIN, BEGIN + timedelta(seconds=10), StreamOptions())
    assert closed(warehouse, "user, n, total") == [(0.0, "a", 1, 5)]


@pytest.mark.deep
@pytest.mark.parametrize(
    "point",
    [
        *map(deep, REDEPLOY_NAMES[:3]),
        REDEPLOY_NAMES[3],
        *map(deep, REDEPLOY_NAMES[4:]),
    ],
)
def test_an_interrupted_redeployment_leaves_the_old_state_or_the_new_one(
    topic: Topic, warehouse: Path, point: str
) -> None:
    before, now = (into(topic, warehouse, tumbling(aggregations=some)) for some in (WITHOUT, WITH))
    topic.write(events((1, "a", 5), (11, "a", 9), (12, "b", 2)), partition=0)
    drain(before)
    arm(f"{point}=raise@1")
    with pytest.raises(FailpointError):
        redeployed(now)
    arm("")
    topic.write(events((13, "a", 1)), partition=0)
    if point in ("redeploy.switched", "redeploy.removed"):
        drain(now)
    else:
        with pytest.raises(StreamLostError, match="aggregations was"):
            drain(now)
        drain(before)
        assert redeployed(now).done
    topic.write(events((25, "a", 0)), partition=0)
    drain(now)
    assert closed(warehouse, "user, n, most") == [(0.0, "a", 1, None), (10.0, "a", 2, 9), (10.0, "b", 1, 2)]
    assert redeployed(now).done
    topic.write(events((35, "a", 0)), partition=0)
    drain(now)
    assert closed(warehouse, "user, n, most")[3:] == [(20.0, "a", 1, 0)]


KINDS = [("tumbling", "dlq", 1), ("hopping", "drop", 2), ("session", "drop", 3), ("session", "reopen", 4)]
MORE = [("tumbling", "reopen", 5), ("hopping", "reopen", 6), ("session", "dlq", 7), ("tumbling", "drop", 8)]


@pytest.mark.parametrize(
    ("kind", "policy", "seed"),
    [deep(*one) for one in (*KINDS, *MORE)],
)
def test_windows_over_a_redeployment_are_those_of_the_model(
    line: Topic,
    warehouse: Path,
    kind: str,
    policy: str,
    seed: int,
) -> None:
    window = window_of(kind, policy)
    chunks = split(random_events(seed, 360), 60)
    model = expected(chunks, window, LATENESS)
    fewer = replace(window, aggregations=window.aggregations[1:3])
    names = [*window.group_by, *(one.as_ for one in window.aggregations)]
    table = (
        'window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, session_id BIGINT, shop DOUBLE, "user" VARCHAR, n BIGINT, '
    )
    table += "there BIGINT, total DOUBLE, least DOUBLE, most DOUBLE, mean DOUBLE, opened VARCHAR, final DOUBLE, "
    rows_in(warehouse, f"CREATE SCHEMA shop; CREATE TABLE shop.w ({table} notes BIGINT, about BIGINT)")

    def declared(window: Window) -> Stream:
        store = {"state_store": StateStore(kind="postgres", url="x")} if kind == "session" else {}
        given = {"target_table": ("shop", "w"), "watermark": Watermark(lateness_ms=LATENESS), **store}
        return line.stream(duckdb_at(warehouse), window=window, max_rows_per_batch=60, **given)

    def stored(where: str = "TRUE") -> Counter[tuple[Any, ...]]:
        columns = ", ".join(f'"{name}"' for name in names)
        sql = f"SELECT epoch_ms(window_start), epoch_ms(window_end), {columns} FROM shop.w WHERE {where}"
        return Counter(rows_in(warehouse, sql))

    for chunk in chunks[:3]:
        line.write([message(event) for event in chunk])
    drain(declared(fewer))
    early = stored()
    assert early
    assert redeployed(declared(window)).messages < 180 + 1
    assert stored() == early
    for chunk in chunks[3:]:
        line.write([message(event) for event in chunk])
    drain(declared(window))
    complete = stored("n IS NOT NULL")
    rows = model.appended()
    short = Counter({row[:4] + row[5:7]: 0 for row in rows})
    short.update(row[:4] + row[5:7] for row in rows.elements())
    # What was given out before has the columns of then; everything else has all values, and there is nothing more.
    assert Counter(row[:4] + row[5:7] for row in (early + complete).elements()) == +short
    assert complete - rows == Counter()
    assert early.total() + complete.total() == rows.total()


@pytest.mark.deep
def test_shorter_windows_are_given_out_from_where_the_longer_ones_were(topic: Topic, warehouse: Path) -> None:
    long, short = (into(topic, warehouse, tumbling(duration_ms=ms, aggregations=COUNT)) for ms in (60_000, 10_000))
    topic.write(events((3, "a", 1), (61, "a", 1), (75, "a", 1), (75.5, "b", 1), (95, "a", 1)), partition=0)
    drain(long)
    assert closed(warehouse, "user, n") == [(0.0, "a", 1)]
    planned = redeployed(short, dry_run=True)
    assert planned.watermark == BEGIN + timedelta(seconds=60)
    assert redeployed(short).done
    # By the time of the stream they are over, though nothing more has come.
    drain(short)
    later = [(60.0, "a", 1), (70.0, "a", 1), (70.0, "b", 1)]
    assert closed(warehouse, "user, n") == [(0.0, "a", 1), *later]
    topic.write(events((200, "a", 1)), partition=0)
    drain(short)
    assert closed(warehouse, "user, n") == [(0.0, "a", 1), *later, (90.0, "a", 1)]


@pytest.mark.parametrize("groups", [("user",), deep(())], ids=["by user", "by another column"])
def test_sessions_that_were_open_are_cut_anew_and_no_event_is_lost_or_there_twice(
    line: Topic, warehouse: Path, groups: tuple[str, ...]
) -> None:
    def sessions(gap: int, by: tuple[str, ...]) -> Stream:
        longest = {"gap_ms": gap, "max_session_duration_ms": 600_000}
        window = Window(kind="session", group_by=by, event_time_column="at", aggregations=COUNT, **longest)
        return into(line, warehouse, window, state_store=StateStore(kind="postgres", url="x"))

    before, now = sessions(30_000, ("user",)), sessions(5_000, groups or ("amount",))
    line.write(events(*((second, "a", 1) for second in range(0, 101, 10)), (20, "b", 1), (25, "b", 1)))
    drain(before)
    counts = "SELECT epoch(window_start) - epoch(TIMESTAMPTZ '2026-03-01 00:00:00Z') AS s, n FROM shop.w ORDER BY ALL"
    assert rows_in(warehouse, counts) == [(20.0, 2)]
    assert redeployed(now).done
    line.write(events((300, "a", 1)))
    drain(now)
    assert rows_in(warehouse, counts) == sorted([(20.0, 2), *((float(second), 1) for second in range(0, 101, 10))])


@pytest.mark.deep
def test_rows_of_a_join_wait_on_and_pairs_are_loaded_once(
    sides: tuple[Topic, Topic],
    warehouse: Path,
) -> None:
    left, right = sides
    before, now = joined(sides, warehouse, kind="left_outer"), joined(sides, warehouse, kind="left_outer")
    left.write([{"k": "a", "n": 1, "at": at(10)}, {"k": "b", "n": 2, "at": at(10)}, {"k": "c", "n": 3, "at": at(12)}])
    right.write([{"k": "a", "n": 10, "at": at(6)}, {"k": "c", "n": 12, "at": at(13)}])
    drain(before)
    # The partner of the first row is forgotten, and the row itself still waits.
    left.write([{"k": "z", "n": 4, "at": at(13)}])
    right.write([{"k": "y", "n": 11, "at": at(14)}])
    drain(before)
    assert pairs(warehouse) == [(1, 10), (3, 12)]
    assert redeployed(now).done
    right.write([{"k": "b", "n": 13, "at": at(14)}, {"k": "a", "n": 14, "at": at(15)}])
    drain(now)
    assert pairs(warehouse) == [(1, 10), (1, 14), (2, 13), (3, 12)]
    left.write([{"k": "q", "n": 5, "at": at(40)}])
    right.write([{"k": "q", "n": 15, "at": at(40)}])
    drain(now)
    assert pairs(warehouse) == [(1, 10), (1, 14), (2, 13), (3, 12), (4, None), (5, 15)]
