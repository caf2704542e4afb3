"""Keywords of streams: every accepted spelling and the one name it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAM_WRITE_KEYWORDS = {
    "mode": "append (default), merge (scd1) or scd2",
    "keys": "columns that identify a row, for merge and scd2",
    "update_columns": "columns that a merge writes when a row changed; every column that is not a key by default",
    "compare_columns": "columns whose change counts, for merge and scd2; every column that is not a key by default",
    "event_timestamp_column": "column with the time of an event; makes scd2 order-proof",
    "order_by": "columns by which the greatest row of a key wins, for merge and scd2; the last message by default",
    "on_replaced": "error (default), load or ignore: what happens to a file that was loaded and has changed since",
    "late_horizon": "how long scd2 remembers folded events; 30 days by default",
    "on_bad_row": "fail (default) or reject",
    "on_drift": "error (default), warn or evolve (add columns, widen types)",
}
"""How a stream writes; what it sets counts for every target that sets nothing itself."""

DESTINATION_KEYWORDS = {
    "target_table": "table class (created as declared) or (schema, name), for databases and lakes",
    "target_topic": "topic, for Kafka and Pub/Sub",
    "target_queue": "queue, for RabbitMQ",
    "target_prefix": "folder below a file connection",
    "target_partition_key_prefix": "beginning of the partition keys, for Kinesis",
    "target_message_key_column": "column whose value becomes the key of a message",
    "target_partition_by": "how a new lake table is divided",
    "target_primary_key": "columns that identify a row in the target",
    "create_table": "True creates a table that is only named, with the columns of the first rows",
}
"""Where in the connection of `target=` the rows go; with `targets=` each `Target(...)` sets it itself."""

STREAM_KEYWORDS = {
    "name": "name of the stream; its position is remembered under it",
    "source": "connection, or its name",
    "source_query": "topic, queue, subscription, stream, folder or table to read",
    "sources": "several sources: Source(connection, query)",
    "target": "connection, or its name; or a table class together with target_connection=",
    "target_connection": "connection of a table class in target= or target_table=",
    **DESTINATION_KEYWORDS,
    "targets": "several targets: Target(...)",
    **STREAM_WRITE_KEYWORDS,
    "transform_sql": "SELECT over `source` and the lookups, run over each batch",
    "dialect": "what transform_sql is written in: datafusion (default), spark, duckdb, postgres or mysql",
    "transform_on_error": "fail (default), drop or dlq: what happens to a batch whose SQL fails",
    "optional_fields": "fields that transform_sql reads and messages may lack: names, or name -> type of Spark SQL",
    "lookups": "name -> Lookup(...): tables that transform_sql can join",
    "udfs": "functions made by @udf that transform_sql can call",
    "aggregate_udfs": "classes made by @udaf that transform_sql can call",
    "window": "Window(...): aggregations by time",
    "join": "Join(...): two sources by key and time",
    "deduplicate": "Dedupe(...): rows whose keys came before within a time are left out",
    "cdc": "CDC(...): rows are change events of another database",
    "state_store": "StateStore(...): where state is kept between runs",
    "watermark": "Watermark(...): how late events may be",
    "delivery": "auto (default), at_least_once or exactly_once",
    "dead_letter_topic": "topic for rows that could not be written",
    "dlq_store": "auto (default), topic or table: where such rows are kept",
    "dlq_max_attempts": "how often such a row is tried before it is parked",
    "max_rows_per_batch": "at most so many rows are read at once",
    "idle_pause_ms": "pause when nothing was there; 500 by default",
    "metrics_port": "port of 127.0.0.1 that serves Prometheus metrics",
}
"""Keywords of a stream, each with its meaning; the reference is made from this."""

STREAM_ALIASES = {
    "source_topic": "source_query",
    "transform_dialect": "dialect",
    "target_keys": "keys",
    "target_mode": "mode",
    "batch_size": "max_rows_per_batch",
}


def stream_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a stream under their one name, without those that are None."""
    result: dict[str, Any] = {}
    for keyword, value in keywords.items():
        name = STREAM_ALIASES.get(keyword, keyword)
        if name not in STREAM_KEYWORDS:
            message = f"a stream has no keyword {keyword!r}"
            raise DeclareTypeError(message, hint=did_you_mean(keyword, (*STREAM_KEYWORDS, *STREAM_ALIASES)))
        if value is None:
            continue
        if name in result:
            message = f"a stream says {name} twice"
            raise DeclareTypeError(message, hint=f"{keyword!r} is another spelling of {name!r}.")
        result[name] = value
    return result
