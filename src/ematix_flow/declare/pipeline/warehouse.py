"""Pipelines from one cloud warehouse to another, as values: a query, SQL in between, and a table that rows are added to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.declare.connection.base import Connection
from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.pipeline.handle import NamedPipeline, engine
from ematix_flow.declare.pipeline.keywords import timing_keywords
from ematix_flow.declare.pipeline.pipeline import Pipeline, arguments_of, connection_reference
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.schedule import timing_of
from ematix_flow.declare.values import filled_text, one_of
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WAREHOUSES = ("snowflake", "bigquery", "redshift")


class WatermarkStore(Protocol):
    """Where the highest value of the incremental column is remembered between runs."""

    def get(self, pipeline: str) -> str | None:
        """Return what was stored for a pipeline."""

    def set(self, pipeline: str, value: str) -> None:
        """Store a value for a pipeline."""


@dataclass(frozen=True, slots=True)
class WarehouseSource:
    """A query of a warehouse."""

    connection: str | Connection
    sql: str
    kind: str

    def __post_init__(self) -> None:
        _check(self, "source")
        filled_text("sql", self.sql)


@dataclass(frozen=True, slots=True)
class WarehouseTarget:
    """A table of a warehouse that rows are added to."""

    connection: str | Connection
    table_name: str
    kind: str
    create_if_not_exists: bool = True

    def __post_init__(self) -> None:
        _check(self, "target")
        filled_text("table_name", self.table_name)

    @property
    def connection_name(self) -> str:
        """Return the name of the connection."""
        return self.connection if isinstance(self.connection, str) else self.connection.name


def _check(declared: WarehouseSource | WarehouseTarget, what: str) -> None:
    one_of("kind", declared.kind, WAREHOUSES)
    connection = connection_reference("connection", declared.connection)
    if connection is None:
        message = f"the {what} of a warehouse pipeline needs a connection"
        raise DeclareError(message)
    if isinstance(connection, Connection) and connection.kind != declared.kind:
        message = f"the {what} is of kind {declared.kind!r}, and connection {connection.name!r} is {connection.kind}"
        raise DeclareError(message, hint="name the kind of the connection.")


@dataclass(frozen=True, slots=True)
class WarehouseLoad:
    """What a run of a warehouse pipeline reads and writes."""

    source: WarehouseSource
    target: WarehouseTarget
    incremental_column: str | None = None
    watermark_store: WatermarkStore | None = None

    def __post_init__(self) -> None:
        if (self.incremental_column is None) != (self.watermark_store is None):
            message = "incremental_column= and watermark_store= belong together"
            raise DeclareError(message, hint="give both, or neither.")
        for name in ("get", "set"):
            if self.watermark_store is not None and not callable(getattr(self.watermark_store, name, None)):
                message = f"watermark_store= has no {name}()"
                raise DeclareTypeError(message, hint="for example FileWatermarkStore('watermarks.json').")


class WarehouseHandle(NamedPipeline):
    """What `warehouse_pipeline` leaves under the function's name; calling it runs the pipeline."""

    def __call__(self) -> dict[str, Any]:
        """Run the pipeline now and return status, name, rows read, rows written and duration."""
        result: dict[str, Any] = engine().run_pipeline(self.pipeline)
        return result

    def __repr__(self) -> str:
        return f"<warehouse pipeline {self.pipeline.name!r}>"


def warehouse_pipeline(  # noqa: PLR0913 - the public contract
    *,
    source: WarehouseSource,
    target: WarehouseTarget,
    schedule: str | None = None,
    name: str | None = None,
    depends_on: str | Sequence[str] | None = None,
    upstream_freshness_secs: float | None = None,
    retry: Any = None,
    incremental_column: str | None = None,
    watermark_store: WatermarkStore | None = None,
) -> Callable[[Callable[[], str | None]], WarehouseHandle]:
    """Declare a pipeline between warehouses: the function returns None, or SQL over `source` that DuckDB runs."""
    origin = caller_origin()
    options = {
        "schedule": schedule,
        "depends_on": depends_on,
        "upstream_freshness": upstream_freshness_secs,
        "retry": retry,
        # A load has its token, so an interrupted run may be taken up.
        "idempotent": True,
    }

    def declare(function: Callable[[], str | None]) -> WarehouseHandle:
        try:
            if not isinstance(source, WarehouseSource) or not isinstance(target, WarehouseTarget):
                message = "a warehouse pipeline takes source=WarehouseSource(...) and target=WarehouseTarget(...)"
                raise DeclareTypeError(message)
            if arguments_of(function):
                message = f"{function.__name__}() takes arguments, which no run could fill"
                raise DeclareTypeError(message, hint="it takes none, and returns None or SQL over `source`.")
            pipeline = Pipeline(
                name=name or function.__name__,
                function=function,
                targets=(),
                warehouse=WarehouseLoad(source, target, incremental_column, watermark_store),
                origin=origin,
                **timing_of(timing_keywords(options)),
            )
            PROJECT.add_pipeline(pipeline)
        except FlowError as error:
            raise error.at(origin) from None
        return WarehouseHandle(pipeline)

    return declare
