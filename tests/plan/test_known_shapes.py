"""The query of a shape is written once for a table, and never taken for that of another one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.declare.pipeline.normalize import Default
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.plan.batch import Inspection
from ematix_flow.plan.shape import placement as shaping
from ematix_flow.plan.shape.placement import plan_shape

if TYPE_CHECKING:
    import pytest

    from ematix_flow.plan.shape.placement import Shaping

INSPECTION = Inspection(
    "events", "shop", "spark", source_columns=(SourceColumn("id", "text"),), source_format="json_lines"
)


def _shape(table: Table, inspection: Inspection = INSPECTION) -> Shaping:
    target = TargetDeclaration(table, write(mode="append"))
    return plan_shape(Pipeline("orders", lambda: None, (target,)), target, inspection, "cross_db", None)


def _table(default: object) -> Table:
    return Table(
        "shop", "orders", (Column(BigInt(), name="id"), Column(Text(), name="kind", normalizers=(Default(default),)))
    )


def test_the_same_table_gets_the_same_query_without_writing_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shaping._known_rows.cache_clear()
    first = _shape(_table("tea"))
    monkeypatch.setattr(shaping, "read_columns", None)
    assert _shape(_table("tea")) == first


def test_values_that_are_equal_and_not_the_same_have_queries_of_their_own() -> None:
    assert _table(1) == _table(True)
    assert _shape(_table(1)).sql != _shape(_table(True)).sql


def test_other_columns_of_the_source_have_a_query_of_their_own() -> None:
    more = replace(INSPECTION, source_columns=(SourceColumn("id", "text"), SourceColumn("kind", "text")))
    assert _shape(_table("tea")).sql != _shape(_table("tea"), more).sql
