"""Streams as plans: what the next batch of each target would do, shown, simulated or checked; no position moves.

The batch is the one that a run would load, so there is no second path to its plan.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import EARLIEST
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.files.stream_source import FileStream
from ematix_flow.engine.batch.planner import load_inspector, plan_load, request_for, token_for
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.review.dry_run import format_error, simulate_target
from ematix_flow.engine.review.preview import PREVIEW_SLOT, plan_despite_drift, report
from ematix_flow.engine.review.validate import Findings, ValidateResult, check_commit
from ematix_flow.engine.spark.session import session_for
from ematix_flow.engine.stream.loop import MOST
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.open import open_context, refuse_impossible, sink_for
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.sinks.broker import BrokerSink, is_broker, rejected
from ematix_flow.engine.stream.sinks.changes import refuse_many_tables
from ematix_flow.engine.stream.sinks.table import pipeline_into
from ematix_flow.engine.stream.sinks.table_schema import name_of
from ematix_flow.errors import DriftError
from ematix_flow.plan.explain.guarantees import QUEUES, guarantee_of
from ematix_flow.plan.explain.report import TargetSummary, summary_of
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.stream.state_warnings import state_warnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.engine.batch.planner import LoadRequest
    from ematix_flow.engine.review.preview import PreviewResult
    from ematix_flow.engine.stream.sinks.base import StreamBatch, StreamContext, StreamSink

READS_FIRST = "the messages say which columns there are: flow dry-run reads them and shows the plan"
BY_STATE = "the state of the stream decides which rows a batch gives: only a run shows them"
IN_THE_QUEUE = "only received messages are inspected; messages still in the queue stay there"


def preview_stream(stream: Stream, options: StreamOptions | None = None) -> PreviewResult:
    """Return the plan of the next batch of every target; no message is read."""
    return _reviewed(stream, options or StreamOptions(), simulates=False)


def dry_run_stream(stream: Stream, options: StreamOptions | None = None) -> PreviewResult:
    """Return the plan with the counts of the next batch: its messages are read, loaded and rolled back, or not sent."""
    return _reviewed(stream, options or StreamOptions(), simulates=True)


def validate_stream(stream: Stream, options: StreamOptions | None = None) -> ValidateResult:
    """Check everything that can be checked without reading a message; what is wrong comes out as errors."""
    options, findings = options or StreamOptions(), Findings()
    with findings.about("stream", Exception), ExitStack() as resources:
        stream = filled_in(stream)
        refuse_impossible(stream, options)
        findings.note(*state_warnings(stream))
        context = open_context(stream, options, resources)
        refuse_many_tables(stream, context.source)
        for part in context.source.parts:
            with findings.about(f"source {part.query!r}", Exception):
                part.waiting(part.start(EARLIEST))
        for target in stream.targets:
            with findings.about(f"target {stream.key_of(target)!r}", Exception):
                _check_target(context, target, resources, findings)
    return ValidateResult(
        pipeline_name=stream.name,
        ok=not findings.errors,
        source_sql=stream.transform.sql or "",
        errors=tuple(findings.errors),
        target_connection_name=stream.targets[0].connection_name,
        notes=tuple(findings.notes),
    )


def _reviewed(stream: Stream, options: StreamOptions, *, simulates: bool) -> PreviewResult:
    stream = filled_in(stream)
    refuse_impossible(stream, options)
    with ExitStack() as resources:
        context = open_context(stream, options, resources)
        refuse_many_tables(stream, context.source)
        notes = list(state_warnings(stream))
        notes += [IN_THE_QUEUE] if any(part.kind in QUEUES for part in context.source.parts) else []
        targets = []
        for target in stream.targets:
            summary, more = _summary(context, target, resources, simulates=simulates)
            targets.append(summary)
            notes += [note for note in more if note not in notes]
        header = replace(pipeline_into(stream, stream.targets[0], stream.name), source_connection=None)
        source = OpenSource(SourceValue(None, sql=stream.transform.sql or ""), context.source.name)
        return report(header, source, targets, notes, is_dry_run=simulates)


def _summary(
    context: StreamContext, target: StreamTarget, resources: ExitStack, *, simulates: bool
) -> tuple[TargetSummary, list[str]]:
    """Return what the next batch of one target would do; errors are part of the result."""
    known = _declared(target)
    try:
        sink = sink_for(context, target, read_only=True)
        resources.callback(sink.close)
        end = context.source.ahead(sink.position, context.options.most or context.stream.max_rows_per_batch or MOST)
        waiting = context.source.distance(sink.position, end)
        notes = [_promise(context, target), _range(context, sink, waiting)]
        if context.stream.is_stateful:
            return known, [*notes, BY_STATE]
        if isinstance(sink, BrokerSink):
            return _sent(known, sink, end) if simulates else known, notes
        if not simulates and sink.reads_first:
            return known, [*notes, READS_FIRST]
        batch = sink.batch(end) if waiting or not sink.reads_first else None
        if batch is None:
            return known, notes
        if simulates:
            return simulate_target(batch.pipeline, batch.target, batch.source, context.options.load), notes
        return _planned(batch, context), notes
    except Exception as error:  # noqa: BLE001 - the engine's boundary: whatever goes wrong is part of the answer
        return replace(known, dry_run_error=format_error(error)), []


def _declared(target: StreamTarget) -> TargetSummary:
    """Return what is known of a target before any system is queried."""
    table = target.declared_table
    return TargetSummary(
        schema_qualified_name=target.destination
        if is_broker(target)
        else ".".join(part for part in name_of(target) if part),
        mode=target.write.spelled,
        target_connection_name=target.connection_name,
        declared_columns=() if table is None else table.column_names,
        path="messages" if is_broker(target) else None,
        path_reason=f"{resolve_connection(target.connection).kind} takes messages" if is_broker(target) else "",
    )


def _sent(known: TargetSummary, sink: BrokerSink, end: dict[str, object]) -> TargetSummary:
    """Count what would be sent; what would fail the batch is raised as it would be then."""
    outgoing = sink.messages(end)
    if outgoing.rejects is not None and sink.context.stream.transform.on_error == "fail":
        rejected(sink.context, outgoing.rejects)
    count, refused = len(outgoing.messages), 0 if outgoing.rejects is None else outgoing.rejects.num_rows
    return replace(
        known, dry_run_rows_affected={"rows_staged": count, "rows_inserted": count, "rows_rejected": refused}
    )


def _planned(batch: StreamBatch, context: StreamContext) -> TargetSummary:
    load_request, inspect_load = _request(batch, context)
    return summary_of(plan_despite_drift(load_request, inspect_load))


def _request(batch: StreamBatch, context: StreamContext) -> tuple[LoadRequest, Callable[[LoadRequest], LoadInspection]]:
    options = context.options.load
    spark = session_for(options)
    database = target_for(batch.target.connection, batch.target.table, spark)
    token = token_for(batch.pipeline, batch.target, PREVIEW_SLOT)
    return request_for(batch.pipeline, batch.target, batch.source, database, token, options), load_inspector(spark)


def _check_target(context: StreamContext, target: StreamTarget, resources: ExitStack, findings: Findings) -> None:
    findings.note(_promise(context, target))
    sink = sink_for(context, target, read_only=True)
    resources.callback(sink.close)
    if isinstance(sink, BrokerSink):
        return
    if context.stream.is_stateful:
        findings.note(BY_STATE)
        return
    if sink.reads_first:
        findings.note(READS_FIRST)
        return
    batch = sink.batch(context.source.ahead(sink.position, 1))
    if batch is None:
        return
    load_request, inspect_load = _request(batch, context)
    try:
        plan = plan_load(load_request, inspect_load)[0]
    except DriftError as error:
        findings.error(f"{batch.target.table.qualified_name}: {error.what}")
        return
    findings.note(*plan.notes)
    check_commit(plan, load_request.database, findings)


def _promise(context: StreamContext, target: StreamTarget) -> str:
    """Return the guarantee of the stream for this target."""
    sources = [resolve_connection(source.connection).kind for source in context.stream.sources]
    promised = guarantee_of(sources, resolve_connection(target.connection).kind, context.stream.delivery)
    return f"{context.stream.key_of(target)}: {promised.level.replace('_', ' ')}: {promised.reason}"


def _range(context: StreamContext, sink: StreamSink, distance: int) -> str:
    if not distance:
        return f"{sink.key}: nothing waits"
    what = "file" if isinstance(context.source, FileStream) else "message"
    return f"{sink.key}: the next batch has {distance} {what}{'' if distance == 1 else 's'}"
