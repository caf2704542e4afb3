"""Spark frames of tables that a user's query joins; each is a view under a name that no other command uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.run.relation_rows import relation_batch, relation_schema
from ematix_flow.run.task_folder import in_this_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ematix_flow.connect.base import Database, SourceColumn, Split


def database_relation(
    spark: SparkSession,
    source: Database,
    splits: tuple[Split, ...],
    columns: Sequence[SourceColumn],
    at_once: int | None = None,
) -> DataFrame:
    """Return the rows of a database in the types that SQL computes with; tasks read them, at most `at_once` at a time."""
    schema = relation_schema(columns)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for read in source.read(splits[number]):
                    yield relation_batch(read, schema)

    tasks = max(1, min(len(splits), at_once or len(splits)))
    return spark.range(0, len(splits), 1, tasks).mapInArrow(in_this_folder(task), _spark_schema(columns))


def _spark_schema(columns: Sequence[SourceColumn]) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(relation_schema(columns), prefer_timestamp_ntz=True)
