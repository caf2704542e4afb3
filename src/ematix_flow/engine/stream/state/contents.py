"""What the targets of a stream remember, as an operator may look at it while the stream runs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.commit.stream_offsets import STATE, position_in
from ematix_flow.engine.spark.session import OWN, require, session_for
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.sinks.stateful import changed_state
from ematix_flow.engine.stream.sinks.table import offset_store_of
from ematix_flow.engine.stream.sources import source_of
from ematix_flow.engine.stream.state.folder import state_folder
from ematix_flow.engine.stream.state.manifest import NOTHING, manifest_of
from ematix_flow.errors import PlanError, StreamLostError
from ematix_flow.plan.stream.state import changes_of_state, state_definition, state_plan
from ematix_flow.run.streams.query import RESET, StateFolder
from ematix_flow.run.streams.ranges import NO_RANGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.state.manifest import Manifest
    from ematix_flow.run.streams.remembered import Oldest
    from ematix_flow.run.streams.stored import StoredState


@dataclass(frozen=True, slots=True)
class StateContents:
    """What one target of a stream remembers."""

    target: str
    batch: int | None = None
    """The batch of the state; None before the first load."""
    watermark: int | None = None
    """Up to which time everything was given out, in microseconds."""
    oldest: Oldest | None = None
    """None where no message was a row so far."""


def state_contents(stream: Stream, options: StreamOptions, limit: int, keys: Mapping[str, str]) -> list[StateContents]:
    """Return what every target of a stream remembers, the oldest first; `keys` are values that columns have to have."""
    stream = filled_in(stream)
    if not stream.is_stateful:
        message = f"stream {stream.name!r} remembers nothing between batches"
        raise PlanError(message, hint="window=, join= and deduplicate= do.", origin=stream.origin)
    require(OWN)
    with closing(source_of(stream, options)) as source:
        source_id = source.source_id
    return [_contents(stream, target, source_id, options, limit, keys) for target in stream.targets]


def _contents(
    stream: Stream, target: StreamTarget, source_id: str, options: StreamOptions, limit: int, keys: Mapping[str, str]
) -> StateContents:
    from ematix_flow.run.streams.remembered import oldest
    from ematix_flow.run.streams.stored import StoredState

    key = stream.key_of(target)
    position = position_in(offset_store_of(stream, target, options, stream.name), source_id) or {}
    if STATE not in position:
        return StateContents(key)
    spark = session_for(options.load)()
    folder = StateFolder(spark, state_folder(stream, target, stream.name, position))
    batch = folder.last_done()
    if batch is None or folder.query_id() != position[STATE]["id"]:
        message = f"the state of stream {stream.name!r} in {folder.path} is gone, or that of another stream"
        raise StreamLostError(message, hint=RESET)
    manifest = manifest_of(folder, folder.range_of(batch) or NO_RANGE) or NOTHING
    changes = changes_of_state(manifest.definition, state_definition(stream)) if manifest.definition else []
    if changes:
        raise changed_state(stream, changes)
    watermark = folder.watermark_of(batch)
    frame = _frame(stream, StoredState(spark, folder, batch), manifest, watermark)
    return StateContents(key, batch, watermark, None if frame is None else oldest(frame, limit, keys))


def _frame(stream: Stream, stored: StoredState, manifest: Manifest, watermark: int | None) -> DataFrame | None:
    """Return everything that is remembered with its columns; None where no message was a row so far."""
    from ematix_flow.run.streams.remembered import join_frame, key_frame, window_frame
    from ematix_flow.run.streams.schemas import schema_of

    plan = state_plan(stream)
    assert plan is not None  # noqa: S101 - the stream has state
    if not manifest.schemas:
        return None
    if stream.join is not None:
        return join_frame(stored, plan, stream.join.left_keys)
    if stream.window is not None:
        return window_frame(stored, plan, stream.window, schema_of(manifest.schemas[""]), watermark)
    assert stream.deduplicate is not None  # noqa: S101 - one of them
    return key_frame(stored, plan, stream.deduplicate.keys)
