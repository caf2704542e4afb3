"""A plan that is stored comes back equal, whatever its mode and its database."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from ematix_flow.commit.ledger import HistoryRow
from ematix_flow.commit.plan_codec import decode, encode
from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.stage import StageSpec
from ematix_flow.declare.table.partitions import Partition
from ematix_flow.engine.batch.commit_request import commit_request_for
from ematix_flow.errors import CommitError
from ematix_flow.plan.quality import without_functions
from ematix_flow.plan.sql.ddl import TableDefinition
from ematix_flow.plan.steps import FileChoice
from ematix_flow.records import Fence, FileScope, SourceFile, TaskReport
from tests.plan.scenarios import SCENARIOS, WAREHOUSES, planned

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def there_and_back(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", WAREHOUSES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_an_order_comes_back_equal(name: str, dialect: str) -> None:
    spec = StageSpec("stg_1", b"\x00\xff", required=frozenset({"b", "a"}), stamp=("x", "y"), options=(("k", 1),))
    parts = (TaskReport(0, 7, 3, 1, "a b", "c", "first"),)
    for target_plan in planned(name, dialect).targets:
        plan = replace(target_plan, audit=without_functions(target_plan.audit))
        history = HistoryRow("r", "p", "s", "t", "merge", "cross_db", AT, "running")
        stored_plan, stored_spec, stored_parts = there_and_back((plan, spec, parts))
        order = commit_request_for(stored_plan, Fence("f", 2), history, stored_spec, stored_parts)
        assert order == commit_request_for(plan, Fence("f", 2), history, spec, parts)
        assert stored_plan == plan


@pytest.mark.parametrize(
    "value",
    [None, True, 5, 2.5, "é", (), ("a", (1,)), [1], {"a": {"b": (1,)}}, Decimal("1.50"), timedelta(days=-1), AT],
)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


def test_new_files_and_partitions_come_back_equal() -> None:
    file = SourceFile("in/a.csv", "1-2", 3)
    choice = FileChoice(FileScope("p", "s.t"), "load", (file,), (file,), 4)
    definition = TableDefinition(
        TableName("s", "t"), (), (), (), (Partition("at", "days"), Partition("id", "bucket", 16))
    )
    assert there_and_back((choice, definition)) == (choice, definition)


def test_other_values_are_refused_in_both_directions() -> None:
    with pytest.raises(CommitError, match="cannot hold a value of type object"):
        encode(object())
    with pytest.raises(CommitError, match="'Popen'"):
        decode({"is": "Popen", "args": ["true"]})
