"""Several targets of one pipeline, and several pipelines into one target."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.errors import CommitError
from tests.contracts.flows import START, in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

COLUMNS = (
    Column(BigInt(), primary_key=True, name="id"),
    Column(Text(), name="name"),
    Column(TimestampTZ(), name="seen"),
)
FIRST, SECOND, THIRD = (Table("analytics", name, COLUMNS) for name in ("first", "second", "third"))


def item(key: int, name: str = "n", hours: float = 1) -> Row:
    return {"id": key, "name": name, "seen": START + timedelta(hours=hours)}


def fan_out(flow: Flow, *, go_on: bool, **options: Any) -> Flow:
    """Return the flow with three targets: merged, appended and versioned."""
    writes = ({"mode": "merge"} | options, {"mode": "append"} | options, {"mode": "scd2"})
    targets = tuple(
        TargetDeclaration(table, write(**one), flow.connection)
        for table, one in zip((FIRST, SECOND, THIRD), writes, strict=True)
    )
    flow.declared = {"targets": targets, "fan_out": True, "continue_on_failure": go_on}
    return flow


def ids(flow: Flow, table: Table) -> list[int]:
    return [row["id"] for row in replace(flow, table=table).rows()]


@pytest.mark.every_system
@in_and_out
def test_one_source_goes_into_every_target_by_its_own_mode(flows: Flows) -> None:
    flow = fan_out(flows(FIRST, mode="merge"), go_on=False)
    result = flow.run([item(1), item(2)])
    assert {name: one["rows_inserted"] for name, one in result.items()} == {
        "analytics.first": 2,
        "analytics.second": 2,
        "analytics.third": 2,
    }
    flow.run([item(3)])
    assert [ids(flow, table) for table in (FIRST, SECOND, THIRD)] == [[1, 2, 3]] * 3
    names = {row["pipeline_name"] for row in flow.points("run_history")}
    assert names == {f"flow::analytics.{name}" for name in ("first", "second", "third")}


@in_and_out
def test_without_continue_the_first_failure_stops_and_a_retry_completes(flows: Flows) -> None:
    flow = fan_out(flows(FIRST, mode="merge"), go_on=False)
    flow.run([item(1)])
    with pytest.raises(CommitError):
        flow.run([item(1, "the append refuses it"), item(2)], slot="s")
    assert [ids(flow, table) for table in (FIRST, SECOND, THIRD)] == [[1, 2], [1], [1]]
    result = flow.run([item(2)], slot="s")
    assert result["analytics.first"]["recovered"] is True
    assert [ids(flow, table) for table in (FIRST, SECOND, THIRD)] == [[1, 2]] * 3


@in_and_out
def test_with_continue_the_others_are_loaded_and_a_retry_mends_the_one_that_failed(flows: Flows) -> None:
    flow = fan_out(flows(FIRST, mode="merge"), go_on=True)
    flow.run([item(1)])
    result = flow.run([item(1), item(2)], slot="s")
    assert set(result["errors"]) == {"analytics.second"}
    assert set(result["results"]) == {"analytics.first", "analytics.third"}
    assert [ids(flow, table) for table in (FIRST, SECOND, THIRD)] == [[1, 2], [1], [1, 2]]
    mended = flow.run([item(2)], slot="s")
    assert {name: one.get("recovered", False) for name, one in mended.items()} == {
        "analytics.first": True,
        "analytics.second": False,
        "analytics.third": True,
    }
    assert [ids(flow, table) for table in (FIRST, SECOND, THIRD)] == [[1, 2]] * 3


@in_and_out
def test_every_target_remembers_for_itself_how_far_it_came(flows: Flows) -> None:
    flow = fan_out(flows(FIRST, mode="merge"), go_on=True, incremental_column="seen")
    flow.run([item(1, hours=1)])
    flow.add([item(2, hours=2), item(1, "taken", hours=3)])
    assert set(flow.run()["results"]) == {"analytics.first"}, "the others have that key already, or twice"
    flow.execute(f"DELETE FROM {flow.source_name} WHERE name = 'taken'")
    flow.add([item(3, hours=4)])
    flow.run()
    assert ids(flow, FIRST) == [1, 2, 3]
    assert ids(flow, SECOND) == [1, 2, 3], "the target that failed catches up from where it was"
    watermarks = {row["pipeline_name"]: row["last_value"] for row in flow.points("watermarks")}
    assert set(watermarks) == {"flow::analytics.first", "flow::analytics.second"}
    assert len(set(watermarks.values())) == 1


@in_and_out
def test_two_pipelines_take_turns_on_one_table(flows: Flows) -> None:
    table = Table("analytics", "shared", COLUMNS)
    even, odd = flows(table, "even", mode="merge"), flows(table, "odd", mode="merge")
    for number in range(6):
        flow = (even, odd)[number % 2]
        result = flow.run([item(number), item(100 + number % 2, f"round {number}")])
        assert result["rows_inserted"] == (2 if number < 2 else 1)
    assert [row["id"] for row in even.rows()] == [0, 1, 2, 3, 4, 5, 100, 101]
    assert [row["name"] for row in even.rows()][-2:] == ["round 4", "round 5"]
    assert [row["rows_inserted"] for row in even.points("ledger")] == [2, 2, 1, 1, 1, 1]


ROUNDS = 5


def test_two_pipelines_may_load_one_table_at_the_same_time(flows: Flows) -> None:
    """Each writes keys of its own and one row that both fight for; neither loses a row and neither gets stuck."""
    table = Table("analytics", "contended", COLUMNS)
    both = []
    for number, name in enumerate(("left", "right")):
        flow = flows(table, name, mode="merge")
        flow.query = (
            f"SELECT id, name, seen FROM {flow.source_name} WHERE id BETWEEN {number * 100} AND {number * 100 + 99} "
            f"UNION ALL SELECT 500, '{name}', seen FROM {flow.source_name} WHERE id = {number * 100}"
        )
        both.append(flow)
    both[0].give([item(number * 100 + key) for number in range(2) for key in range(10)])
    both[0].run()
    failures: list[BaseException] = []

    def work(flow: Flow) -> None:
        try:
            for _ in range(ROUNDS):
                flow.run()
        except BaseException as error:  # noqa: BLE001 - told by the test itself
            failures.append(error)

    threads = [threading.Thread(target=work, args=(flow,)) for flow in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
    assert [row["id"] for row in both[0].rows()] == [*range(10), *range(100, 110), 500]
    assert len(both[0].points("ledger")) == 1 + 2 * ROUNDS
    assert {row["status"] for row in both[0].points("run_history")} == {"success"}
