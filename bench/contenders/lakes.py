"""The measured pipelines into lake tables and Parquet files; batches of ematix-flow 1.0.0 do not go into Delta."""

from __future__ import annotations

import os
from typing import Annotated

from ematix_flow import ematix, pk
from ematix_flow.types import BigInt, Boolean, Double, Integer, Numeric, String, Text, TimestampTZ

LAKE = os.environ["BENCH_LAKE"]
KIND = os.environ["BENCH_LAKE_KIND"]


if KIND == "delta":

    @ematix.connection
    class lake:
        """Delta tables in a folder."""

        kind = "delta_local"
        path = LAKE

elif KIND == "iceberg":

    @ematix.connection
    class lake:
        """Iceberg tables in a folder."""

        kind = "iceberg"
        catalog_type = "hadoop"
        warehouse = LAKE

else:

    @ematix.connection
    class lake:
        """Parquet files in a folder."""

        kind = "object_store_local"
        path = LAKE
        format = "parquet"


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


@ematix.pipeline(target=Events, source_connection="src", target_connection="lake", mode="append", name="from_postgres")
def from_postgres(src):
    """Every row of a table."""
    return "SELECT id, customer, name, code, amount, score, happened_at, active FROM raw.events_a"


if "BENCH_FILES" in os.environ:

    @ematix.connection
    class landing:
        """The folder with the changed rows."""

        kind = "object_store_local"
        path = os.environ["BENCH_FILES"]
        format = "parquet"

    @ematix.pipeline(target=Events, source_connection="landing", target_connection="lake", mode="merge")
    def merge(files):
        """Every row of the files."""
        return "."

    @ematix.pipeline(target=Events, source_connection="landing", target_connection="lake", mode="scd2")
    def scd2(files):
        """Every row of the files."""
        return "."
