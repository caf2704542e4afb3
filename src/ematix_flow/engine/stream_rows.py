"""The rows of a stretch of a stream, in the types they show and after the SQL of the stream; read once for all targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.codecs import schema_decoder
from ematix_flow.connect.event_times import timed_pieces
from ematix_flow.connect.lake_stream import LakeStream
from ematix_flow.connect.stream import from_text
from ematix_flow.engine.lookups import open_lookups
from ematix_flow.engine.spark import session_for
from ematix_flow.engine.stream_sources import lake_frame
from ematix_flow.engine.stream_tables import makes_columns
from ematix_flow.errors import PlanError, UnsupportedError, did_you_mean
from ematix_flow.plan.sql.stream_sql import SOURCE, mentioned, row_by_row, spark_sql, tables_in
from ematix_flow.run.typed_messages import (
    TypedRows,
    json_payload,
    nameable,
    raw_payload,
    rows_of_payloads,
    typed_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack
    from typing import Any

    from ematix_flow.connect.stream import StreamSource
    from ematix_flow.declare.stream import Stream
    from ematix_flow.engine.stream_options import StreamOptions
    from ematix_flow.plan.steps import Span
    from ematix_flow.run.stream_sql import SqlStage


class StreamRows:
    """Reads and transforms stretches; the last one is kept, because every target asks for it."""

    def __init__(self, stream: Stream, source: StreamSource, options: StreamOptions, kept: ExitStack) -> None:
        self._stream = stream
        self._source = source
        self._options = options
        self._read = reader_for(source)
        if stream.transform.sql is None and any(map(makes_columns, stream.targets)):
            self._read = nameable(self._read)
        self._stage = _stage(stream, options, kept)
        self._last: tuple[str, str, frozenset[str], TypedRows] | None = None

    @property
    def transforms(self) -> bool:
        """Say whether there is SQL between source and target."""
        return self._stage is not None

    @property
    def reads_rows(self) -> bool:
        """Say whether there are rows in any case: of SQL, or of a source that has no messages."""
        return self.transforms or isinstance(self._source, LakeStream)

    def rows(self, span: Span, wanted: frozenset[str] = frozenset()) -> TypedRows:
        """Give the rows between two positions; `wanted` has what messages tell beside their payload, where no SQL says it."""
        asked = (span.begin, span.end, wanted)
        if self._last is None or self._last[:3] != asked:
            self._last = (*asked, self._made(span, wanted))
        return self._last[3]

    def of_payloads(self, messages: Sequence[tuple[bytes, str]], *, transform: bool) -> TypedRows:
        """Give the rows of payloads, each with the place it came from; with the SQL of the stream, or as they are."""
        found = rows_of_payloads(messages, self._read if transform else json_payload)
        if self._stage is None or not transform:
            return found
        return self._stage.rows(found, lenient=True)

    def _made(self, span: Span, wanted: frozenset[str]) -> TypedRows:
        if isinstance(self._source, LakeStream):
            frame = lake_frame(self._source, span, session_for(self._options.load))
            return self.transformed(TypedRows(frame.toArrow()))
        sql = self._stream.transform.sql
        named = mentioned(sql, self._stream.transform.dialect) if sql else wanted
        beside = [column.name for column in self._source.columns if column.name in named]
        pieces = timed_pieces(self._source, from_text(span.begin), from_text(span.end), beside)
        return self.transformed(typed_rows(pieces, self._read, beside))

    def transformed(self, found: TypedRows) -> TypedRows:
        """Give what the SQL of the stream makes of rows."""
        if self._stage is None:
            return found
        return self._stage.rows(found, lenient=self._stream.transform.on_error != "fail")


def reader_for(source: StreamSource) -> Callable[[bytes], dict[str, Any] | str]:
    """Give what reads the values of one payload of a source."""
    match source.payload_format:
        case "json":
            return json_payload
        case "raw_bytes":
            return raw_payload
        case "avro" | "protobuf":
            return schema_decoder(source).read
        case other:
            message = f"source {source.name!r} has payloads of {other}, which cannot be read yet"
            raise UnsupportedError(message)


def _stage(stream: Stream, options: StreamOptions, kept: ExitStack) -> SqlStage | None:
    transform = stream.transform
    if transform.sql is None:
        return None
    _check_tables(stream)
    from ematix_flow.run.stream_sql import SqlStage

    aggregates = frozenset(one.name for one in stream.aggregate_udfs)
    return SqlStage(
        session_for(options.load),
        spark_sql(transform.sql, transform.dialect, aggregates),
        _columns_of_source(stream),
        row_by_row(transform.sql, transform.dialect, aggregates),
        stream.udfs,
        stream.aggregate_udfs,
        open_lookups(stream.lookups, kept),
    )


def _columns_of_source(stream: Stream) -> frozenset[str]:
    """Give the columns that the SQL may mean as the source's own; with lookups a name may be theirs."""
    return frozenset() if stream.lookups else mentioned(str(stream.transform.sql), stream.transform.dialect)


def _check_tables(stream: Stream) -> None:
    known = {SOURCE, *stream.lookups}
    for table in sorted(tables_in(str(stream.transform.sql), stream.transform.dialect) - known):
        message = f"the SQL of stream {stream.name!r} reads {table!r}"
        raise PlanError(message, hint=did_you_mean(table, known), origin=stream.origin)
