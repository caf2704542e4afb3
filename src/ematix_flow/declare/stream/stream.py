"""A stream as a frozen value: sources that go on, targets, and what happens in between; it starts nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.file_options import FileOptions
from ematix_flow.declare.stream.windows import SESSION
from ematix_flow.declare.table.schema import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.stream.cdc import CDC
    from ematix_flow.declare.stream.options import Lookup, StateStore, Watermark
    from ematix_flow.declare.stream.udf import PythonAggregateUdfHandle, PythonScalarUdfHandle
    from ematix_flow.declare.stream.windows import Dedupe, Join, Window
    from ematix_flow.errors import Origin

AUTO, AT_LEAST_ONCE, EXACTLY_ONCE = "auto", "at_least_once", "exactly_once"
DELIVERIES = (AUTO, AT_LEAST_ONCE, EXACTLY_ONCE)
ON_ERROR = ("fail", "drop", "dlq")
DLQ_STORES = ("auto", "topic", "table")
DIALECTS = ("datafusion", "spark", "duckdb", "postgres", "mysql")
ENGINES = ("datafusion", "distributed", "auto")
DEFAULT_IDLE_PAUSE_MS = 500


def name_of(connection: str | Connection) -> str:
    """Return the name of a connection that was named or written out."""
    return connection if isinstance(connection, str) else connection.name


@dataclass(frozen=True, slots=True)
class StreamSourceDeclaration:
    """Where rows come from: a topic, queue, subscription, stream, folder or lake table of a connection."""

    connection: str | Connection
    query: str
    id: str
    """What positions are remembered under; unique among the sources of a stream."""

    @property
    def connection_name(self) -> str:
        """Return the name of the connection."""
        return name_of(self.connection)


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """One target that a stream writes to; exactly one of table, topic, queue, folder and partition keys names it."""

    connection: str | Connection
    write: Write
    table: Table | tuple[str, str] | None = None
    """A declared table, which is created as declared, or the schema and name of one that exists."""
    topic: str | None = None
    queue: str | None = None
    partition_key_prefix: str | None = None
    message_key_column: str | None = None
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    create_table: bool = False
    """Create a table that was only named, with the columns of the first rows."""
    as_it_is: bool = False
    """Take a declared table that is there with its own columns; the declaration is what it is created of."""
    files: FileOptions = field(default_factory=FileOptions)
    """The folder, and how files are written, where the target is a folder of them."""
    read_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """csv_read_options and json_read_options as they were given."""

    @property
    def connection_name(self) -> str:
        """Return the name of the connection."""
        return name_of(self.connection)

    @property
    def prefix(self) -> str | None:
        """Return the folder below the connection."""
        return self.files.prefix

    @property
    def declared_table(self) -> Table | None:
        """Return the table class's table, if one was given."""
        return self.table if isinstance(self.table, Table) else None

    @property
    def table_name(self) -> tuple[str, str] | None:
        """Return schema and name of the table."""
        return (self.table.schema, self.table.name) if isinstance(self.table, Table) else self.table

    @property
    def destination(self) -> str:
        """Return where in the connection the rows go."""
        if self.table_name is not None:
            return ".".join(self.table_name)
        destinations = (self.topic, self.queue, self.prefix, self.partition_key_prefix)
        return next((one for one in destinations if one is not None), "")


@dataclass(frozen=True, slots=True)
class StreamTransform:
    """The SQL that runs over each batch, and what its failure means."""

    sql: str | None = None
    dialect: str = "datafusion"
    on_error: str = "fail"
    optional_fields: Mapping[str, str] = field(default_factory=dict)
    """Fields that messages may lack, with the types, in the SQL of Spark, of the NULL that they are then."""
    engine: str = "datafusion"
    """What older configurations set; Spark distributes the work by itself."""
    peers: tuple[str, ...] = ()
    tls: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    """Everything that a streaming pipeline was declared with."""

    name: str
    sources: tuple[StreamSourceDeclaration, ...]
    targets: tuple[StreamTarget, ...]
    transform: StreamTransform = field(default_factory=StreamTransform)
    lookups: Mapping[str, Lookup] = field(default_factory=dict)
    udfs: tuple[PythonScalarUdfHandle, ...] = ()
    aggregate_udfs: tuple[PythonAggregateUdfHandle, ...] = ()
    watermark: Watermark | None = None
    state_store: StateStore | None = None
    window: Window | None = None
    join: Join | None = None
    deduplicate: Dedupe | None = None
    cdc: CDC | None = None
    idle_pause_ms: int = DEFAULT_IDLE_PAUSE_MS
    dead_letter_topic: str | None = None
    dlq_store: str = "auto"
    dlq_max_attempts: int | None = None
    delivery: str = AUTO
    metrics_port: int | None = None
    max_rows_per_batch: int | None = None
    """At most so many rows are read at once; None reads everything that is there."""
    fan_out: bool = False
    """True when the user wrote `targets=`."""
    origin: Origin | None = field(default=None, compare=False)

    @property
    def is_stateful(self) -> bool:
        """Return whether rows of one batch can depend on rows of earlier ones."""
        return self.window is not None or self.join is not None or self.deduplicate is not None

    @property
    def requires_state_store(self) -> bool:
        """Return whether the stream may not run without a state store."""
        return self.join is not None or (self.window is not None and self.window.kind == SESSION)

    def key_of(self, target: StreamTarget) -> str:
        """Return the name of a target in results: its location, with its connection where several have that."""
        alone = sum(one.destination == target.destination for one in self.targets) == 1
        return target.destination if alone else f"{target.destination}@{target.connection_name}"
