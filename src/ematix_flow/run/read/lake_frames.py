"""Rows that were added to lake tables, as Spark reads them; which ones these are is decided by the source."""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING

from ematix_flow.connect.lake.stream_source import AddedFiles, Appended
from ematix_flow.connect.types.identifiers import backticked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.lake.stream_source import Added


def added_frame(spark: SparkSession, added: Added) -> DataFrame:
    """Return the rows with the columns that the table has."""
    if isinstance(added, Appended):
        reader = spark.read.option("start-snapshot-id", str(added.begin)).option("end-snapshot-id", str(added.end))
        return reader.table(added.relation)
    whole = spark.sql(f"SELECT * FROM {added.relation} VERSION AS OF {added.number}")
    return _of_files(spark, whole, added) if isinstance(added, AddedFiles) else whole


def _of_files(spark: SparkSession, whole: DataFrame, added: AddedFiles) -> DataFrame:
    """Read the files themselves: for the rows of some files, Delta would read all that the table has."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    kinds = {field.name: field.dataType for field in whole.schema.fields}
    frames = []
    for values, paths in added.groups:
        divided = dict(values)
        layout = st.StructType([field for field in whole.schema.fields if field.name not in divided])
        rows = spark.read.schema(layout).parquet(*map(_escaped, paths))
        columns = {name: sf.lit(value).cast(kinds[name]) for name, value in divided.items()}
        frames.append(rows.select(*(columns[n].alias(n) if n in columns else sf.col(backticked(n)) for n in kinds)))
    return reduce(lambda one, other: one.unionAll(other), frames) if frames else whole.limit(0)


def _escaped(path: str) -> str:
    """Return a path that Spark does not take for a pattern."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
