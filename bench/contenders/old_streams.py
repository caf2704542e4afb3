"""The measured streams of ematix-flow 1.0.0: records of a topic into a table that is there."""

from __future__ import annotations

import os

from ematix_flow import ematix


@ematix.connection
class feed:
    """The broker of the bench; a group of its own each time, because that is what remembers how far it came."""

    kind = "kafka"
    bootstrap_servers = os.environ["BENCH_BROKER"]
    group_id = os.environ["BENCH_GROUP"]
    payload_format = "json"
    auto_offset_reset = "earliest"


@ematix.connection
class dst:
    """The database of the bench."""

    kind = "postgres"
    url = os.environ["BENCH_DST_URL"]


@ematix.streaming_pipeline(
    name="events",
    source="feed",
    source_query=os.environ["BENCH_QUERY"],
    target="dst",
    target_table=("bench", "events"),
)
def events():
    """Every record."""
