"""Tables that mirror another database: messages are changes of rows, and go through the load path of batches."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ematix_flow.commit.stream_offsets import advanced
from ematix_flow.connect.base.stream_source import as_text, from_text
from ematix_flow.connect.change_log.source import ChangeLogSource
from ematix_flow.connect.changes.change import KEY
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.left_out import take_left_out
from ematix_flow.connect.changes.log_decoder import LOG_COLUMNS, ChangeLogDecoder
from ematix_flow.connect.changes.message_list import MessageList
from ematix_flow.connect.changes.schemas import ChangeReader
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.formats.codecs import schema_decoder
from ematix_flow.declare.table.schema import FRAMEWORK_COLUMNS, Column
from ematix_flow.declare.table.types import Text, TimestampTZ
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.stream.sinks.mirror_schema import over_mirror
from ematix_flow.engine.stream.sinks.new_columns import new_columns
from ematix_flow.engine.stream.sinks.table import TableSink, declaration_of, pipeline_of
from ematix_flow.engine.stream.sinks.table_schema import UNKNOWN, is_there, name_of, table_of
from ematix_flow.errors import PlanError, UnsupportedError, did_you_mean
from ematix_flow.events import StreamWarning
from ematix_flow.plan.columns import CHANGE_AT
from ematix_flow.plan.metadata_tables import history_name
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.sql.ddl import SCD2_COLUMNS, VERSION
from ematix_flow.plan.steps import OffsetRange
from ematix_flow.run.read.message_ranges import MessageRange
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.columns import TableSchema
    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.records import Counts

FORMATS = ("json", "avro")
"""Payloads that envelopes are read from."""


@dataclass
class ChangeSink(TableSink):
    """A table whose rows are those of a table of another database."""

    warned: set[str] = field(default_factory=set)
    """What was warned of; once is enough."""

    def load(self, end: Position) -> Counts:
        """Load the changes up to a position; what they show of a wrong setup is a warning."""
        reader = self._notes(as_text(advanced(self.position, end)))
        if self.ahead is None:
            take_left_out(reader)  # noted by a load that failed
        counts = TableSink.load(self, end)
        if counts.late:
            self._warn("late", self._late(counts.late))
        left_out = take_left_out(reader)
        for column in left_out:
            self._warn(f"column {column}", self._left_out(column))
        return replace(counts, left_out=sum(left_out.values()))

    def _notes(self, end: str) -> str:
        """Return the id under which tasks note columns of a range: the next one may be read before it is loaded."""
        return f"{self.context.source.instance_id} {end}"

    def _left_out(self, column: str) -> str:
        table = ".".join(name_of(self.target))
        return f"changes have the column {column!r}, which {table} lacks: its values are left out (schema_evolution)"

    def _late(self, late: int) -> str:
        cdc = self.context.stream.cdc
        assert cdc is not None  # noqa: S101 - other streams have other sinks
        older = quantity(cdc.out_of_order_tolerance_ms, "millisecond")
        return (
            f"{quantity(late, 'change')} came more than {older} after newer ones of the same key and changed nothing "
            "(out_of_order_tolerance_ms): messages of a key are in several partitions, or come again"
        )

    def _warn(self, subject: str, message: str) -> None:
        if subject not in self.warned:
            self.warned.add(subject)
            self.context.options.bus.emit(StreamWarning(self.context.stream.name, self.key, message))

    @property
    def reads_first(self) -> bool:
        """Return whether the changes themselves say which columns the table gets."""
        return ChangeTarget(self.context.stream, self.target, self.offset_store.database).learns_columns

    def exact(self, offset_range: OffsetRange) -> tuple[TargetDeclaration, OpenSource] | None:
        """Return the changes of a range for the table as it is declared or exists."""
        notes = self._notes(offset_range.end)
        target = ChangeTarget(self.context.stream, self.target, self.offset_store.database, notes)
        declared, message_range = target.range(self.context.source, offset_range)
        source = self.context.source
        return declared, OpenSource(SourceValue(source.name), source.name, stream=message_range, span=offset_range)


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """A target of change events: its table, the key of its rows and what reads the events."""

    stream: Stream
    target: StreamTarget
    database: TargetSystem
    notes: str = ""
    """The id of the range under which columns that the table lacks are noted; empty where nobody asks."""

    @property
    def learns_columns(self) -> bool:
        """Return whether columns that the table lacks are added to it."""
        return self._evolves or not self._is_known()

    @property
    def _evolves(self) -> bool:
        return self.stream.cdc is not None and self.stream.cdc.schema_evolution == "evolve"

    def range(self, source: StreamSource, offset_range: OffsetRange) -> tuple[TargetDeclaration, MessageRange]:
        """Return the declaration of a load of changes, and the changes."""
        table = self.table()
        learns = self.learns_columns
        if learns:
            more = new_columns(source, offset_range, self.decoder(source, table))
            known = [column for column in table.columns if column.name != UNKNOWN] if more else table.columns
            table = replace(table, columns=(*known, *more))
        keys = self.keys(table)
        decoder = self.decoder(source, table)
        if self.target.write.mode == "append":
            table = _log_table(table)
        declared = declaration_of(self.stream, self.target, table)
        write = replace(declared.write, on_drift="evolve" if learns else declared.write.on_drift)
        if write.mode != "append":
            scope = history_name(pipeline_of(self.stream, declared, self.stream.name), table)
            write = replace(write, keys=keys, versions_of=scope, is_snapshot=_is_snapshot(source, offset_range))
        if write.mode == "scd2":
            write = replace(write, event_timestamp_column=CHANGE_AT)
        return replace(declared, write=write), MessageRange(source, offset_range, decoder, ordered=decoder.changes)

    def replayed(
        self, source: StreamSource, messages: Sequence[tuple[bytes, str]]
    ) -> tuple[TargetDeclaration, OpenSource]:
        """Return the load of dead letters."""
        listed = MessageList("dead letters", messages)
        listed.payload_format, listed.registry = source.payload_format, source.registry
        nowhere = OffsetRange(listed.source_id, "{}", "{}")
        declared, message_range = self.range(listed, nowhere)
        return declared, OpenSource(SourceValue(listed.name), listed.name, stream=message_range)

    def table(self) -> Table:
        """Return the table that changes are applied to: as declared, as it exists, or without columns so far."""
        import pyarrow as pa

        if not self._is_known():
            if not self.keys(None):
                raise _keyless(".".join(name_of(self.target)), None)
            return table_of(self.target, self.database, pa.schema([]))
        declared = self.target.declared_table
        if declared is not None and self.target.as_it_is:
            return self._mirror(declared)
        if declared is not None and (not self._evolves or not self._is_there()):
            return declared
        named = replace(self.target, table=name_of(self.target))
        there = table_of(named, self.database, pa.schema([]))
        hidden = {VERSION.name, *(FRAMEWORK_COLUMNS if declared is not None else ())}
        columns = [one for one in there.columns if one.name not in hidden]
        if declared is None:
            return replace(there, columns=tuple(columns))
        added = [one for one in columns if one.name not in declared.column_names and one.name not in LOG_COLUMNS]
        return replace(declared, columns=(*declared.columns, *added))

    def keys(self, table: Table | None) -> tuple[str, ...]:
        """Return the columns that identify a row: those that are given, the declared ones, or the table's own."""
        given = self.target.primary_key or self.target.write.keys or (table.primary_key if table is not None else ())
        given = given or self._existing_key()
        if table is None:
            return tuple(given)
        if not given:
            raise _keyless(table.qualified_name, table)
        for name in given:
            if name not in table.column_names:
                message = f"the key column {name!r} is no column of {table.qualified_name}"
                raise PlanError(message, hint=did_you_mean(name, table.column_names), origin=table.origin)
        return tuple(given)

    def decoder(self, source: StreamSource, table: Table) -> ChangeDecoder:
        """Return what turns messages into changes of a table."""
        cdc, mode = self.stream.cdc, self.target.write.mode
        assert cdc is not None  # noqa: S101 - other streams have other sinks
        keys = self.keys(None) or self.keys(table)
        required = [column.name for column in table.columns if not column.nullable or column.name in keys]
        kind = ChangeLogDecoder if mode == "append" else ChangeDecoder
        reader = None
        if source.payload_format != "json":
            reader = ChangeReader(schema_decoder(source), wraps=cdc.envelope == "debezium")
        return kind(
            cdc,
            ChangeTable(
                table.qualified_name,
                tuple((column.name, column.type.kind) for column in table.columns),
                keys,
                () if mode == "append" else tuple(required),
            ),
            reader,
            keyed=any(column.name == KEY for column in source.columns),
            whole=mode == "scd2",
            notes="" if self.learns_columns else self.notes,
        )

    def _mirror(self, declared: Table) -> Table:
        """Return a table that mirrors one of the source as it is there, or as it is created."""
        existing = self._existing()
        if existing is None:
            return declared
        added = {"scd2": [column.name for column in SCD2_COLUMNS], "append": LOG_COLUMNS}
        hidden = {VERSION.name, *FRAMEWORK_COLUMNS, *added.get(self.target.write.mode, ())}
        return over_mirror(declared, existing, self.database, hidden, evolves=self._evolves)

    def _is_known(self) -> bool:
        return self.target.declared_table is not None or self._is_there()

    def _is_there(self) -> bool:
        return is_there(self.target, self.database)

    def _existing_key(self) -> tuple[str, ...]:
        existing = None if self.target.declared_table is not None else self._existing()
        return () if existing is None else existing.primary_key

    def _existing(self) -> TableSchema | None:
        if not self.database.exists():
            return None
        with closing(self.database.session()) as session:
            return self.database.find_table(session, self.database.table_name(*name_of(self.target)))


