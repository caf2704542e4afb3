"""Builds the state of a stream anew for a declaration that has changed, from the messages of what is still open.

The new state is built next to the old one, and gives nothing out: its time ends where the old one has given every event out,
so that the stream itself closes what is over by the time of now. When it is at the position of the target, that position
is changed to name it: in one transaction, and only if nobody has moved it. Until then the old deployment is untouched.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from ematix_flow.commit.stream_offsets import STATE, take_over, without_state
from ematix_flow.engine.batch.stager import translate_spark_error
from ematix_flow.engine.spark.session import OWN, require, session_for
from ematix_flow.engine.stream.control import chosen_targets
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.open import open_context, refuse_impossible
from ematix_flow.engine.stream.sinks.broker import is_broker
from ematix_flow.engine.stream.sinks.stateful import changed_state
from ematix_flow.engine.stream.sinks.table import TableSink, open_table_sink
from ematix_flow.engine.stream.state.folder import DEPLOYMENT, DEPLOYMENTS, deployed, first_folder, naming, state_folder
from ematix_flow.engine.stream.state.manifest import NOTHING, Manifest, TimeIndex, manifest_of, write_manifest
from ematix_flow.engine.stream.state.refused_rows import refuse_unsummed
from ematix_flow.engine.stream.state.replay import Replay, beginning_of, position_of_time, refuse_files
from ematix_flow.engine.stream.state.rows import StateRows
from ematix_flow.errors import (
    FencedError,
    PlanError,
    PositionMovedError,
    RunError,
    StreamLostError,
    UnsupportedError,
)
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.stream.state import (
    MICROS,
    RETAINED_FOR,
    changes_of_state,
    horizon,
    instant_of,
    last_end,
    open_windows,
    sessions_of,
    state_definition,
    state_plan,
)
from ematix_flow.run.streams.choices import (
    Choice,
    counted_rows,
    forgotten_partners,
    open_after,
    remembered_times,
    rows_of_join,
    rows_of_timestamps,
)
from ematix_flow.run.streams.query import RESET, StateFolder
from ematix_flow.run.streams.stored import StoredState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.plan.stream.state import StatePlan


@dataclass(frozen=True, slots=True)
class Redeployment:
    """A target whose state is built anew, or would be."""

    target: str
    changes: tuple[str, ...]
    """What of the declaration has changed; empty where the state could have been kept."""
    watermark: datetime | None
    """Up to which time everything was given out, which stays as it is."""
    oldest: datetime | None
    """From which time on events are needed."""
    begin: Position
    end: Position
    """The range of messages that is read again."""
    messages: int
    done: bool
    """Whether the new state has taken over."""


@dataclass(frozen=True, slots=True)
class _Old:
    """The deployment that is there: its state behind the batch that the target has."""

    table: TableSink
    folder: StateFolder
    manifest: Manifest
    stored: StoredState
    watermark: int | None
    """Its time."""
    given_out: int | None
    """Up to which time it has given every event out, by its own windows and sessions."""
    open_timestamps: DataFrame | None
    """Key and time of what is open in sessions; None where it has none."""
    changes: tuple[str, ...]
    same: bool
    """Whether keys and times of what it remembers mean the same in the new declaration."""

    @property
    def position(self) -> Position:
        return self.table.position


@dataclass(frozen=True, slots=True)
class _Beginning:
    """Where the messages begin of which something is not given out yet, and the time of the oldest of them."""

    oldest: int | None
    begin: Position
    gone: str | None = None
    """What of these messages the source has no longer."""


def redeploy_stream(
    stream: Stream, options: StreamOptions, only: Sequence[str] = (), *, dry_run: bool = False
) -> list[Redeployment]:
    """Build the state of every target of a stream anew, or of some, for the declaration as it is now."""
    stream = filled_in(stream)
    refuse_impossible(stream, options)
    if not stream.is_stateful:
        message = f"stream {stream.name!r} remembers nothing between batches, so there is nothing to build anew"
        raise PlanError(
            message, hint="a changed declaration of it counts from the next start on.", origin=stream.origin
        )
    require(OWN)
    with ExitStack() as resources:
        context = open_context(stream, options, resources)
        refuse_files(context)
        chosen = chosen_targets(stream, only)
        return [_redeployed(context, target, dry_run=dry_run) for target in chosen]


def _redeployed(context: StreamContext, target: StreamTarget, *, dry_run: bool) -> Redeployment:
    spark = session_for(context.options.load)()
    old = _old(context, target, spark)
    beginning = _beginning(context, old)
    end = without_state(old.position)
    _refuse_gone(context, beginning, end)
    planned = Redeployment(
        context.stream.key_of(target),
        old.changes,
        None if old.given_out is None else instant_of(old.given_out),
        None if beginning.oldest is None else instant_of(beginning.oldest),
        beginning.begin,
        end,
        context.source.distance(beginning.begin, end),
        done=False,
    )
    if dry_run:
        return planned
    first = first_folder(context.stream, target, context.name, old.position)
    _remove_others(old, first)
    named = naming(old.position[STATE]) | {DEPLOYMENT: uuid4().hex[:8]}
    folder = StateFolder(spark, deployed(first, named))
    failpoint("redeploy.begun")
    try:
        known = _built(context, old, beginning, folder, spark) | named
    except Exception as error:
        folder.remove(folder.path)
        raise translate_spark_error(error) from error
    failpoint("redeploy.built")
    _switch(context, old, end | {STATE: known})
    failpoint("redeploy.switched")
    _remove(old.folder, old.folder.path, first)
    failpoint("redeploy.removed")
    return replace(planned, done=True)


def _old(context: StreamContext, target: StreamTarget, spark: SparkSession) -> _Old:
    """Return the deployment of a target; one that is gone or cannot be compared with the new one is refused."""
    stream = context.stream
    if is_broker(target):
        message = f"{stream.key_of(target)!r} is no table, whose position could be exchanged for that of another state"
        raise UnsupportedError(message, hint=RESET, origin=stream.origin)
    table = open_table_sink(context, target, TableSink, read_only=True)
    known = table.position.get(STATE)
    if known is None:
        message = f"target {stream.key_of(target)!r} of stream {stream.name!r} remembers nothing yet"
        raise PlanError(message, hint="start the stream: flow consume.", origin=stream.origin)
    folder = StateFolder(spark, state_folder(stream, target, context.name, table.position))
    if folder.query_id() != known["id"]:
        message = f"the state of stream {stream.name!r} in {folder.path} is gone, or that of another stream"
        raise StreamLostError(message, hint=RESET)
    manifest = manifest_of(folder, known["range"]) or NOTHING
    definition = state_definition(stream)
    changes = changes_of_state(manifest.definition, definition)
    if not all(change.can_be_rebuilt for change in changes):
        raise changed_state(stream, changes)
    if stream.deduplicate is not None:
        message = (
            f"stream {stream.name!r} remembers which keys came before, and messages do not say which were left out"
        )
        raise PlanError(message, hint=f"declare it as before, or {RESET}", origin=stream.origin)
    values = {"aggregations", "rows are kept for late_data", "windows are whole for late_data", RETAINED_FOR}
    same = all(manifest.definition.get(name) == value for name, value in definition.items() if name not in values)
    watermark = folder.watermark_of(known["batch"])
    stored = StoredState(spark, folder, known["batch"])
    timestamps = None if same or watermark is None else _open_timestamps(manifest.definition, stored, watermark)
    given_out = watermark if same or watermark is None else _given_out(manifest.definition, timestamps, watermark)
    texts = tuple(change.text for change in changes)
    return _Old(table, folder, manifest, stored, watermark, given_out, timestamps, texts, same)


def _open_timestamps(definition: dict[str, object], stored: StoredState, watermark: int) -> DataFrame | None:
    """Return what sessions of a former declaration have not given out; None where there were no sessions."""
    sessions = sessions_of(definition)
    return None if sessions is None else stored.open_timestamps(sessions, watermark)


def _given_out(definition: dict[str, object], timestamps: DataFrame | None, watermark: int) -> int:
    """Return up to which time a former declaration has given every event out, in whole milliseconds as Spark's time is."""
    if timestamps is not None:
        oldest: int | None = timestamps.selectExpr("min(ts)").collect()[0][0]
        return watermark if oldest is None else min(oldest // MICROS * MICROS, watermark)
    return last_end(definition, watermark) if definition.get("window") else watermark


def _beginning(context: StreamContext, old: _Old) -> _Beginning:
    """Return where the messages begin of which something is not given out yet."""
    plan = _plan(context)
    if old.given_out is None:
        oldest = None
    elif _follows_sessions(old, plan) or (old.same and not (plan.operator == "window" and plan.allowed)):
        oldest = _oldest_open(old, plan)
        if oldest is None:
            return _Beginning(None, without_state(old.position))
    else:
        oldest = old.given_out - horizon(plan)
    if oldest is None:
        index = old.manifest.time_index
        return _Beginning(None, (index and index.position(None)) or position_of_time(context.source, None))
    messages = beginning_of(context.source, oldest, without_state(old.position), old.manifest.time_index)
    return _Beginning(oldest, messages.position, messages.gone)


def _follows_sessions(old: _Old, plan: StatePlan) -> bool:
    """Return whether sessions are followed by others: those get exactly the moments that were not given out."""
    return plan.operator == "session" and old.open_timestamps is not None


def _oldest_open(old: _Old, plan: StatePlan) -> int | None:
    """Return the time of the oldest event that the state may still need, by what it holds; None where it holds nothing."""
    if plan.operator == "window":
        times = old.stored.results(plan).selectExpr("min(start)")
    elif plan.operator == "session":
        times = (old.stored.timestamps() if old.open_timestamps is None else old.open_timestamps).selectExpr("min(ts)")
    else:
        times = old.stored.buffered().selectExpr("min(ts)")
    time: int | None = times.collect()[0][0]
    return time


def _refuse_gone(context: StreamContext, beginning: _Beginning, end: Position) -> None:
    """Refuse a range of which messages are gone: what is open could not be complete."""
    gone = beginning.gone
    try:
        context.source.ahead(beginning.begin, 1, end)
    except StreamLostError as error:
        gone = error.what
    if gone is not None:
        message = f"the state of stream {context.stream.name!r} cannot be built anew: {gone}"
        hint = "declare the stream as before until what is open has been given out, or give it another name."
        raise StreamLostError(message, hint=hint, origin=context.stream.origin)


def _built(
    context: StreamContext, old: _Old, beginning: _Beginning, folder: StateFolder, spark: SparkSession
) -> dict[str, object]:
    """Build a state up to the position of the target, and return how a position names it."""
    state = StateRows(context, spark, old.table.inspect_metadata_columns())
    end = without_state(old.position)
    replay = Replay(context, spark, state, folder, _nothing)
    with closing(replay):
        replay.begin()
        if state.plan.operator == "join" and old.same and old.watermark is not None:
            _replay_join(replay, beginning.begin, end, old.stored, old.watermark)
        else:
            replay.messages(beginning.begin, end, _choice(state.plan, old))
            replay.time(old.given_out)
        refuse_unsummed(context.stream, old.manifest.definition, replay.bad)
        state.refuse_missing(_old_groups(old) if _follows_sessions(old, state.plan) else ())
    batch = folder.last_done()
    if batch is None or folder.watermark_of(batch) != old.given_out:
        raise RunError(f"the new state of stream {context.stream.name!r} has not reached the time of the old one")
    _write(context, old, beginning, replay, end)
    return {"id": folder.query_id(), "batch": batch, "range": replay.name}


def _nothing(results: DataFrame, schemas: dict[str, str]) -> None:
    """Leave out what a new state gives out: the old one has given it out."""
    del results, schemas


def _write(context: StreamContext, old: _Old, beginning: _Beginning, replay: Replay, end: Position) -> None:
    """Write down what is known of the last range of a new state."""
    time_index = old.manifest.time_index
    if time_index is None and replay.newest is not None:
        time_index = TimeIndex(beginning.oldest, [(replay.newest, beginning.begin)])
    manifest = Manifest(
        end,
        end,
        old.manifest.times,
        old.given_out,
        replay.schemas,
        rejects=False,
        files=replay.folder.sizes(f"{replay.folder.input}/{replay.name}"),
        definition=state_definition(context.stream),
        windows=open_windows(replay.windows, old.given_out),
        time_index=time_index,
    )
    write_manifest(replay.folder, replay.name, manifest)


def _choice(plan: StatePlan, old: _Old) -> Choice:
    """Return what of the messages the new state needs: that of what the old one has not given out for good."""
    if old.given_out is None:
        return Choice()
    if plan.operator == "window":
        return Choice(partial(open_after, old.given_out - plan.allowed))
    if plan.operator == "session" and old.open_timestamps is not None:
        return Choice(rows=partial(rows_of_timestamps, old.open_timestamps, _old_groups(old)))
    if plan.operator == "session" and old.same:
        # Where a session begins depends on what came before it, which only the old state knows.
        return Choice(partial(remembered_times, old.stored.timestamps().select("key", "ts")))
    return Choice()


def _old_groups(old: _Old) -> tuple[str, ...]:
    """Return the columns that sessions were grouped by."""
    groups = old.manifest.definition.get("group_by")
    return tuple(map(str, groups)) if isinstance(groups, list) else ()


def _replay_join(replay: Replay, begin: Position, end: Position, stored: StoredState, watermark: int) -> None:
    """Build the rows of a join that wait, those that had a partner first.

    A partner that is forgotten already is put in for them, and forgotten again when time goes on. Then those follow that
    had none: the others would have met them before.
    """
    known = counted_rows(stored).persist()
    try:
        replay.lines(forgotten_partners(known, replay.state.plan, watermark))
        replay.messages(begin, end, Choice(partial(rows_of_join, known, paired=True)))
        replay.time(watermark)
        replay.messages(begin, end, Choice(partial(rows_of_join, known, paired=False)))
        replay.time(watermark)
    finally:
        known.unpersist()


def _switch(context: StreamContext, old: _Old, after: Position) -> None:
    try:
        take_over(old.table.offset_store, context.source.source_id, old.position, after, context.options.clock)
    except FencedError as error:
        message = f"stream {context.stream.name!r} has gone on while its state was built anew"
        hint = "stop it, and call flow stream redeploy again; nothing was changed."
        raise PositionMovedError(message, hint=hint) from error


def _remove_others(old: _Old, first: str) -> None:
    """Remove what redeployments have left that were interrupted, and states that others have replaced."""
    deployments = f"{first}/{DEPLOYMENTS}"
    for name in old.folder.folders(deployments):
        if f"{deployments}/{name}" != old.folder.path:
            old.folder.remove(f"{deployments}/{name}")
    if old.folder.path != first:
        _remove(old.folder, first, first)


def _remove(folder: StateFolder, path: str, first: str) -> None:
    """Remove the state at a path; the folder of the first one has those of the others."""
    if path != first:
        folder.remove(path)
        return
    for name in folder.folders(first):
        if name != DEPLOYMENTS:
            folder.remove(f"{first}/{name}")


def _plan(context: StreamContext) -> StatePlan:
    plan = state_plan(context.stream)
    assert plan is not None  # noqa: S101 - the stream has state
    return plan
