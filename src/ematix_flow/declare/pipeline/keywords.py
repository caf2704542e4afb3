"""Keywords of `@ematix.pipeline` and of targets: every accepted spelling and the one name it stands for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.write import FILES
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITE_KEYWORDS = {
    "mode": "append, truncate, merge (scd1), mirror (a merge that deletes absent keys) or scd2",
    "keys": "columns that identify a row, for merge and scd2",
    "update_columns": "columns that a merge writes when a row changed; every column that is not a key by default",
    "compare_columns": "columns whose change counts, for merge and scd2; every column that is not a key by default",
    "event_timestamp_column": "source column with the time of an event; makes scd2 order-proof",
    "handle_deletes": "hard (merge deletes absent keys) or soft (scd2 closes them)",
    "ttl": "close scd2 versions that are older",
    "incremental_column": "read only rows after the last loaded value of this column (append, merge)",
    "incremental": "files reads only files that were not loaded yet (append, merge, scd2); True needs watermark_column=",
    "on_replaced": "error (default), load or ignore a loaded file that has changed since; for incremental files",
    "lookback": "read this much again before the last loaded value (merge)",
    "null_watermark": "fail (default), load (merge) or reject rows whose watermark is NULL",
    "allow_empty": "let an empty source clear the target",
    "late_horizon": "how long scd2 remembers folded events; 30 days by default",
    "on_bad_row": "fail (default) or reject",
    "on_drift": "error (default), warn or evolve (add columns, widen types)",
    "target_connection": "name of the target's connection; default when left out",
    "column_map": "target column -> source column or expression",
    "partition_by": "how a new lake table is divided: columns, on Iceberg also days(at), bucket(16, id) and the like",
    "prefix": "folder below a file connection; schema/table by default",
    "parquet_compression": "uncompressed, snappy (default), gzip or zstd, for Parquet files",
    "csv_delimiter": "character between fields, for CSV files; a comma by default",
    "csv_header": "False leaves out the line with the names of the columns",
    "csv_quote": "character around texts that need it",
    "csv_escape": "character before a quote inside a text; a quote by default, which doubles it",
    "csv_null_value": "how NULL is written; an empty field by default",
    "expectations": "function of a Tester, or a list: what rows must satisfy before they become visible",
    "on_quality_failure": "warn (default), reject (set the rows aside) or fail, for expectations that say nothing themselves",
    "freshness_sla": "how old the last success, or the newest value of freshness_column, may be",
    "freshness_column": "column whose newest value shows how fresh the table is",
    "alert_on_quality_warn": "True alerts also when an expectation only warns",
}
"""Keywords of a target, each with its meaning; the reference is made from this."""

TIMING_KEYWORDS = {
    "schedule": "cron expression of five fields",
    "timezone": "IANA zone in which the cron expression is read; UTC by default",
    "depends_on": "pipelines that come first",
    "upstream_freshness": "greatest age of their last success",
    "retry": "max_attempts, backoff and the like",
    "timeout": "longest time of one attempt, after which it is stopped and has failed; no limit by default",
    "catchup": "last (default), all or none of the slots that were missed",
    "idempotent": "whether an interrupted run is taken up by itself; loads are, plain functions are not",
    "pool": "name of a pool whose places runs share",
    "priority": "what is due at the same time runs in this order, the greatest first; 0 by default",
    "realert_after": "after how long a lasting failure alerts again; 1h by default",
    "alert_every_attempt": "alert on every failed attempt, not on the first one only",
}
"""Keywords that state when a pipeline runs and what happens when it fails."""

PIPELINE_KEYWORDS = {
    "target": "table class to load",
    "targets": "several targets: ematix.target(...) or Target(...)",
    **WRITE_KEYWORDS,
    "name": "name of the pipeline; the function's name by default",
    **TIMING_KEYWORDS,
    "source_connection": "name of the source's connection; the target's by default",
    "source_table": "schema.table to read, for a function without arguments",
    "force_path": "same_db or cross_db",
    "continue_on_failure": "go on with the other targets when one fails",
    "transforms_pre": "deduplicate_by, filter_where, limit, sample_pct, or any object with to_sql_wrap",
    "transforms_post": "SQL, functions (conn[, parent]) or ematix.transform_ref(name), each in its own transaction",
    "continue_on_failure_post": "go on with the other post steps when one fails",
    "udfs": "functions made by @udf that a query over files or lake tables can call",
    "aggregate_udfs": "classes made by @udaf that such a query can call",
}
"""Keywords of a pipeline, each with its meaning."""

ALIASES = {
    "continue_on_target_failure": "continue_on_failure",
    "upstream_freshness_secs": "upstream_freshness",
    "connection": "target_connection",
    "target_partition_by": "partition_by",
}

CONVERTED = ("watermark_column", "ttl_seconds")


def pipeline_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a pipeline under their one name."""
    return _keywords(keywords, tuple(PIPELINE_KEYWORDS), "a pipeline")


