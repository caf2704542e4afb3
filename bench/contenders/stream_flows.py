"""The measured streams of this product: records of a topic or a queue into a table."""

from __future__ import annotations

import os
from typing import Annotated

from ematix_flow import ematix, pk
from ematix_flow.types import BigInt, Boolean, Double, Integer, Numeric, String, Text, TimestampTZ

SOURCE, QUERY = os.environ["BENCH_STREAM"], os.environ["BENCH_QUERY"]
TARGET = os.environ["BENCH_STREAM_TARGET"]


if SOURCE == "kafka":

    @ematix.connection
    class feed:
        """The broker of the bench."""

        kind = "kafka"
        bootstrap_servers = os.environ["BENCH_BROKER"]

else:

    @ematix.connection
    class feed:
        """The broker of the bench."""

        kind = "rabbitmq"
        amqp_url = os.environ["BENCH_BROKER"]


if TARGET == "lake":

    @ematix.connection
    class lake:
        """Delta tables in a folder."""

        kind = "delta_local"
        path = os.environ["BENCH_LAKE"]


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


@ematix.streaming_pipeline(
    source="feed",
    source_query=QUERY,
    target=TARGET,
    target_table=Events,
    max_rows_per_batch=int(os.environ["BENCH_BATCH"]),
)
def events():
    """Every record."""
