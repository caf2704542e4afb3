"""Rows of a range of a stream after its SQL, as frames: tasks read, decode and transform, no row is in the driver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.event_time import EVENT_TIME, note_event, timed_partitions
from ematix_flow.connect.base.stream_source import from_text
from ematix_flow.connect.lake.stream_source import LakeStream
from ematix_flow.engine.batch.stager import translate_spark_error
from ematix_flow.engine.stream.sources import lake_frame
from ematix_flow.errors import PlanError
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.columns import POSITION
from ematix_flow.plan.sql.user.as_of import times_of
from ematix_flow.plan.sql.user.stream import mentioned
from ematix_flow.run.streams.read_ahead import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    import pyarrow as pa

    from ematix_flow.connect.base.stream_source import MessagePartition, StreamSource
    from ematix_flow.connect.files.source import FileSet
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.plan.steps import OffsetRange
    from ematix_flow.run.read.message_frames import InferredSchema, Layout, Reader
    from ematix_flow.run.transform.frame_sql import FrameRows, Typed
    from ematix_flow.run.transform.stream_sql import SqlStage


class StreamFrames:
    """Reads and transforms ranges; what Spark caches of the last one stays, because every target reads it."""

    def __init__(
        self,
        stream: Stream,
        source: StreamSource,
        spark: Callable[..., Any],
        read: Reader,
        stage: SqlStage | None,
        state_names: frozenset[str] | None = None,
    ) -> None:
        self._stream = stream
        self._source = source
        self._spark = spark
        self._read = read
        self._stage = stage
        self._state_names = state_names
        """What a stream with state needs: metadata of messages also where no SQL names it, and no types without a value."""
        self._last: tuple[tuple[str, ...], FrameRows] | None = None
        self._ahead: ReadAhead | None = None
        self._expected: Mapping[str, pa.DataType] = {}
        """The types that the messages of the range before showed, if all of them were rows."""

    def read_ahead(self, offset_range: OffsetRange) -> None:
        """Begin to read the rows between two positions, which are asked for when those before them are loaded."""
        key = (offset_range.begin, offset_range.end)
        self._ahead = ReadAhead(self._spark(), key, lambda: self._between(offset_range))

    def rows(self, offset_range: OffsetRange) -> FrameRows:
        """Return the rows between two positions and what is rejected of them."""
        return self._cached((offset_range.begin, offset_range.end), lambda: self._between(offset_range))

    def of_files(self, files: FileSet) -> FrameRows:
        """Return the rows of files and what is rejected of them; they are read again at every use."""
        self.close()
        return self._cached(files.paths, lambda: self._typed_files(files))

    def _cached(self, key: tuple[str, ...], read: Callable[[], Typed]) -> FrameRows:
        from ematix_flow.run.transform.frame_sql import FrameRows, without_guesses

        if self._last is None or self._last[0] != key:
            ahead = self._ahead if self._ahead is not None and self._ahead.key == key else None
            if ahead is not None:
                self._ahead = None
            self.close()
            try:
                typed = read() if ahead is None else ahead.result()
                typed = without_guesses(typed) if self._state_names is not None else typed
            except Exception as error:
                raise translate_spark_error(error) from error
            failpoint("stream.read")
            if self._stage is None:
                result = FrameRows(typed.rows, typed.unreadable, [typed.retained])
            else:
                result = self._transformed(typed, self._stage)
            self._last = (key, result)
            failpoint("stream.transformed")
        return self._last[1]

    def _transformed(self, typed: Typed, stage: SqlStage) -> FrameRows:
        from ematix_flow.run.transform.frame_sql import transformed

        if self._state_names is not None and POSITION in typed.rows.columns:
            # By its position a row is known to be of a line that is behind the others.
            typed = replace(typed, order=(*typed.order, POSITION))
        try:
            return transformed(typed, stage, lenient=self._stream.transform.on_error != "fail")
        except PlanError as error:
            raise error.at(self._stream.origin) from None

    def close(self) -> None:
        """Release what Spark has cached of the last range and of the one that is read ahead."""
        if self._ahead is not None:
            self._ahead.discard()
        self._ahead = None
        if self._last is not None:
            self._last[1].release()
        self._last = None

    def _between(self, offset_range: OffsetRange) -> Typed:
        """Return the rows between two positions before the SQL."""
        from ematix_flow.run.read.message_frames import Layout
        from ematix_flow.run.transform.frame_sql import typed_by_spark

        source, transform = self._source, self._stream.transform
        if isinstance(source, LakeStream):
            return typed_by_spark(lake_frame(source, offset_range, self._spark))
        named = (self._state_names or frozenset()) | (
            frozenset()
            if transform.sql is None
            else mentioned(transform.sql, transform.dialect) | frozenset(times_of(self._stream.lookups).values())
        )
        metadata = tuple(column for column in source.columns if column.name in named)
        begin, end = from_text(offset_range.begin), from_text(offset_range.end)
        # Where all messages are in one sequence, its partitions follow each other.
        line = "" if source.has_one_line(begin, end) else source.line
        column_names = list(dict.fromkeys([*(column.name for column in metadata), *([line] if line else [])]))
        partitions = timed_partitions(source, begin, end, column_names, cut=not line)
        timed = any(column.name == EVENT_TIME for column in source.columns)
        typed, inferred = self._typed(partitions, Layout(metadata, line, timed))
        note_event(source, inferred.newest)
        return typed

    def _typed(self, partitions: Sequence[MessagePartition], layout: Layout) -> tuple[Typed, InferredSchema]:
        """Return messages as rows of the types that they show; read in one go if they are what they were before."""
        from ematix_flow.run.read.expected_messages import expected_messages
        from ematix_flow.run.read.message_frames import typed_messages

        spark, expected = self._spark(), self._expected if partitions else {}
        as_expected = expected_messages(spark, partitions, layout, self._read, expected) if expected else None
        typed, inferred = as_expected or typed_messages(spark, partitions, layout, self._read)
        if partitions:
            # Where types change from range to range, not every range is read twice.
            changed = bool(expected) and as_expected is None
            self._expected = {} if changed or inferred.bad else inferred.types
        return typed, inferred

    def _typed_files(self, files: FileSet) -> Typed:
        """Return the rows of files before the SQL."""
        from ematix_flow.run.read.infer_files import line_partitions
        from ematix_flow.run.read.infer_messages import json_payload
        from ematix_flow.run.read.message_frames import Layout, typed_messages
        from ematix_flow.run.read.typed_file_frames import typed_file_frame

        if files.format != "json_lines":
            return typed_file_frame(self._spark(), files)
        return typed_messages(self._spark(), line_partitions(files), Layout(()), json_payload)[0]
