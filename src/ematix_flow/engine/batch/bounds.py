"""Fixes the range of an incremental load of files and frames, over the shaped rows; `inspect` queries databases."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.engine.batch.inspect import with_bounds
from ematix_flow.engine.batch.stager import raw_frame, translating_spark_errors
from ematix_flow.engine.frames.columns import frame_columns
from ematix_flow.errors import RunError
from ematix_flow.plan.assumed_columns import FAMILIES
from ematix_flow.plan.bounds import check_comparable, highest_of_some_sql, highest_sql, lower_bound
from ematix_flow.plan.shape.placement import plan_shape
from ematix_flow.plan.sql.watermark_values import stored_value
from ematix_flow.plan.steps import TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.plan.batch import Inspection
    from ematix_flow.plan.shape.placement import Shaping

_CARRIED_AS_TEXT = ("json", "uuid")


@dataclass(frozen=True, slots=True)
class BoundsRequest:
    """Rows whose range is required, and the load that requires it."""

    pipeline: Pipeline
    target: TargetDeclaration
    source: OpenSource
    load_inspection: LoadInspection


def bound_rows(request: BoundsRequest, inspection: Inspection, spark: Callable[[], Any]) -> Inspection:
    """Return the inspection with the range of the load; Spark is queried only where it evaluates the shape."""
    shaping = _shaping(request, inspection) if inspection.source_columns else None
    if shaping is None or shaping.place.value != TASK:
        return _bound_in_spark(request, inspection, spark)
    column = _declared(request.target)
    check_comparable(column, "spark")
    lo = lower_bound(inspection.watermark, request.target.write)
    sql = highest_of_some_sql(shaping.sql, lo, column, request.target.write, shaping.dialect)
    highest, nulls = _highest(request, sql)
    if highest is not None and column.family == "timestamp_tz":
        # As Spark writes it, so that either may go on where the other one ended.
        highest = highest.removesuffix("+00")
    return with_bounds(request.target, inspection, lo, stored_value(highest, column, shaping.dialect), nulls)


def _shaping(request: BoundsRequest, inspection: Inspection) -> Shaping:
    return plan_shape(request.pipeline, request.target, replace(inspection, bounds=None), "cross_db", None)


def _highest(request: BoundsRequest, sql: str) -> tuple[str | None, int]:
    from ematix_flow.run.read.file_partitions import split_files
    from ematix_flow.run.stage.file_tasks import frame_partition, highest_in

    if request.load_inspection.files is not None:
        return highest_in(split_files(request.load_inspection.files), sql)
    return highest_in([frame_partition(request.source.value.frame)], sql)


def _declared(target: TargetDeclaration) -> SourceColumn:
    """Return the watermark's column as the shape returns it."""
    name = target.write.incremental_column
    column = next((column for column in target.table.columns if column.name == name), None)
    if column is None:
        raise _undeclared(target)
    family = FAMILIES[column.type.kind]
    return SourceColumn(column.name, "text" if family in _CARRIED_AS_TEXT else family)


def _bound_in_spark(request: BoundsRequest, inspection: Inspection, spark: Callable[[], Any]) -> Inspection:
    with translating_spark_errors(), ExitStack() as resources:
        raw = raw_frame(spark(), request.source, request.load_inspection, inspection.source_sql, resources)
        return _bound_of(request, inspection, spark, raw)


def _bound_of(request: BoundsRequest, inspection: Inspection, spark: Callable[[], Any], raw: Any) -> Inspection:
    from ematix_flow.run.read.frames import shaped_frame

    target = request.target
    if not inspection.source_columns:
        inspection = replace(inspection, source_columns=frame_columns(raw))
    shaping = _shaping(request, inspection)
    shaped = shaped_frame(spark(), raw, shaping.sql)
    column = next((c for c in frame_columns(shaped) if c.name == target.write.incremental_column), None)
    if column is None:
        raise _undeclared(target)
    check_comparable(column, "spark")
    lo = lower_bound(inspection.watermark, target.write)
    sql = highest_sql(shaping.sql, lo, column, target.write, "spark")
    row = shaped_frame(spark(), raw, sql).collect()[0]
    return with_bounds(target, inspection, lo, stored_value(row[0], column, "spark"), int(row[1] or 0))


def _undeclared(target: TargetDeclaration) -> RunError:
    name = target.write.incremental_column
    return RunError(f"incremental_column {name!r} must be a declared column when files are read")
