"""Spark frames of tables that a user's query joins; each is a view under a name that no other command uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.run.read.relation_rows import relation_batch, relation_schema
from ematix_flow.run.read.split_frames import split_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.session import Split
    from ematix_flow.connect.base.source import SqlSource


def database_relation(
    spark: SparkSession,
    source: SqlSource,
    splits: tuple[Split, ...],
    columns: Sequence[SourceColumn],
    at_once: int | None = None,
) -> DataFrame:
    """Return the rows of a database in the types that SQL computes with; tasks read them, at most `at_once` at a time."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = relation_schema(columns)

    def read(number: int) -> Iterator[pa.RecordBatch]:
        return (relation_batch(batch, schema) for batch in source.read(splits[number]))

    return split_frame(spark, len(splits), read, from_arrow_schema(schema, prefer_timestamp_ntz=True), at_once)
