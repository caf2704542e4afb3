"""`Target`: one destination of a fan-out, as pipelines and streams both write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.connection.base import is_open
from ematix_flow.declare.pipeline.file_options import FILE_OPTIONS, READ_OPTIONS, check_read_options
from ematix_flow.errors import DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping

_STREAMS_ONLY = ("topic", "queue", "partition_key_prefix", "message_key_column", "primary_key", "create_table")
_QUALITY = ("expectations", "on_quality_failure", "freshness_sla", "freshness_column", "alert_on_quality_warn")
_WRITE = (
    "mode",
    "keys",
    "update_columns",
    "compare_columns",
    "event_timestamp_column",
    "handle_deletes",
    "column_map",
    "partition_by",
    *FILE_OPTIONS,
    *_QUALITY,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A connection and where in it the rows go."""

    connection: Any = None
    table: Any = None
    topic: str | None = None
    queue: str | None = None
    partition_key_prefix: str | None = None
    prefix: str | None = None
    message_key_column: str | None = None
    partition_by: tuple[str, ...] | None = None
    parquet_compression: str | None = None
    csv_delimiter: str | None = None
    csv_header: bool | None = None
    csv_quote: str | None = None
    csv_escape: str | None = None
    csv_null_value: str | None = None
    csv_read_options: Mapping[str, Any] | None = None
    json_read_options: Mapping[str, Any] | None = None
    primary_key: tuple[str, ...] | None = None
    mode: str | None = None
    keys: tuple[str, ...] | None = None
    update_columns: tuple[str, ...] | None = None
    compare_columns: tuple[str, ...] | None = None
    event_timestamp_column: str | None = None
    handle_deletes: str | None = None
    column_map: Mapping[str, str] | None = None
    expectations: Any = None
    on_quality_failure: str | None = None
    freshness_sla: Any = None
    freshness_column: str | None = None
    alert_on_quality_warn: bool | None = None
    create_table: bool | None = None
    """In streams: create a table that is only named, with the columns of the first rows."""

    def __post_init__(self) -> None:
        for name in READ_OPTIONS:
            check_read_options(name, getattr(self, name))

    def as_batch_target(self) -> tuple[Any, Any, dict[str, Any]]:
        """Return table class, connection and write options for a batch pipeline."""
        if not isinstance(self.table, type) and not hasattr(self.table, "columns"):
            message = "a batch target needs table= with a table class"
            raise DeclareTypeError(message, hint="for example Target(table=CustomerDim, connection='warehouse').")
        foreign = [name for name in _STREAMS_ONLY if getattr(self, name) is not None]
        if foreign:
            message = f"a batch target has no {foreign[0]}="
            raise DeclareTypeError(message, hint="topics, queues and tables without a class belong to streams.")
        written = getattr(self.connection, "format", None)
        for name in READ_OPTIONS:
            check_read_options(name, getattr(self, name), None if is_open(written) else written)
        return self.table, self.connection, {name: getattr(self, name) for name in _WRITE}