def target_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of one target under their one name."""
    return _keywords(keywords, tuple(WRITE_KEYWORDS), "a target")


def timing_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a registered function under their one name."""
    return _keywords(keywords, tuple(TIMING_KEYWORDS), "a registered pipeline")


def _keywords(keywords: Mapping[str, Any], known: tuple[str, ...], what: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for keyword, value in keywords.items():
        name = ALIASES.get(keyword, keyword)
        if name not in known and name not in CONVERTED:
            message = f"{what} has no keyword {keyword!r}"
            raise DeclareTypeError(message, hint=did_you_mean(keyword, (*known, *ALIASES, *CONVERTED)))
        if result.get(name) is not None and value is not None:
            message = f"{what} says {name} twice"
            raise DeclareTypeError(message, hint=f"{keyword!r} is another spelling of {name!r}.")
        result[name] = value
    _incremental(result)
    _durations(result)
    return result


def _incremental(options: dict[str, Any]) -> None:
    requested, column = options.pop("incremental", None), options.pop("watermark_column", None)
    if requested not in (None, True, False, FILES):
        message = f"incremental={requested!r} is not known"
        raise DeclareError(message, hint="True with watermark_column=, or 'files' for files that were not loaded yet.")
    if requested == FILES:
        options["incremental"] = FILES
        requested = None
    if column is not None and options.get("incremental_column") not in (None, column):
        message = "watermark_column= and incremental_column= name different columns"
        raise DeclareError(message)
    if requested and not (column or options.get("incremental_column")):
        message = "incremental=True needs watermark_column="
        raise DeclareError(message, hint="name the column that grows, for example watermark_column='received_at'.")
    if column is not None and requested is not False:
        options["incremental_column"] = column


def _durations(options: dict[str, Any]) -> None:
    seconds = options.pop("ttl_seconds", None)
    if seconds is not None:
        if options.get("ttl") is not None:
            message = "ttl= and ttl_seconds= are two spellings of one option"
            raise DeclareError(message)
        options["ttl"] = seconds
    for name in ("ttl", "lookback", "late_horizon", "upstream_freshness", "realert_after", "freshness_sla", "timeout"):
        if options.get(name) is not None:
            options[name] = duration(name, options[name])


LONGEST = timedelta(days=365_000)
"""What a duration may be at most: as long before any instant of these centuries is in the calendar."""


def duration(option: str, value: Any) -> timedelta:
    """Return a duration for a timedelta, a number of seconds or text such as 30m."""
    if isinstance(value, timedelta):
        result = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= LONGEST.total_seconds():
            raise _too_long(option, value)
        result = timedelta(seconds=value)
    else:
        units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
        text = str(value).strip()
        if text[-1:] not in units or not text[:-1].isdigit():
            message = f"{option}={value!r} is not a duration"
            raise DeclareError(message, hint="use a timedelta, a number of seconds, or text such as 90s, 30m, 6h, 1d.")
        seconds = int(text[:-1]) * units[text[-1]]
        result = timedelta(seconds=min(seconds, LONGEST.total_seconds() + 1))
    if result > LONGEST:
        raise _too_long(option, value)
    if result < timedelta(0):
        message = f"{option} is negative"
        raise DeclareError(message)
    return result


def _too_long(option: str, value: Any) -> DeclareError:
    return DeclareError(f"{option}={value!r} is longer than {LONGEST.days:,} days, or no number")