def _is_snapshot(source: StreamSource, offset_range: OffsetRange) -> bool:
    """Return whether a range has all rows that a table had at one position of its log."""
    return isinstance(source, ChangeLogSource) and source.is_snapshot(
        from_text(offset_range.begin), from_text(offset_range.end)
    )


def refuse_rows(stream: Stream) -> None:
    """Refuse sources whose messages are rows already, and formats that no envelope has."""
    for one in stream.sources:
        connection = resolve_connection(one.connection)
        if connection.kind.startswith(("object_store_", "delta_", "iceberg")):
            message = f"stream {stream.name!r} reads {connection.kind}, whose rows are no change events"
            raise UnsupportedError(message, hint="cdc= reads messages of brokers and logs.", origin=stream.origin)
        payload_format = getattr(connection, "payload_format", None) or "json"
        if payload_format not in FORMATS:
            message = f"stream {stream.name!r} reads change events, and payload_format={payload_format!r} has none"
            raise UnsupportedError(message, hint=f"use {' or '.join(FORMATS)}.", origin=stream.origin)


def refuse_many_tables(stream: Stream, source: StreamSource) -> None:
    """Refuse to mirror several tables of logs in one: when one of them is emptied or read again, rows of all would go."""
    mirrored = [target for target in stream.targets if target.table is not None and target.write.mode != "append"]
    logs = [part for part in source.parts if isinstance(part, ChangeLogSource)]
    if stream.cdc is None or not mirrored or not logs:
        return
    names = [str(table) for log in logs for table in log.tables()]
    names += [source.label_of(part) for part in source.parts if part not in logs]
    if len(names) > 1:
        message = f"stream {stream.name!r} would make one table of the rows of several: {', '.join(names)}"
        hint = 'declare a stream with cdc= for each, or ematix.replicate for all; mode="append" writes one log of their changes.'
        raise PlanError(message, hint=hint, origin=stream.origin)


def _keyless(name: str, table: Table | None) -> PlanError:
    message = f"changes of {name} need to know its primary key"
    hint = "mark columns with pk(), or say primary_key= of the target."
    return PlanError(message, hint=hint, origin=None if table is None else table.origin)


def _log_table(table: Table) -> Table:
    """Return the table of a log: a key has many rows there, and a change may lack any column."""
    own = [replace(one, nullable=True, primary_key=False) for one in table.columns]
    kinds = (Text(), Text(), TimestampTZ())
    more = [Column(kind, nullable=True, name=name) for name, kind in zip(LOG_COLUMNS, kinds, strict=True)]
    return replace(table, columns=(*own, *(one for one in more if one.name not in table.column_names)))
