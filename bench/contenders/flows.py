"""The measured pipelines; the same file is run by this product and by ematix-flow 1.0.0."""

from __future__ import annotations

import os
from typing import Annotated

from ematix_flow import ematix, pk
from ematix_flow.types import BigInt, Boolean, Double, Integer, Numeric, String, Text, TimestampTZ

ROWS = os.environ.get("BENCH_TABLE", "raw.events_a")
"""The table that is read; loads of changes alternate between two of them."""

SOURCE, TARGET = os.environ.get("BENCH_SOURCE", "src"), os.environ.get("BENCH_TARGET", "dst")
QUERY = f"SELECT id, customer, name, code, amount, score, happened_at, active FROM {ROWS}"


@ematix.table(schema="bench")
class Events:
    """Eight columns of mixed types."""

    id: Annotated[BigInt, pk()]
    customer: Integer
    name: Text
    code: String[40]
    amount: Numeric[12, 2]
    score: Double
    happened_at: TimestampTZ
    active: Boolean


@ematix.pipeline(target=Events, source_connection=SOURCE, target_connection=TARGET, mode="append", name="append")
def append(src, dst):
    """Every row."""
    return QUERY


@ematix.pipeline(target=Events, source_connection=SOURCE, target_connection=TARGET, mode="merge", name="merge")
def merge(src, dst):
    """Every row, half of them changed since the last load."""
    return QUERY


@ematix.pipeline(target=Events, source_connection=SOURCE, target_connection=TARGET, mode="scd2", name="scd2")
def scd2(src, dst):
    """Every row, a tenth of them changed since the last load."""
    return QUERY
