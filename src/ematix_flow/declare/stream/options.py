"""The options of a stream besides its source and target: lookups, where state is stored and how late events may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.declare.masking import mask_value
from ematix_flow.declare.pipeline.pipeline import connection_reference
from ematix_flow.declare.values import filled_text, milliseconds, one_of, whole_number
from ematix_flow.errors import DeclareError, DeclareTypeError

if TYPE_CHECKING:
    from ematix_flow.declare.connection.base import Connection

POSTGRES, IN_MEMORY = "postgres", "in_memory"
"""Where the state of a stream can be stored."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late an event may be, and after which silence a source no longer holds the others back."""

    lateness_ms: int | None = None
    source_idleness_ms: int | None = None

    def __post_init__(self) -> None:
        if self.lateness_ms is not None:
            milliseconds("lateness_ms", self.lateness_ms)
        if self.source_idleness_ms is not None:
            # No end of it: a very large one says never.
            whole_number("source_idleness_ms", self.source_idleness_ms)


@dataclass(frozen=True, slots=True, repr=False)
class StateStore:
    """Where state, positions and dead letters of a stream are kept between runs."""

    kind: str
    url: str | None = None
    schema: str = "public"
    checkpoint_interval_ms: int = 60_000

    def __post_init__(self) -> None:
        one_of("kind", self.kind, (POSTGRES, IN_MEMORY))
        filled_text("schema", self.schema)
        whole_number("checkpoint_interval_ms", self.checkpoint_interval_ms, 1)
        if self.url is not None:
            filled_text("url", self.url)
        if self.kind == POSTGRES and self.url is None:
            message = "a postgres state store needs url="
            raise DeclareError(message, hint='for example StateStore(kind="postgres", url="${STATE_DSN}").')

    def __repr__(self) -> str:
        url = None if self.url is None else mask_value(self.url)
        return (
            f"StateStore(kind={self.kind!r}, url={url!r}, schema={self.schema!r},"
            f" checkpoint_interval_ms={self.checkpoint_interval_ms})"
        )


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of a database that the SQL of a stream can join: a whole table, or what a query gives."""

    connection: str | Connection
    table: str | None = None
    schema: str = ""
    refresh_interval_ms: int | None = None
    """How often the rows are read again; None reads them once, at the start."""
    query: str | None = None
    as_of: str | None = None
    """A column of the batch: a row is joined with the versions that were valid at its time, as scd2 tables have them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "connection", connection_reference("connection", self.connection))
        if self.connection is None:
            message = "a lookup needs a connection"
            raise DeclareTypeError(message)
        if (self.table is None) == (self.query is None):
            message = "a lookup has exactly one of table= and query="
            raise DeclareError(message)
        filled_text("query" if self.table is None else "table", self.query if self.table is None else self.table)
        if self.query is not None and self.schema:
            message = "a lookup with query= takes no schema="
            raise DeclareError(message, hint="write the schema into the query.")
        if self.refresh_interval_ms is not None:
            whole_number("refresh_interval_ms", self.refresh_interval_ms, 1)
        if self.as_of is not None:
            filled_text("as_of", self.as_of)
