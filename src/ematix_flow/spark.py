"""Frames of Spark under their public names; nothing is defined here, and connections have the methods without this module too."""

from __future__ import annotations

from ematix_flow.engine.frames.interop import read_spark_df, to_pyspark, write_spark_df
from ematix_flow.engine.frames.interop import write_spark_df as from_pyspark

__all__ = ["from_pyspark", "read_spark_df", "to_pyspark", "write_spark_df"]
