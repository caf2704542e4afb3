"""Many tables of a database that are mirrored by one declaration; which tables there are is known when it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.pipeline.pipeline import connection_reference
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.cdc import CDC, TRANSACTION
from ematix_flow.declare.stream.stream import name_of
from ematix_flow.declare.table.schema import check_name
from ematix_flow.declare.values import filled_text, one_of
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError

if TYPE_CHECKING:
    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.errors import Origin

MODES = ("scd1", "scd2", "append")
ON_ERROR = ("fail", "dlq")
"""What becomes of changes that do not fit; none is dropped without a trace, because a mirror would lack its row for good."""


@dataclass(frozen=True, slots=True)
class Replication:
    """Tables of one database, each of which a stream of its own mirrors."""

    name: str
    source: str | Connection
    tables: str
    """Names and patterns, as `source_query` of a stream of changes takes them."""
    into: str | Connection
    mode: str = "scd1"
    schema: str | None = None
    """The schema of the mirrors; by default that of each table."""
    cdc: CDC = field(default_factory=CDC)
    transform_on_error: str = "fail"
    """As of a stream: whether a change that does not fit stops its table, or is a dead letter."""
    origin: Origin | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        filled_text("name", self.name)
        filled_text("tables", self.tables)
        one_of("mode", self.mode, MODES)
        one_of("transform_on_error", self.transform_on_error, ON_ERROR)
        if self.schema is not None:
            check_name("schema", self.schema, None)
        if not isinstance(self.cdc, CDC) or self.cdc.envelope != "debezium":
            message = "cdc= of a replication takes a CDC(...) with the envelope debezium, which its source writes"
            raise DeclareTypeError(message)
        if self.cdc.atomic == TRANSACTION:
            message = (
                'atomic="transaction" does not go with a replication, whose tables have a stream and a commit each'
            )
            raise DeclareError(message, hint="of each table, a transaction is whole in any case.")


def replicate(  # noqa: PLR0913 - keywords of a declaration
    source: str | Connection,
    *,
    tables: str,
    into: str | Connection,
    mode: str = "scd1",
    schema: str | None = None,
    name: str | None = None,
    cdc: CDC | None = None,
    transform_on_error: str = "fail",
) -> Replication:
    """Declare mirrors of tables: `scd1` has the rows as they are, `scd2` all versions of them, `append` a log of changes."""
    origin = caller_origin()
    try:
        from_, to = connection_reference("source", source), connection_reference("into", into)
        if from_ is None or to is None:
            message = "a replication needs a connection to read and one to write"
            raise DeclareError(message, hint='for example ematix.replicate("shop", tables="shop.*", into="lake").')
        chosen = name if name is not None else default_name(from_, to)
        declared = Replication(chosen, from_, tables, to, mode, schema, cdc or CDC(), transform_on_error, origin)
        PROJECT.add_replication(declared)
    except FlowError as error:
        raise error.at(origin) from None
    return declared


def default_name(source: str | Connection, into: str | Connection) -> str:
    """Return the name of a replication that is given none."""
    return f"{name_of(source)}_to_{name_of(into)}"
