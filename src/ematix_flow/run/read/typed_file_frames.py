"""Files as frames with the types that their values show: tasks read them, and only what the columns show comes to the driver."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.plan.columns import CORRUPT, ORDER, POSITION
from ematix_flow.plan.sql.user.row_errors import ROW
from ematix_flow.run.read.arrival import numbered_partitions
from ematix_flow.run.read.file_partitions import split_files
from ematix_flow.run.read.frames import partition_frame
from ematix_flow.run.read.infer_files import VALUE_PATTERNS, rejected_lines
from ematix_flow.run.spark.map_batches import map_batches
from ematix_flow.run.spark.slots import session_slots
from ematix_flow.run.transform.frame_sql import Typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.files.source import FileSet
    from ematix_flow.run.read.file_partitions import FilePartition

_OWN_COLUMNS = (CORRUPT, POSITION, ORDER, ROW)


def typed_file_frame(spark: SparkSession, files: FileSet) -> Typed:
    """Return the rows of files, with the texts of CSV as the values that they show."""
    from pyspark.sql import functions as sf

    partitions = numbered_partitions(split_files(files, slots=partial(session_slots, spark)), files.paths)
    layout = _layout(partitions)
    raw = partition_frame(spark, partitions, layout).withColumn(ROW, sf.col(ORDER)).persist()
    types = {field.name: field.type for field in layout if field.name not in _OWN_COLUMNS}
    if files.format != "csv":
        return Typed(raw, raw, types, (ORDER,))
    try:
        kinds, rows, bad = _infer_types(raw, list(types))
    except BaseException:
        raw.unpersist()
        raise
    unreadable = _unreadable(raw) if bad else None
    return Typed(raw, _valued(raw, kinds), kinds, (ORDER,), empty=not rows, unreadable=unreadable)


def _layout(partitions: Sequence[FilePartition]) -> pa.Schema:
    """Return the columns of partitions, of which the first rows are read."""
    for partition in partitions:
        for table in partition.read():
            return table.schema
    return pa.schema([pa.field(POSITION, pa.string()), pa.field(ORDER, pa.int64())])


def _infer_types(raw: DataFrame, names: Sequence[str]) -> tuple[dict[str, pa.DataType], int, int]:
    """Return the types that texts show, and how many lines are rows and how many are none."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fits = {name: (True,) * len(VALUE_PATTERNS) for name in names}
        values = dict.fromkeys(names, 0)
        rows = bad = 0
        for batch in batches:
            good = batch.filter(pc.is_null(batch.column(CORRUPT)))
            rows, bad = rows + good.num_rows, bad + batch.num_rows - good.num_rows
            for name in names:
                texts = good.column(name)
                values[name] += len(texts) - texts.null_count
                matches = (
                    pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False
                    for pattern, _ in VALUE_PATTERNS
                )
                fits[name] = tuple(a and b for a, b in zip(fits[name], matches, strict=True))
        columns = [
            pa.array([[[*fits[name], bool(values[name])] for name in names]], pa.list_(pa.list_(pa.bool_()))),
            *(pa.array([count], pa.int64()) for count in (rows, bad)),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["fits", "rows", "bad"])

    reports = map_batches(raw, task, "fits array<array<boolean>>, rows bigint, bad bigint").collect()
    kinds: dict[str, pa.DataType] = {}
    for number, name in enumerate(names):
        reported_fits = [report.fits[number] for report in reports]
        fitting = [kind for n, (_, kind) in enumerate(VALUE_PATTERNS) if all(reported[n] for reported in reported_fits)]
        kinds[name] = fitting[0] if fitting and any(reported[-1] for reported in reported_fits) else pa.string()
    return kinds, sum(report.rows for report in reports), sum(report.bad for report in reports)


def _valued(raw: DataFrame, kinds: dict[str, pa.DataType]) -> DataFrame:
    """Return lines that are rows with the values that their texts show."""
    from pyspark.sql.pandas.types import from_arrow_schema

    position_fields = [pa.field(POSITION, pa.string()), pa.field(ORDER, pa.int64()), pa.field(ROW, pa.int64())]
    schema = pa.schema([*(pa.field(name, kind) for name, kind in kinds.items()), *position_fields])

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            good = batch.filter(pc.is_null(batch.column(CORRUPT)))
            columns = [pc.cast(good.column(field.name), field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return map_batches(raw, task, from_arrow_schema(schema))


def _unreadable(raw: DataFrame) -> DataFrame:
    """Return lines that are no rows as rejects."""
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.types import from_arrow_schema

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from rejected_lines(pa.Table.from_batches([batch])).to_batches()

    wrong = raw.where(sf.col(backticked(CORRUPT)).isNotNull())
    return map_batches(wrong, task, from_arrow_schema(REJECTS))
