"""What makes Spark evaluate the shape of files and frames, in words; everything else is shaped where it is staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline.normalize import Derive, ParseBool, ParseDate, ParseTimestamp, Sql
from ematix_flow.plan.sql.unsupported import reason_against

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.declare.table.schema import Column, Table
    from ematix_flow.plan.batch import Inspection

TASK_DIALECT = "duckdb"
"""The dialect of a task that shapes rows itself."""

_READ_AS_TEXT = (ParseTimestamp, ParseDate, ParseBool)
_SPELLED_ALIKE = 6
"""Decimals after the point up to which a small number is never written with an exponent."""


def declared_spark_reason(pipeline: Pipeline, target: TargetDeclaration) -> str:
    """Return what the declaration alone needs Spark for, or an empty text."""
    if pipeline.transforms_pre:
        return "transforms_pre= works on all rows at once"
    for column in target.table.columns:
        for step in column.normalizers:
            if isinstance(step, Sql | Derive):
                return f"{type(step).__name__.lower()}() on column {column.name!r} is SQL of Spark"
            reason = reason_against(step, TASK_DIALECT)
            if reason:
                return f"{type(step).__name__} on column {column.name!r}: {reason}"
    return ""


def spark_reason(pipeline: Pipeline, target: TargetDeclaration, inspection: Inspection) -> str:
    """Return what a source of files or rows in memory needs Spark for, or an empty text."""
    if inspection.connections:
        return "the source is a query over several connections"
    if inspection.source_sql:
        return "the source is a query over files"
    if inspection.rows_in_spark:
        return "the source is a frame of Spark"
    if inspection.source_format == "" and not inspection.local_reason:
        return "rows in memory are handed to Spark"
    mapped = target.column_map or {}
    return (
        declared_spark_reason(pipeline, target)
        or _computed(mapped, inspection.source_columns)
        or _typed(target.table, mapped, inspection.source_columns)
    )


def _computed(mapped: Mapping[str, str], columns: Sequence[SourceColumn]) -> str:
    names = {column.name.lower() for column in columns}
    for name, origin in mapped.items():
        if origin.lower() not in names:
            return f"column_map= computes {name!r} with SQL of Spark"
    return ""


def _typed(table: Table, mapped: Mapping[str, str], columns: Sequence[SourceColumn]) -> str:
    """Return the column whose values Spark and DuckDB would not carry or write alike."""
    names = [column.name.lower() for column in columns]
    known = dict(zip(names, columns, strict=True))
    if len(known) != len(names):
        return "two columns differ in case only"
    for source in columns:
        if source.native != "assumed" and source.family in ("json", "other"):
            return f"column {source.name!r} is {source.native}"
    for column in table.columns:
        source_column = known.get(mapped.get(column.name, column.name).lower())
        if source_column is not None and _becomes_text(column) and not _writes_alike(source_column):
            return f"column {column.name!r} is {source_column.native}, which has to be written as text"
    return ""


def _becomes_text(column: Column) -> bool:
    as_text = column.type.kind in ("text", "string")
    return as_text or any(isinstance(step, _READ_AS_TEXT) for step in column.normalizers)


def _writes_alike(source: SourceColumn) -> bool:
    if source.family == "decimal":
        scale = source.native.rpartition(",")[2].strip(" )")
        return scale.isdigit() and int(scale) <= _SPELLED_ALIKE
    return source.family not in ("float", "timestamp_tz")
