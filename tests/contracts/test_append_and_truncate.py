"""append and truncate as pipelines: every row once, and old rows or new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.errors import CommitError, RunError
from tests.contracts.flows import in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

EVENTS = Table("analytics", "events", (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="what")))


def event(key: int, what: str | None = "seen") -> Row:
    return {"id": key, "what": what}


@pytest.mark.every_system
@in_and_out
def test_append_adds_every_row_and_stamps_it_with_its_load(flows: Flows, path: str) -> None:
    flow = flows(EVENTS, mode="append")
    first = flow.run([event(1), event(2, None)])
    second = flow.run([event(3)])
    assert (first["status"], first["rows_inserted"], second["rows_inserted"]) == ("success", 2, 1)
    assert first["path"] == ("same_db" if path == "same_db" else "cross_db")
    assert flow.rows() == [event(1), event(2, None), event(3)]
    assert {key: batch for key, (_, batch) in flow.stamps().items()} == {
        1: first["run_id"],
        2: first["run_id"],
        3: second["run_id"],
    }
    assert {at.hour for at, _ in flow.stamps().values()} == {1, 2}


@in_and_out
def test_columns_are_matched_by_name_and_others_are_ignored(flows: Flows) -> None:
    more = (Column(Text(), name="note"), Column(Text(), name="what"), Column(BigInt(), name="id"))
    flow = flows(EVENTS, mode="append", source=more)
    flow.run([{"note": "not declared", "what": "seen", "id": 1}])
    assert flow.rows() == [event(1)]


@in_and_out
def test_a_declared_column_that_the_source_lacks_is_refused_by_name(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append", source=(Column(BigInt(), name="id"),))
    with pytest.raises((RunError, ValueError), match="what"):
        flow.run([{"id": 1}])


@in_and_out
def test_a_key_that_is_there_already_fails_the_whole_load_once(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append")
    flow.run([event(1)])
    with pytest.raises(CommitError):
        flow.run([event(2), event(1, "again")])
    assert flow.rows() == [event(1)]
    assert flow.slept == [], "a constraint is no reason to try again"
    assert [row["status"] for row in flow.points("run_history")] == ["success", "failed"]


@pytest.mark.every_system
@in_and_out
def test_truncate_leaves_the_new_rows_only(flows: Flows) -> None:
    flow = flows(EVENTS, mode="truncate")
    flow.run([event(1), event(2)])
    result = flow.run([event(2, "new"), event(3)])
    assert (result["rows_inserted"], result["rows_deleted"]) == (2, 2)
    assert flow.rows() == [event(2, "new"), event(3)]


@in_and_out
def test_a_truncate_that_fails_leaves_the_old_rows(flows: Flows) -> None:
    flow = flows(EVENTS, mode="truncate")
    flow.run([event(1), event(2)])
    with pytest.raises(CommitError):
        flow.run([event(3), event(3, "twice")])
    assert flow.rows() == [event(1), event(2)]


@in_and_out
def test_truncate_refuses_an_empty_source_unless_it_is_allowed(flows: Flows) -> None:
    flow = flows(EVENTS, mode="truncate")
    flow.run([event(1)])
    with pytest.raises(CommitError, match="allow_empty"):
        flow.run([])
    assert flow.rows() == [event(1)]
    flow.write["allow_empty"] = True
    assert flow.run([])["rows_deleted"] == 1
    assert flow.rows() == []


@in_and_out
def test_an_empty_append_is_a_load_of_nothing(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append")
    assert flow.run([])["rows_inserted"] == 0
    assert flow.rows() == []
    assert [row["status"] for row in flow.points("run_history")] == ["success"]
