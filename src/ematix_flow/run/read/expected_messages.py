"""Messages read as rows at once, in the types that those before them showed; what shows other types is not used."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ematix_flow.run.read.arrival import order_of
from ematix_flow.run.read.merged_types import as_type, inferred_columns, merged
from ematix_flow.run.read.message_frames import (
    REPORT,
    InferredSchema,
    decoded_messages,
    message_frame,
    numbered_messages,
    report_of,
    reported,
    typed_batch,
    typed_schema,
)
from ematix_flow.run.transform.frame_sql import Typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from pyspark.sql import SparkSession

    from ematix_flow.connect.base.stream_source import MessagePartition
    from ematix_flow.run.read.message_frames import Layout, Reader

    Types = Mapping[str, pa.DataType]

_REPORT = "_flow_report"
"""Column of what a task reports, in a row behind those of its messages."""

_REPORT_TYPE = pa.struct(REPORT)


def expected_messages(
    spark: SparkSession, partitions: Sequence[MessagePartition], layout: Layout, read: Reader, expected: Types
) -> tuple[Typed, InferredSchema] | None:
    """Return messages as rows of the expected types; None if they show other types, or if one of them is no row.

    A task types what it reads while it reads it, so that Spark keeps rows and never has the messages themselves.
    """
    if any(name.lower() == _REPORT for name in expected):
        return None
    schema = typed_schema(expected, layout).append(pa.field(_REPORT, _REPORT_TYPE))
    task = partial(typed_partition, layout=layout, read=read, expected=expected)
    retained = message_frame(spark, partitions, task, schema).persist()
    try:
        inferred = reported(retained.where(f"{_REPORT} IS NOT NULL").select(f"{_REPORT}.*").collect())
    except BaseException:
        retained.unpersist()
        raise
    if inferred.bad or [*inferred.types.items()] != [*expected.items()]:
        retained.unpersist()
        return None
    rows = retained.where(f"{_REPORT} IS NULL").drop(_REPORT)
    return Typed(retained, rows, layout.types(inferred), order_of(layout.line), empty=not inferred.rows), inferred


def typed_partition(
    partition: MessagePartition, number: int, layout: Layout, read: Reader, expected: Types
) -> Iterator[pa.Table]:
    """Return the rows of a partition, and behind them a row with the report; only that, once something does not fit."""
    schema = typed_schema(expected, layout)
    inferred = InferredSchema()
    for batch in (batch for table in numbered_messages(partition, number, layout) for batch in table.to_batches()):
        decoded, there, wrong = decoded_messages(batch, read)
        arrays = inferred_columns(decoded)
        types = {name: array.type for name, array in arrays.items()}
        inferred = inferred.with_messages(batch, types, len(decoded), len(wrong))
        if inferred.bad or merged(expected, inferred.types) != expected:
            break
        if decoded:
            columns = [_fitted(arrays.get(name), decoded, schema.field(name)) for name in expected]
            rows = pa.Table.from_batches([typed_batch(columns, there, schema, layout)])
            yield rows.append_column(_REPORT, pa.nulls(rows.num_rows, _REPORT_TYPE))
    nothing = [pa.nulls(1, kind) for kind in schema.types]
    yield pa.table([*nothing, report_of(inferred, number).to_struct_array()], names=[*schema.names, _REPORT])


def _fitted(array: pa.Array | None, rows: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    """Return the values of a field in the type that is expected."""
    if array is None or pa.types.is_null(array.type):
        return pa.nulls(len(rows), field.type)
    return array if array.type == field.type else as_type([row.get(field.name) for row in rows], field.type)
