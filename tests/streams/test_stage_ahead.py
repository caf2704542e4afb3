"""While a range of a stream commits, the next one is staged, if it is full; it counts only if it is then planned as it was."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import ematix, failpoints, pk
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.engine.batch import staging_ahead
from ematix_flow.engine.batch.staging_ahead import StagingAhead
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.engine.stream.sinks import table
from ematix_flow.events import BatchLoaded
from ematix_flow.observe.bus import Bus
from ematix_flow.types import BigInt, Text  # noqa: TC001 - read from the annotations
from tests.streams.feeds import drain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.batch.planner import LoadRequest
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import TaskReport
    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.slow]

MOST = 5
ENGINES = ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.xdist_group("streams")])]


@ematix.table(schema="shop", name="ahead")
class Orders:
    """Orders as the topic has them."""

    id: Annotated[BigInt, pk()]
    word: Text | None


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return who moves the rows."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    monkeypatch.setenv(ENGINE_VARIABLE, request.param)
    return str(request.param)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what became of rows that were staged ahead."""
    noted: list[str] = []

    class Noting(StagingAhead):
        def take(self, plan: TargetPlan) -> tuple[StageSpec, tuple[TaskReport, ...]] | None:
            batch = super().take(plan)
            noted.append("staged anew" if batch is None else "taken")
            return batch

    monkeypatch.setattr(table, "StagingAhead", Noting)
    return noted


@pytest.fixture
def warehouse(request: pytest.FixtureRequest) -> Connection:
    """Return the database: PostgreSQL, unless a test names another one."""
    kind = getattr(request, "param", "postgres")
    return connection_from_fields("warehouse", {"kind": kind, "url": request.getfixturevalue(f"{kind}_url")})


@pytest.fixture
def orders(topic: Topic, warehouse: Connection) -> Callable[..., Stream]:
    """Return the function that declares the stream of orders, in ranges of five messages."""

    def declared(**more: Any) -> Stream:
        given = {"target_table": Orders, "max_rows_per_batch": MOST, **more}
        return topic.stream(warehouse, **given)

    return declared


def fill(topic: Topic, count: int, first: int = 0) -> None:
    """Write orders."""
    topic.write([{"id": first + n, "word": f"w{first + n}"} for n in range(count)], partition=0)


def rows(warehouse: Connection, sql: str = "SELECT id FROM shop.ahead ORDER BY id") -> list[Any]:
    """Return what the table has."""
    with closing(open_database(warehouse).session()) as session:
        return [row[0] for row in session.query(sql)]


def staging(warehouse: Connection) -> list[str]:
    """Return the staging that is left."""
    database = open_database(warehouse)
    with closing(database.session()) as session:
        return [name for name, _ in database.stages(session)]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("warehouse", ["postgres", "mysql"], indirect=True)
def test_full_ranges_are_staged_while_the_one_before_them_commits(
    topic: Topic, warehouse: Connection, orders: Callable[..., Stream], used: list[str]
) -> None:
    fill(topic, 4 * MOST)
    assert drain(orders())["total_rows"] == 4 * MOST
    assert rows(warehouse) == [*range(4 * MOST)]
    assert used == ["taken"] * 3
    assert staging(warehouse) == []


def test_a_range_to_which_more_may_come_is_not_staged_ahead(
    topic: Topic, warehouse: Connection, orders: Callable[..., Stream], used: list[str]
) -> None:
    fill(topic, 2 * MOST - 1)
    drain(orders())
    assert rows(warehouse) == [*range(2 * MOST - 1)]
    assert used == []


@pytest.mark.usefixtures("engine")
def test_bad_messages_are_rejects_of_their_own_range(
    topic: Topic, warehouse: Connection, orders: Callable[..., Stream], used: list[str]
) -> None:
    fill(topic, MOST)
    topic.write([b"{torn"], partition=0)
    fill(topic, 2 * MOST - 1, first=MOST)
    drain(orders(transform_on_error="dlq"))
    assert rows(warehouse) == [*range(3 * MOST - 1)]
    rejects = rows(warehouse, "SELECT count(DISTINCT run_id) || ' ' || count(*) FROM ematix_flow.rejects")
    assert (rejects, used) == (["1 1"], ["taken"] * 2)


def test_rows_that_would_be_planned_in_another_way_are_staged_anew(
    topic: Topic, warehouse: Connection, orders: Callable[..., Stream], used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topic, 3 * MOST)
    planned = staging_ahead.plan_load
    monkeypatch.setattr(staging_ahead, "plan_load", lambda load, inspect: planned(_later(load), inspect))
    drain(orders())
    assert rows(warehouse) == [*range(3 * MOST)]
    assert used == ["staged anew"] * 2
    assert staging(warehouse) == []


def test_what_goes_wrong_ahead_is_tried_again_by_the_load_itself(
    topic: Topic, warehouse: Connection, orders: Callable[..., Stream], used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topic, 2 * MOST)
    monkeypatch.setattr(staging_ahead, "stage", _torn)
    drain(orders())
    assert rows(warehouse) == [*range(2 * MOST)]
    assert used == ["staged anew"]


def test_a_stream_that_is_stopped_leaves_nothing_staged(
    topic: Topic, warehouse: Connection, orders: Callable[..., Stream], used: list[str]
) -> None:
    fill(topic, 3 * MOST)
    stop, bus = threading.Event(), Bus()
    bus.subscribe(lambda event: stop.set() if isinstance(event, BatchLoaded) else None)
    run_stream(orders(), StreamOptions(stop=stop, bus=bus))
    assert rows(warehouse) == [*range(MOST)]
    assert (used, staging(warehouse)) == ([], [])
    drain(orders())
    assert rows(warehouse) == [*range(3 * MOST)]


def test_what_is_staged_behind_a_load_that_fails_does_not_count(
    topic: Topic, warehouse: Connection, orders: Callable[..., Stream], used: list[str]
) -> None:
    fill(topic, 3 * MOST)
    failpoints.arm("commit.before_commit=raise@1")
    try:
        with pytest.raises(failpoints.FailpointError):
            drain(orders())
    finally:
        failpoints.arm("")
    assert used == []
    drain(orders())
    assert rows(warehouse) == [*range(3 * MOST)]
    assert staging(warehouse) == []


def test_every_range_is_loaded_at_a_later_time_than_the_one_before_it(
    topic: Topic, warehouse: Connection, orders: Callable[..., Stream], used: list[str]
) -> None:
    fill(topic, 4 * MOST)
    drain(orders())
    times = rows(warehouse, "SELECT _loaded_at FROM shop.ahead ORDER BY id")
    assert (times, len({*times})) == (sorted(times), 4)
    assert used == ["taken"] * 3


def _later(load: LoadRequest) -> LoadRequest:
    return replace(load, now=load.now + timedelta(seconds=1))


def _torn(*given: Any) -> Any:
    raise OSError("torn")
