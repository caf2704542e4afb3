"""Our own tables in every target database, as data: ledger, fences, watermarks, run history, rejects and loaded files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.types import UUID, BigInt, Integer, String, Text, TimestampTZ
from ematix_flow.plan.sql.ddl import ColumnDefinition, TableDefinition, create_table_sql

if TYPE_CHECKING:
    from ematix_flow.connect.base.metadata_store import MetadataStore
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.declare.table.types import ColumnType

FORMAT = 1
"""Version of these tables; code that finds a newer one refuses to write."""

NAME = String(255)

_TABLES: dict[str, tuple[tuple[str, ColumnType, bool], ...]] = {
    "ledger": (
        ("token", String(64), False),
        ("pipeline_name", Text(), False),
        ("target_name", Text(), False),
        ("slot", Text(), False),
        ("run_id", UUID(), False),
        ("epoch", BigInt(), False),
        ("rows_staged", BigInt(), True),
        ("rows_inserted", BigInt(), True),
        ("rows_updated", BigInt(), True),
        ("rows_unchanged", BigInt(), True),
        ("rows_deleted", BigInt(), True),
        ("rows_closed", BigInt(), True),
        ("rows_rejected", BigInt(), True),
        ("watermark_lo", Text(), True),
        ("watermark_hi", Text(), True),
        ("schema_hash", String(64), True),
        ("committed_at", TimestampTZ(), False),
        ("format_version", Integer(), False),
    ),
    "fences": (
        ("name", NAME, False),
        ("epoch", BigInt(), False),
        ("taken_at", TimestampTZ(), False),
    ),
    "watermarks": (
        ("pipeline_name", NAME, False),
        ("column_name", Text(), False),
        ("last_value", Text(), False),
        ("updated_at", TimestampTZ(), False),
    ),
    "run_history": (
        ("run_id", UUID(), False),
        ("pipeline_name", Text(), False),
        ("target_schema", Text(), False),
        ("target_table", Text(), False),
        ("mode", Text(), False),
        ("path", Text(), False),
        ("started_at", TimestampTZ(), False),
        ("finished_at", TimestampTZ(), True),
        ("status", Text(), False),
        ("rows_inserted", BigInt(), True),
        ("error_message", Text(), True),
        ("rows_updated", BigInt(), True),
        ("rows_unchanged", BigInt(), True),
        ("parent_run_id", UUID(), True),
        ("step_name", Text(), True),
        ("metrics_json", Text(), True),
        ("rows_deleted", BigInt(), True),
        ("rows_rejected", BigInt(), True),
    ),
    "rejects": (
        ("reject_id", String(96), False),
        ("pipeline_name", Text(), False),
        ("target_name", Text(), False),
        ("run_id", UUID(), False),
        ("reason", Text(), False),
        ("column_name", Text(), True),
        ("source_position", Text(), True),
        ("row_json", Text(), False),
        ("rejected_at", TimestampTZ(), False),
        ("status", String(16), False),
        ("replayed_at", TimestampTZ(), True),
        ("attempt", Integer(), True),
    ),
    "loaded_files": (
        ("file_id", String(64), False),
        ("pipeline_name", Text(), False),
        ("target_name", Text(), False),
        ("file_key", Text(), False),
        ("etag", Text(), False),
        ("size", BigInt(), False),
        ("run_id", UUID(), False),
        ("loaded_at", TimestampTZ(), False),
    ),
}

VERSIONS = "cdc_idempotency"
"""The table with the last change of every key; only targets of change events have it."""

VERSION_KEY = ("pipeline_name", "pk_json")
_VERSIONS: tuple[tuple[str, ColumnType, bool], ...] = (
    ("pipeline_name", NAME, False),
    ("pk_json", Text(), False),
    ("last_seen_ts_ms", BigInt(), True),
    ("last_order", Text(), True),
    ("updated_at", TimestampTZ(), True),
)

FEATURE_VIEWS = "feature_views"
"""Our table of feature views, which only targets with one have."""

_FEATURE_VIEW_COLUMNS: tuple[tuple[str, ColumnType, bool], ...] = (
    ("name", NAME, False),
    ("schema_name", Text(), False),
    ("table_name", Text(), False),
    ("feature_version", Text(), False),
    ("entity_keys", Text(), False),
    ("event_timestamp_column", Text(), True),
    ("ttl_seconds", BigInt(), True),
    ("description", Text(), True),
    ("owner", Text(), True),
    ("freshness_sla_seconds", BigInt(), True),
    ("last_synced_at", TimestampTZ(), True),
    ("registered_at", TimestampTZ(), False),
)

TABLES = tuple(_TABLES)
"""Their names, in the order in which they were introduced: a target that has the last one has all."""

COLUMNS = {name: tuple(column for column, _, _ in columns) for name, columns in _TABLES.items()}
"""Names of the columns of each table."""


def history_name(pipeline: Pipeline, table: Table) -> str:
    """Return the name under which runs and watermarks of this target are stored."""
    return _history_name(pipeline, table, fan_out=pipeline.fan_out)


def other_history_name(pipeline: Pipeline, table: Table) -> str:
    """Return the name that this target had if it was declared the other way before: alone, or in a list."""
    return _history_name(pipeline, table, fan_out=not pipeline.fan_out)


def _history_name(pipeline: Pipeline, table: Table, *, fan_out: bool) -> str:
    return f"{pipeline.name}::{table.qualified_name}" if fan_out else pipeline.name


def metadata_table(name: str, database: MetadataStore) -> TableDefinition:
    """Return one of our tables as this database would have it; the first column is its key."""
    columns = _FEATURE_VIEW_COLUMNS if name == FEATURE_VIEWS else _TABLES[name]
    key = columns[0][0]
    definitions = tuple(ColumnDefinition(StageColumn(n, t, in_key=n == key), nullable) for n, t, nullable in columns)
    return TableDefinition(database.metadata_table(name), definitions, (key,), ())


def versions_table(database: MetadataStore) -> TableDefinition:
    """Return the table with the last change of every key as this database would have it."""
    definitions = tuple(
        ColumnDefinition(StageColumn(n, t, in_key=n in VERSION_KEY), nullable) for n, t, nullable in _VERSIONS
    )
    return TableDefinition(database.metadata_table(VERSIONS), definitions, VERSION_KEY, ())


def create_metadata_sql(name: str, database: MetadataStore) -> str:
    """Return the statement that creates one of our tables when it is missing."""
    return create_table_sql(metadata_table(name, database), database).replace(
        "CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1
    )


def feature_views_sql(database: MetadataStore) -> str:
    """Return the statement that creates the table of feature views; the keys are a list where the database has lists."""
    sql = create_metadata_sql(FEATURE_VIEWS, database)
    return sql.replace('"entity_keys" TEXT', '"entity_keys" TEXT[]') if database.dialect == "postgres" else sql


def points_name(table: Table) -> str:
    """Return the name of the table that remembers folded events of an scd2 target; short enough for any database."""
    readable = f"scd2_points_{table.schema}_{table.name}"
    digest = hashlib.sha256(f"{table.schema}.{table.name}".encode()).hexdigest()[:8]
    return f"{readable.encode()[:40].decode(errors='ignore')}_{digest}"
