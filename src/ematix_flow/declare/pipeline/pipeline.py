"""The declarations that tie tables, connections and modes together; calling one is the engine's business."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.connection.base import Connection
from ematix_flow.declare.pipeline.file_options import READ_OPTIONS, FileOptions, check_read_options
from ematix_flow.declare.quality.expectations import Quality
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.pipeline.warehouse import WarehouseLoad
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.table.class_body import Table
    from ematix_flow.errors import Origin

ConnectionRef = "str | Connection | None"


@dataclass(frozen=True, slots=True)
class TargetDeclaration:
    """One table or topic a pipeline writes to."""

    table: Table
    write: Write
    connection: str | Connection | None = None
    column_map: Mapping[str, str] | None = None
    files: FileOptions = field(default_factory=FileOptions)
    """How files are written, where the target is a folder of them."""
    partition_by: tuple[str, ...] = ()
    """How a lake divides the table; the table's own partitions where this is empty."""
    quality: Quality = field(default_factory=Quality)
    """What its rows have to satisfy before they become visible."""
    declared_options: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The keywords that the target itself was declared with; a pipeline adds to them."""

    @property
    def connection_name(self) -> str:
        """Return the name of the connection."""
        named = "default" if self.connection is None else self.connection
        return named if isinstance(named, str) else named.name


@dataclass(frozen=True, slots=True)
class TransformRef:
    """A post step that runs a declared transform or pipeline by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and with which pauses a failed slot is tried again."""

    max_attempts: int = 1
    backoff: str = "fixed"
    base: timedelta = timedelta(0)
    factor: float = 2.0
    max_backoff: timedelta | None = None
    max_total: timedelta | None = None
    retry_on: tuple[str, ...] = ()
    jitter: float = 0.0
    """By which part of itself a pause may be shorter, so that many failures do not come back at the same time."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A source, one or more targets and when to run."""

    name: str
    function: Callable[..., Any]
    targets: tuple[TargetDeclaration, ...]
    fan_out: bool = False
    """True when the user wrote `targets=`: results are then keyed by table."""
    source_connection: str | Connection | None = None
    source_table: str | None = None
    schedule: str | None = None
    timezone: str | None = None
    force_path: str | None = None
    continue_on_failure: bool = False
    transforms_pre: tuple[Any, ...] = ()
    transforms_post: tuple[Any, ...] = ()
    continue_on_failure_post: bool = False
    udfs: tuple[Any, ...] = ()
    """Functions that a query which Spark runs can call."""
    aggregate_udfs: tuple[Any, ...] = ()
    depends_on: tuple[str, ...] = ()
    upstream_freshness: timedelta | None = None
    retry: Retry | None = None
    timeout: timedelta | None = None
    """Longest time of one attempt; None for no limit."""
    catchup: str = "last"
    """Which missed slots run later: the last one, all or none."""
    idempotent: bool | None = None
    """Whether an interrupted run may be taken up by itself; None leaves it to the targets."""
    pool: str = ""
    """The pool of which a run takes a slot."""
    priority: int = 0
    """What is due at the same time runs in this order, the greatest first."""
    realert_after: timedelta = timedelta(hours=1)
    """After how long a failure that lasts is reported again."""
    alert_every_attempt: bool = False
    warehouse: WarehouseLoad | None = None
    """What a pipeline between warehouses reads and writes; it has no targets, and its function returns SQL."""
    origin: Origin | None = None

    @property
    def resumes(self) -> bool:
        """Return whether an interrupted run is taken up by itself: a load has its token, a plain function has none."""
        return bool(self.targets) if self.idempotent is None else self.idempotent

    @property
    def unplanned(self) -> str:
        """Return what a pipeline without targets is, for messages that refuse to plan it."""
        return "a plain function" if self.warehouse is None else "a warehouse pipeline"

    def source_ref(self) -> str | Connection | None:
        """Return the connection that the source is read from: the first target's unless one was named."""
        return self.source_connection if self.source_connection is not None else self.targets[0].connection

    def key_of(self, target: TargetDeclaration) -> str:
        """Return the name of a target in results: its table, and where that is when several targets have it."""
        name = target.table.qualified_name
        alone = sum(one.table.qualified_name == name for one in self.targets) == 1
        return name if alone else f"{name}@{target.connection_name}"


