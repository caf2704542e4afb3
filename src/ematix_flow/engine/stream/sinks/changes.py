"""Tables that mirror another database: messages are changes of rows, and go through the load path of batches."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.changes.decoder import KEY, ChangeDecoder, ChangeTable
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.stream.sinks.table import TableSink, declaration_of
from ematix_flow.engine.stream.sinks.table_schema import name_of, table_of
from ematix_flow.errors import PlanError, UnsupportedError, did_you_mean
from ematix_flow.plan.source import SourceValue
from ematix_flow.run.read.message_ranges import MessageRange

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.declare.stream.cdc import CDC
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.plan.steps import OffsetRange

FORMATS = ("json", "avro")
"""Payloads that envelopes are read from."""


class ChangeSink(TableSink):
    """A table whose rows are those of a table of another database."""

    @property
    def reads_first(self) -> bool:
        """Return False: what changes do is known without reading them."""
        return False

    def exact(self, offset_range: OffsetRange) -> tuple[TargetDeclaration, OpenSource] | None:
        """Return the changes of a range for the table as it is declared or exists."""
        source = self.context.source
        cdc = self.context.stream.cdc
        assert cdc is not None  # noqa: S101 - other streams have other sinks
        table = changed_table(self.target, self.offset_store.database)
        keys = change_keys(self.target, table, self.offset_store.database)
        decoder = change_decoder(source, cdc, table, keys)
        message_range = MessageRange(source, offset_range, decoder, ordered=True)
        opened = OpenSource(SourceValue(source.name), source.name, stream=message_range, span=offset_range)
        declared = declaration_of(self.context.stream, self.target, table)
        return replace(declared, write=replace(declared.write, keys=keys)), opened


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


def changed_table(target: StreamTarget, database: TargetSystem) -> Table:
    """Return the table that changes are applied to: as declared, or as it exists."""
    import pyarrow as pa

    return table_of(target, database, pa.schema([]))


def change_keys(target: StreamTarget, table: Table, database: TargetSystem) -> tuple[str, ...]:
    """Return the columns that identify a row: those that are given, the declared ones, or the table's own."""
    given = target.primary_key or target.write.keys or table.primary_key or _existing_key(target, database)
    if not given:
        message = f"changes of {table.qualified_name} need to know its primary key"
        hint = "mark columns with pk(), or say primary_key= of the target."
        raise PlanError(message, hint=hint, origin=table.origin)
    for name in given:
        if name not in table.column_names:
            message = f"the key column {name!r} is no column of {table.qualified_name}"
            raise PlanError(message, hint=did_you_mean(name, table.column_names), origin=table.origin)
    return tuple(given)


def _existing_key(target: StreamTarget, database: TargetSystem) -> tuple[str, ...]:
    with closing(database.session()) as session:
        existing = database.find_table(session, database.table_name(*name_of(target)))
    return () if existing is None else existing.primary_key


def change_decoder(source: StreamSource, cdc: CDC, table: Table, keys: tuple[str, ...]) -> ChangeDecoder:
    """Return what turns messages into changes of a table."""
    return ChangeDecoder(
        cdc,
        ChangeTable(
            table.qualified_name,
            tuple((column.name, column.type.kind) for column in table.columns),
            keys,
            tuple(column.name for column in table.columns if not column.nullable or column.name in keys),
        ),
        keyed=any(column.name == KEY for column in source.columns),
    )
