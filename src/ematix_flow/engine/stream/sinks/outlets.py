"""Where the rows go that the state of a stream gives out: into a table by the load path, or to a broker as messages.

Both move the position with them, and the position names the query and the batch that the rows are of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.stream_offsets import STATE, position_in
from ematix_flow.connect.base.stream_source import as_text
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.stream.dead_letter_topic import send_rejects
from ematix_flow.engine.stream.sinks.broker import BrokerSink, is_broker, open_broker_sink, rejected
from ematix_flow.engine.stream.sinks.table import (
    TableSink,
    framed_declaration,
    open_table_sink,
    pipeline_of,
    requires_order,
)
from ematix_flow.plan.columns import OURS
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.steps import OffsetRange
from ematix_flow.records import Counts
from ematix_flow.run.read.infer_messages import TypedRows
from ematix_flow.run.send.messages import Ids, Outgoing, encoded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import StreamTarget
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.engine.stream.sinks.ranges import GivenOut


class Outlet(ABC):
    """The target of a stream with state, without the state."""

    context: StreamContext
    target: StreamTarget
    position: Position
    """Where the target was when it was opened."""
    previously_loaded: bool = False

    @property
    @abstractmethod
    def known(self) -> bool:
        """Return whether the target stores a position."""

    @property
    @abstractmethod
    def was_reset(self) -> bool:
        """Return whether a position without a state means that an operator has moved the target."""

    @abstractmethod
    def stored(self) -> Position | None:
        """Return the position that the target has now."""

    @abstractmethod
    def metadata_columns(self) -> frozenset[str]:
        """Return the metadata of messages that the target has columns for."""

    @abstractmethod
    def load(self, given: GivenOut, begin: Position, end: Position, spark: SparkSession) -> Counts:
        """Bring rows into the target, and move its position."""

    def clean_up(self) -> None:  # noqa: B027 - not every target has metadata
        """Remove old batches from the metadata of the target."""

    def close(self) -> None:  # noqa: B027 - a table holds none
        """Close connections."""


def open_outlet(context: StreamContext, target: StreamTarget, *, read_only: bool) -> Outlet:
    """Return a target at its position; with `read_only` nothing is changed."""
    if is_broker(target):
        return BrokerOutlet(open_broker_sink(context, target, BrokerSink, read_only=read_only))
    return TableOutlet(open_table_sink(context, target, TableSink, read_only=read_only))


class TableOutlet(Outlet):
    """A table of a database or a lake, or a folder of files."""

    was_reset = False

    def __init__(self, table: TableSink) -> None:
        self.context, self.target, self.position = table.context, table.target, table.position
        self._table = table

    @property
    def known(self) -> bool:
        """Return whether the target stores a position."""
        return self._table.known

    def stored(self) -> Position | None:
        """Return the position that the target has now."""
        return position_in(self._table.offset_store, self.context.source.source_id)

    def metadata_columns(self) -> frozenset[str]:
        """Return the metadata of messages that the table has columns for."""
        return self._table.inspect_metadata_columns()

    def load(self, given: GivenOut, begin: Position, end: Position, spark: SparkSession) -> Counts:
        """Load rows and rejects in one transaction with the position."""
        context, table, stream = self.context, self._table, self.context.stream
        offset_range = OffsetRange(context.source.source_id, as_text(begin), as_text(end), table.known)
        declared, rows = framed_declaration(
            stream,
            table.target,
            given.rows,
            table.offset_store.database,
            # Rows that come as they are may have more fields than the table.
            refuse=stream.transform.sql is not None or stream.window is not None,
        )
        if given.keeps_late:
            declared = replace(declared, write=replace(declared.write, keeps_known_rejects=True))
        source = OpenSource(
            SourceValue(context.source.name, frame=rows),
            context.source.name,
            span=offset_range,
            rejects=given.rejects,
            ordered=requires_order(table.target),
            previously_loaded=table.previously_loaded,
        )
        slot = f"{offset_range.source} {offset_range.begin} {offset_range.end}"
        # Views that the load makes are seen in the session of the frame only, which is the query's own.
        options = replace(context.options.load, spark=spark)
        loaded = load_target(pipeline_of(stream, declared, context.name), declared, SourceRows(source, slot), options)
        table.known = table.previously_loaded = self.previously_loaded = True
        return loaded.committed.counts

    def clean_up(self) -> None:
        """Remove old batches from the metadata of the target."""
        self._table.clean_up()


class BrokerOutlet(Outlet):
    """A topic or a queue."""

    was_reset = True
    """Every batch stores its state, so only an operator leaves a position without one."""

    def __init__(self, broker: BrokerSink) -> None:
        self.context, self.target, self.position = broker.context, broker.target, broker.position
        self._broker = broker

    @property
    def known(self) -> bool:
        """Return whether the target stores a position."""
        return self.stored() is not None

    def stored(self) -> Position | None:
        """Return the position that the target has now."""
        return self._broker.sink.position(self._broker.checkpoint_key)

    def metadata_columns(self) -> frozenset[str]:
        """Return the key of messages, where it is metadata of those that are read."""
        names = {column.name for column in self.context.source.columns}
        return frozenset(names & {self.target.message_key_column or ""})

    def load(self, given: GivenOut, begin: Position, end: Position, spark: SparkSession) -> Counts:
        """Send rows as messages and move the position, as the broker can do it; a batch that is sent again has the same ids."""
        del spark
        rejects = None if given.rejects is None else given.rejects.toArrow().cast(REJECTS)
        if rejects is not None and given.keeps_late:
            send_rejects(self.context.stream, rejects, self.context.options.clock.now())
        elif rejects is not None:
            rejected(self.context, rejects)
        outgoing = self._messages(given.rows.toArrow(), given.order, end)
        key = self._broker.checkpoint_key
        self._broker.sink.write(key, begin, end, outgoing.messages)
        sent = len(outgoing.messages)
        return Counts(staged=sent, inserted=sent, rejected=0 if rejects is None else rejects.num_rows)

    def close(self) -> None:
        """Close the connection."""
        self._broker.close()

    def _messages(self, rows: pa.Table, order: str | None, end: Position) -> Outgoing:
        """Return rows as messages, whose order and ids do not depend on the order in which Spark gives them out."""
        own = rows.drop_columns([name for name in rows.column_names if name in OURS])
        first = [0] * rows.num_rows if order is None else rows.column(order).to_pylist()
        key = self._broker.checkpoint_key
        ids = Ids(f"{key.name}\x1f{key.source}\x1f{as_text(end[STATE])}")
        sent = encoded(TypedRows(own), self._broker.encoder, self.target.message_key_column, ids).messages
        by_time = sorted(
            zip(first, sent, strict=True), key=lambda one: (one[0], one[1].value or b"", one[1].key or b"")
        )
        return Outgoing([replace(message, id=ids.of(str(number))) for number, (_, message) in enumerate(by_time)])