@dataclass(frozen=True, slots=True)
class Transform:
    """A named step that can run alone or after a pipeline."""

    name: str
    function: Callable[..., Any]
    connection: str | Connection | None = None
    schedule: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """What a pipeline function may return instead of SQL text: a query, table or path on a named connection.

    In streams the same value names a topic, queue, subscription or prefix on a connection.
    """

    connection: str | Connection | Any
    query: str | None = None
    table: tuple[str, str] | None = None
    path: str | None = None
    columns: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    connections: Mapping[str, str | Connection] = field(default_factory=dict)
    """The connections of a query over several of them, by their aliases in it."""

    @classmethod
    def _query(cls, connection: Any, sql: str) -> Source:
        return cls(connection, query=sql)

    @classmethod
    def sql(cls, connection: Any, sql: str | None = None, *, connections: Mapping[str, Any] | None = None) -> Source:
        """Name a query: of one connection, `sql(conn, query)`, or Spark SQL over several, `sql(query, connections={...})`."""
        if connections is None:
            if sql is None:
                message = "Source.sql(...) needs a connection and a query, or a query and connections="
                raise DeclareTypeError(message, hint='Source.sql("SELECT ...", connections={"pg": "warehouse"}).')
            return cls(connection, query=sql)
        if sql is not None or not isinstance(connection, str):
            message = "Source.sql(...) with connections= takes the query alone"
            raise DeclareTypeError(message, hint='Source.sql("SELECT ...", connections={"pg": "warehouse"}).')
        return cls(None, query=connection, connections=_named_connections(connections))

    @classmethod
    def _table(cls, connection: Any, schema: str, table: str, columns: Any = None) -> Source:
        return cls(connection, table=(schema, table), columns=tuple(columns) if columns else None)

    query_on = _query
    postgres_query = mysql_query = sqlite_query = duckdb_query = _query
    snowflake_query = bigquery_query = redshift_query = _query
    postgres_table = mysql_table = sqlite_table = duckdb_table = _table

    @classmethod
    def _lake(
        cls, connection: Any, schema: str, table: str, *, version: int | str | None = None, timestamp: Any = None
    ) -> Source:
        if version is not None and timestamp is not None:
            message = "a source has version= or timestamp=, not both"
            raise DeclareError(message)
        instant = timestamp.isoformat() if hasattr(timestamp, "isoformat") else timestamp
        travel = {"version": version, "timestamp": instant}
        return cls(connection, table=(schema, table), options={k: v for k, v in travel.items() if v is not None})

    delta = iceberg = _lake

    @classmethod
    def files(cls, connection: Any, path: str, **options: Any) -> Source:
        """Name files below a file connection, with read options."""
        for name, value in options.items():
            if name not in (*READ_OPTIONS, "format"):
                message = f"Source.files(...) has no {name}="
                raise DeclareTypeError(message, hint=did_you_mean(name, (*READ_OPTIONS, "format")))
            if name != "format":
                check_read_options(name, value, options.get("format"))
        return cls(connection, path=path, options=options)


def _named_connections(connections: Mapping[str, Any]) -> dict[str, str | Connection]:
    """Return the connections of a query over several, or refuse words that no query could write."""
    if not isinstance(connections, Mapping) or not connections:
        message = "connections= of Source.sql(...) names no connection"
        raise DeclareTypeError(message, hint='give words for connections: {"pg": "warehouse", "lake": lake}.')
    named: dict[str, str | Connection] = {}
    for alias, value in connections.items():
        if not isinstance(alias, str) or not alias.isidentifier() or alias.lower() in map(str.lower, named):
            message = f"connections= of Source.sql(...) has {alias!r}, which cannot stand for a connection"
            raise DeclareError(message, hint="use plain words, each once: letters, digits and underscores.")
        reference = connection_reference(f"connections[{alias!r}]", value)
        named[alias] = "default" if reference is None else reference
    return named


@dataclass(frozen=True, slots=True)
class ParentContext:
    """What a post step learns about the load before it."""

    pipeline_name: str
    run_id: str
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_unchanged: int = 0


def arguments_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters that a pipeline function takes."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty)


def check_pipeline_function(function: Callable[..., Any], source_table: str | None) -> None:
    """Refuse a function whose parameters no run could fill."""
    names = arguments_of(function)
    plain = [name for name in names if name != "spark"]
    if len(plain) > 2:  # noqa: PLR2004 - (source, target)
        message = f"{function.__name__}() takes {len(plain)} connections"
        raise DeclareTypeError(message, hint="a pipeline function takes (), (conn) or (src, tgt), plus `spark`.")
    if not names and source_table is None:
        message = f"{function.__name__}() takes no argument and the pipeline has no source_table="
        raise DeclareTypeError(message, hint="take `conn` and return SQL, or name the table with source_table=.")


def connection_reference(option: str, value: Any) -> str | Connection | None:
    """Return a name or a typed connection for what was written, or refuse it; a handle means its connection."""
    value = getattr(value, "connection_ref", value)
    if value is None or isinstance(value, str | Connection):
        return value
    # Other values stay out of the message: they may hold a password.
    description = (
        value.__name__ if isinstance(value, type) else repr(value) if isinstance(value, int) else type(value).__name__
    )
    message = f"{option}={description} is not a connection; is @ematix.connection missing?"
    raise DeclareTypeError(message, hint="use a name, or a connection made by @ematix.connection or a typed class.")


def check_source_table(name: str | None, *, dotted: bool = True) -> None:
    """Refuse a source table that is not `schema.table`."""
    if name is None or not dotted:
        return
    if name.count(".") != 1 or not all(name.split(".")):
        message = f"source_table={name!r} is not schema.table"
        raise DeclareError(message, hint="write exactly one dot, for example raw.customers.")
