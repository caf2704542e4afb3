"""The rows of a stream with state: those of a range as events of its state, and those that the state gives out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.connect.base.stream_source import as_text
from ematix_flow.connect.files.stream_source import FileStream
from ematix_flow.declare.stream.windows import DLQ, SESSION
from ematix_flow.engine.stream.frames import StreamFrames
from ematix_flow.engine.stream.sinks.ranges import GivenOut, RangeSummary
from ematix_flow.engine.stream.sinks.read_files import has_rows, refuse_changed_files
from ematix_flow.engine.stream.state.refused_rows import bad_rows, count_bad, read_rejects, windows_of, write_rejects
from ematix_flow.engine.stream.state.source_times import LINE, SourceClock, newest_event
from ematix_flow.engine.stream.transform import reader_for
from ematix_flow.events import StreamWatermark
from ematix_flow.plan.columns import ORDER, ORDER_AT
from ematix_flow.plan.steps import OffsetRange
from ematix_flow.plan.stream.aggregates import summed_columns
from ematix_flow.plan.stream.state import LEFT, RIGHT, front_plan, instant_of, state_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.declare.stream.windows import Dedupe, Join, Window
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.engine.stream.sinks.ranges import RangeInput
    from ematix_flow.engine.stream.sinks.read_files import NewFiles
    from ematix_flow.engine.stream.state.manifest import Manifest
    from ematix_flow.run.streams.choices import Choice
    from ematix_flow.run.streams.input import EventFrame, TimeSpan
    from ematix_flow.run.streams.query import StateFolder
    from ematix_flow.run.transform.frame_sql import FrameRows

_FRONT = "front "
"""Before the side of a join, in the names of types: those of rows in front of what follows."""


class StateRows:
    """Reads ranges of the sources of one stream for its state, and makes rows of what that gives out."""

    def __init__(self, context: StreamContext, spark: SparkSession, metadata_columns: frozenset[str]) -> None:
        self._context = context
        self._metadata_columns = metadata_columns
        """The metadata of messages that the target has columns for."""
        self._spark = spark
        plan = state_plan(context.stream)
        assert plan is not None  # noqa: S101 - the sink is for such streams
        self.plan = plan
        self.front = front_plan(context.stream)
        """What is remembered in front of that, where rows are deduplicated before."""
        self._parts = context.source.parts
        self._frames = {part.full_id: self._frames_of(part) for part in self._parts}
        ids = tuple(part.full_id for part in self._parts)
        self._clock = SourceClock(ids, context.options.clock.ticks, plan.lateness, plan.idleness)
        self._columns: dict[str, set[str]] = {}
        """The columns that rows had, by side, where a range is not refused that lacks some."""

    def watermark(self, times: Mapping[str, int], before: int | None) -> int | None:
        """Return up to which time everything is complete, by the newest times of the sources."""
        return self._clock.watermark(times, before)

    def write(
        self,
        folder: StateFolder,
        span: RangeInput,
        times: Mapping[str, int],
        before: int | None,
        schemas: Mapping[str, str],
    ) -> RangeSummary:
        """Write a range as lines for the state, with the watermark that counts behind it."""
        from ematix_flow.run.streams.input import write_range, write_watermark

        times, schemas = dict(times), dict(schemas)
        frames: list[EventFrame] = []
        rejects: list[DataFrame] = []
        windows: list[tuple[int, int]] = []
        waiting: dict[str, Mapping[str, int]] = {}
        try:
            for part in self._parts:
                begin, end = (self._position_of(part, one) for one in (span.begin, span.end))
                waiting[part.full_id] = part.waiting(end) if part.line else {}
                if as_text(begin) != as_text(end) and has_rows(part, span.files):
                    offset_range = OffsetRange(part.source_id, as_text(begin), as_text(end))
                    range_rows = self._rows_of(part, offset_range, span.files)
                    lines, is_new = tuple(waiting[part.full_id]), part.full_id not in times
                    frames += self._read(part, range_rows, lines, schemas, rejects, is_new=is_new)
            written = write_range(folder, span.name, frames)
            for frame, shown in zip(frames, written.values(), strict=True):
                self._note(frame, shown, times, rejects)
                windows += self._windows(shown)
            heard = (source for source, shown in written.items() if shown.newest is not None)
            self._clock.note(heard, waiting, times)
            watermark = self.watermark(times, before)
            write_watermark(folder, span.name, watermark)
            if rejects:
                write_rejects(rejects, span.rejects)
            refuse_changed_files(self._parts, span.files)
        finally:
            self.close()
        self._emit_watermark(times, watermark)
        newest, timeless = newest_event(written.values()), sum(shown.timeless for shown in written.values())
        return RangeSummary(times, watermark, schemas, bool(rejects), windows, newest, timeless)

    def read_ahead(self, begin: Position, end: Position) -> None:
        """Begin to read the range that comes next, where its source lets that be done while another one is loaded."""
        for part in self._parts:
            first, last = (as_text(self._position_of(part, one)) for one in (begin, end))
            if part.reads_ahead and first != last:
                self._frames[part.full_id].read_ahead(OffsetRange(part.source_id, first, last))

    def close(self) -> None:
        """Release what Spark has cached of ranges."""
        for frames in self._frames.values():
            frames.close()

    def write_again(
        self,
        folder: StateFolder,
        name: str,
        span: tuple[Position, Position],
        schemas: Mapping[str, str],
        choice: Choice,
    ) -> RangeSummary:
        """Write events of a range that was read before as lines for another state, and return what it has shown.

        Messages that are no rows were rejected then. Rows that are bad ones are left out and counted: those that are so
        only by the declaration of now were not rejected.
        """
        from ematix_flow.run.streams.input import write_range, write_watermark

        schemas = dict(schemas)
        frames: list[EventFrame] = []
        try:
            for part in self._parts:
                begin, end = (self._position_of(part, one) for one in span)
                if part.distance(begin, end):
                    offset_range = OffsetRange(part.source_id, as_text(begin), as_text(end))
                    range_rows = self._rows_of(part, offset_range, {})
                    frames += self._read(part, range_rows, (), schemas, [], is_new=None)
            spans = write_range(folder, name, [frame.of(choice) for frame in frames])
            bad = count_bad(frames, spans, self._context.stream.window)
            write_watermark(folder, name, None)
        finally:
            self.close()
        windows = [one for shown in spans.values() for one in shown.windows if self.plan.operator == "window"]
        return RangeSummary(
            {}, None, schemas, rejects=False, windows=windows, newest=newest_event(spans.values()), bad=bad
        )

    def refuse_missing(self, more: tuple[str, ...] = ()) -> None:
        """Refuse columns that no row of the ranges had that were written again, where there were rows; `more` are needed too."""
        from ematix_flow.run.streams.events import refuse_missing

        for part in self._parts:
            side = self._side(part)
            if side in self._columns:
                needed = (self._options.event_time_column, *self._needed(part))
                refuse_missing(self._columns[side], _called(side), needed[0], (*needed[1:], *more))

    def _rows_of(self, part: StreamSource, offset_range: OffsetRange, files: Mapping[str, NewFiles]) -> FrameRows:
        if not isinstance(part, FileStream):
            return self._frames[part.full_id].rows(offset_range)
        chosen = files[part.full_id]
        paths = tuple(chosen.paths[file] for file in chosen.files)
        return self._frames[part.full_id].of_files(part.files.described(paths, {}))

    def _read(
        self,
        part: StreamSource,
        range_rows: FrameRows,
        lines: tuple[str, ...],
        schemas: dict[str, str],
        rejects: list[DataFrame],
        *,
        is_new: bool | None,
    ) -> list[EventFrame]:
        """Return the rows of a source, if it can be known what they are, and add their types and what is no row.

        The first ones have to have every column that is needed; those of a source that `is_new`, because no row of it had
        a time yet, also where others have come before. None is for a range that is read again, which is not refused.
        """
        from ematix_flow.run.streams.input import EventFrame
        from ematix_flow.run.streams.schemas import merged_schema

        if range_rows.rejects is not None:
            rejects.append(self._named(range_rows.rejects, part.full_id))
        side = self._side(part)
        known = f"{_FRONT}{side}" if self.front is not None else side
        if is_new is None and not range_rows.rows.isEmpty():
            self._columns.setdefault(side, set()).update(range_rows.rows.columns)
        # Sources of a join have types of their own; those of a window share them.
        shared = len(self._parts) > 1 and self._context.stream.join is None
        first = is_new is not None and (known not in schemas or (is_new and shared))
        rows = self._timed(part, range_rows.rows, first=first)
        if rows is None:
            return []
        schemas[known] = merged_schema(schemas.get(known), self._schema(rows, front=self.front is not None))
        time = self._options.event_time_column
        events = partial(self._events, part, front=self.front is not None)
        requires_time = self._context.stream.window is None
        return [EventFrame(part.full_id, rows, time, events, part.line.lstrip("_"), lines, requires_time)]

    def _note(self, frame: EventFrame, shown: TimeSpan, times: dict[str, int], rejects: list[DataFrame]) -> None:
        """Add what the event times of a source show."""
        if shown.bad:
            rejects.append(self._named(bad_rows(frame, self._context.stream.window), frame.source))
        if shown.newest is not None:
            times[frame.source] = max(shown.newest, times.get(frame.source, shown.newest))
        for line, newest in zip(frame.lines, shown.lines, strict=False):
            if newest is not None:
                name = f"{frame.source}{LINE}{line}"
                times[name] = max(newest, times.get(name, newest))

    def _named(self, rejects: DataFrame, source: str) -> DataFrame:
        """Return rejects that name their source, where there are several."""
        from ematix_flow.run.streams.events import of_source

        if len(self._parts) == 1:
            return rejects
        part = next(part for part in self._parts if part.full_id == source)
        return of_source(rejects, self._context.source.label_of(part))

    def _windows(self, shown: TimeSpan) -> tuple[tuple[int, int], ...]:
        """Return the windows of a fixed length that got events; those in front have none."""
        return shown.windows if self.plan.operator == "window" and self.front is None else ()

    def pass_on(
        self,
        results: DataFrame,
        folder: StateFolder,
        name: str,
        manifest: Manifest,
        rejects: str,
    ) -> RangeSummary:
        """Write rows that deduplication lets through as lines of what follows it, and as `rejects` those that do not fit it.

        There are such rows where an earlier version, or another declaration, has taken them up.
        """
        from ematix_flow.run.streams.events import timed
        from ematix_flow.run.streams.input import EventFrame, write_range, write_watermark
        from ematix_flow.run.streams.results import passed_rows
        from ematix_flow.run.streams.schemas import merged_schema, schema_of

        folder.remove(f"{folder.input}/{name}")
        merged, frames, time = dict(manifest.schemas), list[EventFrame](), self._options.event_time_column
        window = self._context.stream.window
        for side, part in {self._side(part): part for part in self._parts}.items():
            known = manifest.schemas.get(f"{_FRONT}{side}")
            if known is not None:
                rows = timed(passed_rows(results, side, schema_of(known)), time, summed_columns(window))
                merged[side] = merged_schema(merged.get(side), self._schema(rows, front=False))
                frames.append(EventFrame(side, rows, time, partial(self._events, part, front=False)))
        shown = write_range(folder, name, frames)
        bad = [bad_rows(frame, window) for frame in frames if shown[frame.source].bad]
        if bad:
            write_rejects(bad, rejects)
        write_watermark(folder, name, manifest.watermark)
        windows = [one for span in shown.values() for one in span.windows if self.plan.operator == "window"]
        return RangeSummary({}, manifest.watermark, merged, bool(bad), windows)

    def kinds(self, results: DataFrame) -> dict[str, int]:
        """Return how many results of each kind there are."""
        return {row[0]: int(row[1]) for row in results.groupBy("kind").count().collect()}

    def given_out(
        self,
        results: DataFrame,
        kinds: Mapping[str, int],
        schemas: Mapping[str, str],
        rejects_in: Sequence[str],
    ) -> GivenOut:
        """Return the rows that a batch of the state gives out, and what it rejects, besides what was written down before."""
        from ematix_flow.run.streams.results import late_count, late_rejects
        from ematix_flow.run.transform.frame_sql import together

        stream = self._context.stream
        order = ORDER if stream.window is not None else ORDER_AT if stream.join is None else None
        given = GivenOut(self.rows(results, schemas), self._options.late_data, order=order)
        if not any(kinds.get(kind) for kind in ("close", "pair", "row")):
            # Spark need not look through results that are none of them.
            given.rows = given.rows.limit(0)
        elif stream.window is not None:
            given.rows = given.rows.persist()
            given.cached.append(given.rows)
            given.windows = windows_of(given.rows, stream.window)
        rejects = [read_rejects(results.sparkSession, rejects_in)] if rejects_in else []
        given.late = late_count(results, keeps_rows=self.plan.keeps_rows) if kinds.get("late") else 0
        if given.late and self._options.late_data == DLQ:
            given.keeps_late = not rejects or stream.transform.on_error != "fail"
            rejects = rejects if stream.transform.on_error == "dlq" or not given.keeps_late else []
            rejects.append(late_rejects(results, "session" if self.plan.operator == "session" else "window"))
        given.rejects = together(rejects)
        return given

    @property
    def _options(self) -> Window | Join | Dedupe:
        stream = self._context.stream
        options = stream.window or stream.join or stream.deduplicate
        assert options is not None  # noqa: S101 - one of them
        return options

    def rows(self, results: DataFrame, schemas: Mapping[str, str]) -> DataFrame:
        """Return the rows that are made of results."""
        from ematix_flow.run.streams.results import first_rows, no_rows, pair_rows, window_rows
        from ematix_flow.run.streams.schemas import schema_of

        stream = self._context.stream
        types = {side: schema_of(text) for side, text in schemas.items()}
        if stream.join is None and "" not in types:
            # No message was a row so far.
            return no_rows(results)
        if stream.window is not None:
            return window_rows(results, stream.window, types[""], keeps_rows=self.plan.keeps_rows)
        if stream.join is None:
            return first_rows(results, types[""])
        return pair_rows(results, stream.join, types.get(LEFT), types.get(RIGHT))

    def _frames_of(self, part: StreamSource) -> StreamFrames:
        stream, stage = self._context.stream, self._context.rows.stage
        names = {self._options.event_time_column, *self._needed(part), *((EVENT_TIME,) if stream.join else ())}
        names |= self._metadata_columns if stream.deduplicate is not None else frozenset()
        return StreamFrames(stream, part, lambda: self._spark, reader_for(part), stage, frozenset(names))

    def _needed(self, part: StreamSource) -> tuple[str, ...]:
        """Return the columns that the state needs of a source, besides the time."""
        stream = self._context.stream
        keys = () if stream.deduplicate is None else stream.deduplicate.keys
        if stream.join is not None:
            return (*(stream.join.left_keys if self._side(part) == LEFT else stream.join.right_keys), *keys)
        if stream.window is None:
            return keys
        columns = (one.column for one in stream.window.aggregations if one.column is not None)
        return (*stream.window.group_by, *columns, *keys)

    def _timed(self, part: StreamSource, rows: DataFrame, *, first: bool) -> DataFrame | None:
        """Return rows with their times and everything that the state needs; None where no message is a row yet."""
        from ematix_flow.run.streams.events import completed, labelled, timed

        side, time = self._side(part), self._options.event_time_column
        complete = completed(rows, _called(side), time, self._needed(part), first=first)
        if complete is None:
            return None
        several = len(self._parts) > 1 and self._context.stream.window is not None and self.plan.keeps_rows
        label = self._context.source.label_of(part)
        summed = summed_columns(self._context.stream.window)
        return timed(labelled(complete, label) if several else complete, time, summed)

    def _events(self, part: StreamSource, rows: DataFrame, *, front: bool) -> DataFrame:
        from ematix_flow.run.streams.events import session_events, side_events, window_events

        stream, keeps_rows, side = self._context.stream, self.plan.keeps_rows, self._side(part)
        if stream.deduplicate is not None and (front or self.front is None):
            return side_events(rows, side, stream.deduplicate.keys, apart=front)
        if stream.join is not None:
            return side_events(rows, side, stream.join.left_keys if side == LEFT else stream.join.right_keys)
        assert stream.window is not None  # noqa: S101 - one of them
        build = session_events if stream.window.kind == SESSION else window_events
        return build(rows, stream.window, keeps_rows=keeps_rows)

    def _schema(self, rows: DataFrame, *, front: bool) -> str:
        from ematix_flow.run.streams.events import block_schema

        window = None if front else self._context.stream.window
        return block_schema(rows, window, keeps_rows=self.plan.keeps_rows)

    def _side(self, part: StreamSource) -> str:
        join = self._context.stream.join
        if join is None:
            return ""
        return LEFT if part.query == join.left_source else RIGHT

    def _position_of(self, part: StreamSource, position: Position) -> Position:
        return self._context.source.part_position(position, part)

    def _emit_watermark(self, times: Mapping[str, int], watermark: int | None) -> None:
        name, bus = self._context.stream.name, self._context.options.bus
        for part in self._parts:
            if part.full_id in times:
                bus.emit(StreamWatermark(name, "", part.query, instant_of(times[part.full_id] - self.plan.lateness)))
        if watermark is not None:
            bus.emit(StreamWatermark(name, "", "_global", instant_of(watermark)))


def _called(side: str) -> str:
    """Return how the rows of a source are called in messages."""
    return f"the rows of the {side} source" if side else "the rows"
