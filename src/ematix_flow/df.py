"""Frames under their public names; nothing is defined here, and connections have the methods without this module too."""

from __future__ import annotations

from ematix_flow.engine.frames.dataset import Dataset, dataset
from ematix_flow.engine.frames.interop import (
    read_batches,
    read_df,
    scan_df,
    to_arrow,
    to_pandas,
    to_polars,
    write_df,
)
from ematix_flow.engine.frames.interop import write_df as from_arrow
from ematix_flow.engine.frames.interop import write_df as from_pandas
from ematix_flow.engine.frames.interop import write_df as from_polars

__all__ = [
    "Dataset",
    "dataset",
    "from_arrow",
    "from_pandas",
    "from_polars",
    "read_batches",
    "read_df",
    "scan_df",
    "to_arrow",
    "to_pandas",
    "to_polars",
    "write_df",
]
