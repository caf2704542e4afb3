"""Who shapes the rows of files and frames, and the reason that a preview gives for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow import normalize as n
from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.declare.project import PROJECT
from ematix_flow.plan.batch import Inspection
from ematix_flow.plan.shape.placement import plan_shape
from ematix_flow.plan.shape.spark_reasons import declared_spark_reason, spark_reason
from ematix_flow.transforms import filter_where

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.pipeline import Pipeline

PLAIN = (SourceColumn("ID", "text", "string"), SourceColumn("name", "text", "string"))
INSPECTION = Inspection("raw", "w", "spark", source_columns=PLAIN, source_format="csv")


def declared(kind: Any = Text | None, **options: Any) -> Pipeline:
    table = ematix.table(schema="s", name="t")(
        type("T", (), {"__annotations__": {"id": Annotated[BigInt, pk()], "name": kind}})
    )
    pipeline = ematix.pipeline(name="load", target=table, target_connection="w", mode="append", **options)

    def load(conn: Any) -> str:
        return "x.csv"

    PROJECT.clear()
    return pipeline(load).pipeline


def reason_for_spark(pipeline: Pipeline, inspection: Inspection = INSPECTION) -> str:
    return spark_reason(pipeline, pipeline.targets[0], inspection)


def test_rows_that_are_shaped_one_by_one_need_nobody_else() -> None:
    pipeline = declared(Annotated[Text | None, n.trim()], column_map={"name": "NAME"})
    shaping = plan_shape(pipeline, pipeline.targets[0], INSPECTION, "cross_db", None)
    assert (shaping.place.value, shaping.place.reason) == ("task", "every row is shaped by itself")
    assert shaping.dialect == "duckdb"
    assert "TRY_CAST" in shaping.sql


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (Text | None, {"transforms_pre": [filter_where("1 = 1")]}, "transforms_pre= works on all rows at once"),
        (Annotated[Text | None, n.sql("upper(col)")], {}, "sql() on column 'name' is SQL of Spark"),
        (Annotated[Text | None, n.derive("id")], {}, "derive() on column 'name' is SQL of Spark"),
        (
            Annotated[Text | None, n.regex_replace("a(?=b)", "")],
            {},
            "RegexReplace on column 'name': DuckDB cannot look",
        ),
    ],
)
def test_a_declaration_may_need_spark(kind: Any, options: dict[str, Any], reason: str) -> None:
    pipeline = declared(kind, **options)
    assert reason in reason_for_spark(pipeline)
    assert declared_spark_reason(pipeline, pipeline.targets[0]) == reason_for_spark(pipeline)
    shaping = plan_shape(pipeline, pipeline.targets[0], INSPECTION, "cross_db", None)
    assert (shaping.place.value, shaping.dialect) == ("spark", "spark")


@pytest.mark.parametrize(
    ("inspection", "reason"),
    [
        (replace(INSPECTION, source_sql="SELECT 1"), "the source is a query over files"),
        (replace(INSPECTION, source_format="", rows_in_spark=True), "the source is a frame of Spark"),
        (replace(INSPECTION, source_format=""), "rows in memory are handed to Spark"),
        (replace(INSPECTION, source_format="", local_reason="engine = local"), ""),
        (INSPECTION, ""),
        (replace(INSPECTION, source_columns=(*PLAIN, SourceColumn("Name", "text"))), "two columns differ in case only"),
        (
            replace(INSPECTION, source_columns=(*PLAIN, SourceColumn("l", "json", "list<int>"))),
            "column 'l' is list<int>",
        ),
        (replace(INSPECTION, source_columns=(*PLAIN, SourceColumn("l", "json", "assumed"))), ""),
    ],
)
def test_a_source_may_need_spark(inspection: Inspection, reason: str) -> None:
    assert reason_for_spark(declared(), inspection) == reason


@pytest.mark.parametrize(
    ("family", "native", "alike"),
    [
        ("float", "double", False),
        ("timestamp_tz", "timestamp[us, tz=UTC]", False),
        ("decimal", "decimal128(20, 10)", False),
        ("decimal", "decimal128(20, 6)", True),
        ("integer", "int64", True),
        ("date", "date32[day]", True),
    ],
)
def test_values_that_are_written_differently_stay_with_spark(family: str, native: str, *, alike: bool) -> None:
    inspection = replace(INSPECTION, source_columns=(PLAIN[0], SourceColumn("name", family, native)))
    expected = "" if alike else f"column 'name' is {native}, which has to be written as text"
    assert reason_for_spark(declared(), inspection) == expected
    assert reason_for_spark(declared(BigInt | None), inspection) == ""


def test_a_column_map_that_computes_needs_spark() -> None:
    assert (
        reason_for_spark(declared(column_map={"name": "name || 'x'"}))
        == "column_map= computes 'name' with SQL of Spark"
    )
