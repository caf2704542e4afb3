"""The measured change data capture of ematix-flow 1.0.0, which takes it from TOML only: changes of a topic into a table that is there."""

from __future__ import annotations

import os

from ematix_flow import run_pipeline

run_pipeline(
    config_str=f"""
pipeline_name = "changes"
source_query = "{os.environ["BENCH_QUERY"]}"
[source]
kind = "kafka"
bootstrap_servers = "{os.environ["BENCH_BROKER"]}"
group_id = "{os.environ["BENCH_GROUP"]}"
payload_format = "json"
auto_offset_reset = "earliest"
[target]
kind = "postgres"
url = "{os.environ["BENCH_DST_URL"]}"
[target.table]
schema = "bench"
name = "events"
primary_key = ["id"]
[transform.cdc]
envelope = "debezium"
"""
)
