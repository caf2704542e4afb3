"""The measured streams of this product that remember: windows, sessions and a join, into PostgreSQL."""

from __future__ import annotations

import os
from datetime import timedelta

from ematix_flow import Aggregation, Dedupe, Join, Source, StateStore, Watermark, Window, ematix

QUERIES = os.environ["BENCH_QUERY"].split(",")
INTO = {
    "target": "dst",
    "target_table": ("bench", "events"),
    "create_table": True,
    "max_rows_per_batch": int(os.environ["BENCH_BATCH"]),
    "watermark": Watermark(lateness_ms=0),
}
AGGREGATIONS = [
    Aggregation(agg="count", as_="events"),
    Aggregation(agg="sum", column="amount", as_="amount"),
]


@ematix.connection
class feed:
    """The broker of the bench."""

    kind = "kafka"
    bootstrap_servers = os.environ["BENCH_BROKER"]


@ematix.streaming_pipeline(
    source="feed",
    source_query=QUERIES[0],
    **INTO,
    window=Window(
        kind="tumbling",
        duration_ms=60_000,
        event_time_column="happened_at",
        group_by=("customer",),
        aggregations=AGGREGATIONS,
    ),
)
def tumbling():
    """Count by the minute and customer."""


@ematix.streaming_pipeline(
    source="feed",
    source_query=QUERIES[0],
    **INTO,
    window=Window(
        kind="session",
        gap_ms=7_000,
        max_session_duration_ms=3_600_000,
        event_time_column="happened_at",
        group_by=("customer",),
        aggregations=AGGREGATIONS,
    ),
    state_store=StateStore(kind="postgres", url=os.environ["BENCH_DST_URL"]),
)
def session():
    """Count what a customer did without a pause of seven seconds."""


@ematix.streaming_pipeline(
    source="feed",
    source_query=QUERIES[0],
    **INTO,
    window=Window(
        kind="tumbling",
        duration_ms=1_000,
        event_time_column="happened_at",
        group_by=("active",),
        aggregations=AGGREGATIONS,
    ),
)
def seconds():
    """Count by the second."""


@ematix.streaming_pipeline(
    source="feed",
    source_query=QUERIES[0],
    **INTO,
    deduplicate=Dedupe(keys=("id",), within=timedelta(days=1), event_time_column="happened_at"),
)
def keys():
    """Load every record once."""


if len(QUERIES) > 1:

    @ematix.streaming_pipeline(
        sources=[Source("feed", QUERIES[0]), Source("feed", QUERIES[-1])],
        **INTO,
        join=Join(
            left_source=QUERIES[0],
            right_source=QUERIES[-1],
            left_keys=("id",),
            right_keys=("id",),
            time_window_ms=60_000,
            kind="inner",
            event_time_column="happened_at",
        ),
        state_store=StateStore(kind="postgres", url=os.environ["BENCH_DST_URL"]),
    )
    def join():
        """Pair records with one key and about one time."""
