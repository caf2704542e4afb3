"""A target that was declared alone and is one of several now, or the other way round: it goes on where it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import failpoints
from ematix_flow.commit.ledger import HistoryRow, Ledger, open_run, transaction
from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine import preview_pipeline
from ematix_flow.engine.batch import load
from ematix_flow.engine.review.apply import apply_plan
from ematix_flow.engine.review.diff import diff_pipeline
from ematix_flow.errors import FencedError, PlanError, StalePlanError
from ematix_flow.records import Token
from tests.contracts.flows import START, in_and_out
from tests.contracts.systems import only

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

# Without a key, so that a table takes the same row twice.
COLUMNS = (Column(BigInt(), name="id"), Column(Text(), name="note"))
FIRST, SECOND = (Table("analytics", name, COLUMNS) for name in ("first", "second"))
APPEND: dict[str, Any] = {"mode": "append", "incremental_column": "id"}


def alone(flow: Flow, table: Table = FIRST, **options: Any) -> Flow:
    """Return the flow with one target."""
    flow.table, flow.write, flow.declared = table, APPEND | options, {}
    return flow


def listed(flow: Flow, *tables: Table, **options: Any) -> Flow:
    """Return the flow with a list of targets."""
    targets = tuple(TargetDeclaration(table, write(**APPEND | options), flow.connection) for table in tables)
    flow.declared = {"targets": targets, "fan_out": True}
    return flow


def row(key: int) -> Row:
    return {"id": key, "note": "n"}


def ids(flow: Flow, table: Table) -> list[int]:
    return sorted(one["id"] for one in replace(flow, table=table, declared={}).rows())


def names(flow: Flow) -> dict[str, str]:
    return {one["pipeline_name"]: one["last_value"] for one in flow.points("watermarks")}


@in_and_out
def test_a_target_alone_and_in_a_list_is_the_same_target(flows: Flows) -> None:
    flow = alone(flows(FIRST, **APPEND))
    flow.run([row(1), row(2)])
    flow.add([row(3)])
    result = listed(flow, FIRST, SECOND).run()
    assert [result[f"analytics.{name}"]["rows_inserted"] for name in ("first", "second")] == [1, 3]
    assert names(flow) == {"flow::analytics.first": "3", "flow::analytics.second": "3"}
    flow.add([row(4)])
    alone(flow).run()
    assert names(alone(flow))["flow"] == "4"
    assert "flow::analytics.first" not in names(alone(flow))
    flow.add([row(5)])
    listed(flow, SECOND, FIRST).run()
    assert (ids(flow, FIRST), ids(flow, SECOND)) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert listed(flow, SECOND, FIRST).run()["analytics.first"]["rows_inserted"] == 0


@only("duckdb", "postgres")  # a preview asks no lake
def test_a_preview_says_whose_watermark_it_is(flows: Flows, system: Any) -> None:
    flow = alone(flows(FIRST, **APPEND))
    flow.run([row(1)])
    text = preview_pipeline(listed(flow, FIRST).pipeline).text()
    assert "goes on from the watermark of flow: as that this target was loaded before" in text
    assert "id after 1" in text


@in_and_out
def test_a_load_without_anything_new_leaves_the_watermark_where_it_is(flows: Flows) -> None:
    flow = alone(flows(FIRST, **APPEND))
    flow.run([row(1)])
    assert listed(flow, FIRST).run()["analytics.first"]["rows_inserted"] == 0
    assert names(flow) == {"flow": "1"}
    flow.add([row(2)])
    assert listed(flow, FIRST).run()["analytics.first"]["rows_inserted"] == 1
    assert names(flow) == {"flow::analytics.first": "2"}


@in_and_out
def test_a_load_that_fails_leaves_the_watermark_under_its_name(flows: Flows) -> None:
    flow = alone(flows(FIRST, **APPEND))
    flow.run([row(1)])
    flow.add([row(2)])
    failpoints.arm("commit.watermark=raise@1")
    try:
        with pytest.raises(failpoints.FailpointError):
            listed(flow, FIRST).run()
    finally:
        failpoints.arm("")
    assert names(flow) == {"flow": "1"}
    assert listed(flow, FIRST).run()["analytics.first"]["rows_inserted"] == 1


def test_loads_without_a_watermark_in_between_change_nothing(flows: Flows) -> None:
    flow = listed(flows(FIRST, **APPEND), FIRST, SECOND)
    flow.run([row(1), row(2)])
    # As a replay of rejects is one, for which a target of a list is declared alone.
    alone(flow, incremental_column=None).run([row(9)])
    assert listed(flow, FIRST, SECOND).run([row(1), row(2), row(3)])["analytics.first"]["rows_inserted"] == 1
    assert ids(flow, FIRST) == [1, 2, 3, 9]


def test_what_a_person_did_to_a_watermark_counts(flows: Flows) -> None:
    flow = alone(flows(FIRST, **APPEND))
    flow.run([row(1), row(2)])
    flow.execute(f"UPDATE {flow.metadata_name('watermarks')} SET last_value = '1'")
    assert listed(flow, FIRST).run()["analytics.first"]["rows_inserted"] == 1, "back to where it was set"
    flow.execute(f"DELETE FROM {flow.metadata_name('watermarks')}")
    assert alone(flow).run()["rows_inserted"] == 2, "from the beginning"
    flow.execute(f"DELETE FROM {flow.metadata_name('watermarks')}")
    assert listed(flow, FIRST).run()["analytics.first"]["rows_inserted"] == 2


def test_a_target_whose_watermark_another_one_took_is_refused_with_a_way_out(flows: Flows) -> None:
    flow = alone(flows(FIRST, **APPEND))
    flow.run([row(1), row(2)])
    flow.add([row(3)])
    alone(flow, SECOND).run()
    assert ids(flow, SECOND) == [3], "a pipeline goes on where it was, whatever its table"
    flow.add([row(4)])
    for tables in ((FIRST, SECOND), (SECOND, FIRST), (FIRST, SECOND)):
        with pytest.raises(PlanError, match=r"has loaded analytics.first up to 2 as its only target") as refused:
            listed(flow, *tables).run()
    assert ids(flow, FIRST) == [1, 2]
    assert ids(flow, SECOND) == [3, 4], "which has the watermark"
    assert "pipeline_name 'flow::analytics.first', column_name 'id', last_value '2'" in str(refused.value)
    at = Ledger(flow.database).at(START)
    flow.execute(f"INSERT INTO {flow.metadata_name('watermarks')} VALUES ('flow::analytics.first', 'id', '2', {at})")
    listed(flow, FIRST, SECOND).run()
    assert (ids(flow, FIRST), ids(flow, SECOND)) == ([1, 2, 3, 4], [3, 4])


def test_a_merge_begins_again_where_its_watermark_is_gone(flows: Flows) -> None:
    keyed = [
        replace(table, columns=(Column(BigInt(), primary_key=True, name="id"), *COLUMNS[1:]))
        for table in (FIRST, SECOND)
    ]
    flow = alone(flows(keyed[0], **APPEND), keyed[0], mode="merge")
    flow.run([row(1), row(2)])
    flow.add([row(3)])
    alone(flow, keyed[1], mode="merge").run()
    result = listed(flow, *keyed, mode="merge").run()
    assert result["analytics.first"]["rows_inserted"] == 1
    assert ids(flow, FIRST) == [1, 2, 3]


def test_another_pipeline_with_such_a_name_is_another_one(flows: Flows) -> None:
    flow = alone(flows(FIRST, "flow::analytics.first", **APPEND))
    flow.run([row(1)])
    flow.name = "flow"
    assert alone(flow).run()["rows_inserted"] == 1


@in_and_out
@pytest.mark.parametrize("first_listed", [False, True])
def test_both_declarations_exclude_each_other_while_they_run(
    flows: Flows, monkeypatch: pytest.MonkeyPatch, first_listed: bool
) -> None:
    flow = flows(FIRST, **APPEND)
    declare = (alone, lambda one: listed(one, FIRST)) if not first_listed else (lambda one: listed(one, FIRST), alone)
    declare[0](flow).run([row(1)])
    flow.add([row(2)])
    publish, overtaken = load.publish, []

    def overtake(*arguments: Any) -> Any:
        if not overtaken:
            overtaken.append(True)
            declare[1](flow).run()
        return publish(*arguments)

    monkeypatch.setattr(load, "publish", overtake)
    with pytest.raises(FencedError, match="a newer run"):
        declare[0](flow).run()
    assert ids(flow, FIRST) == [1, 2]
    statuses = [run["status"] for run in flow.points("run_history")]
    assert sorted(statuses) == ["failed", "success", "success"], "the one that was shut out does not run for ever"


def test_a_run_shuts_out_those_under_the_other_name_of_its_target(flows: Flows) -> None:
    database = flows(FIRST, **APPEND).database

    def opened(name: str, other: str, slot: str) -> Any:
        token = Token("p", "target:s.t", slot)
        history = HistoryRow(token.run_id, name, "s", "t", "append", "cross_db", START, "running")
        return open_run(database, token, name, history, name, other)[0]

    older = opened("p", "p::s.t", "1")
    newer = opened("p::s.t", "p", "2")
    session = database.session()
    try:
        with pytest.raises(FencedError), transaction(session):
            Ledger(database).lock_fence(session, older)
        newest = opened("p", "p::s.t", "3")
        with pytest.raises(FencedError), transaction(session):
            Ledger(database).lock_fence(session, newer)
        with transaction(session):
            Ledger(database).lock_fence(session, newest)
        rows = session.query(f"SELECT status FROM {Ledger(database).name('run_history')}")
    finally:
        session.close()
    assert sorted(status for (status,) in rows) == ["failed", "failed", "running"]


@only("duckdb", "sqlite")  # a plan for a server needs the module with its password
def test_a_plan_that_waits_takes_the_watermark_over_unless_the_target_went_on(flows: Flows, system: Any) -> None:
    flow = alone(flows(FIRST, **APPEND))
    flow.run([row(1)])
    flow.add([row(2)])
    diff = diff_pipeline(listed(flow, FIRST).pipeline, flow.options())
    apply_plan(diff.plan_id, flow.options())
    assert names(flow) == {"flow::analytics.first": "2"}
    flow.add([row(3)])
    diff = diff_pipeline(alone(flow).pipeline, flow.options())
    listed(flow, FIRST).run()
    with pytest.raises(StalePlanError):
        apply_plan(diff.plan_id, flow.options())
    assert ids(flow, FIRST) == [1, 2, 3]
