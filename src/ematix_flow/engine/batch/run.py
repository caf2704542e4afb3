"""Runs a pipeline: all targets under one request, the post steps, then the run log; only this module has the order."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.cancellation import current
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.pipeline.pipeline import Pipeline
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.planner import token_for
from ematix_flow.engine.batch.post_steps import parent_of, recorded_step, resolve_step, run_named_transform
from ematix_flow.engine.batch.progress import showing_progress
from ematix_flow.engine.batch.result import errors_in, result_of, whole
from ematix_flow.engine.batch.run_records import Recorder
from ematix_flow.engine.batch.run_request import emitting_run, ending, finished_result, open_request, reconciling
from ematix_flow.engine.batch.source import called, source_for
from ematix_flow.engine.batch.step_times import StepTimes
from ematix_flow.engine.batch.target import refuse_duplicate_targets
from ematix_flow.engine.errors import naming_target, translating_errors
from ematix_flow.engine.schedule.cancel import stoppable
from ematix_flow.engine.spark.session import engine_id, session_for
from ematix_flow.engine.warehouse.run import run_warehouse_pipeline
from ematix_flow.events import PostFinished
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.post_steps import post_steps
from ematix_flow.records import Token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import ParentContext, TargetDeclaration
    from ematix_flow.engine.batch.load import LoadRows
    from ematix_flow.engine.batch.result import LoadResult
    from ematix_flow.engine.batch.run_request import Progress
    from ematix_flow.plan.steps import Post
    from ematix_flow.records import Request


def run_pipeline(pipeline: Pipeline, options: Options | None = None) -> Any:
    """Run a pipeline now and return its result; an interrupted request is resumed."""
    options = options or Options()
    log, request = open_request(pipeline, options)
    return _run_request(pipeline, request, log, options)


def run_unclosed(pipeline: Pipeline, options: Options) -> tuple[Any, Callable[[], None]]:
    """Run a pipeline like `run_pipeline`; return the result, and what closes the request once that was delivered.

    Until then a next run returns the same result and loads nothing, so that no crash of the caller loads it twice.
    """
    log, request = open_request(pipeline, options)
    result = _run_request(pipeline, request, log, replace(options, retain_result=True))

    def close() -> None:
        # Otherwise it may be gone already when the process ends, and its requests with it.
        if log.lasting and not errors_in(result):
            log.close_request(request, options.clock.now())
            log.reconcile()

    return result, close


def run_transform(name: str, options: Options | None = None) -> dict[str, Any]:
    """Run a named transform on its own."""
    return run_named_transform(name, options or Options())


def _run_request(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Any:
    """Run everything under a request: open the source, load the targets, run the post steps and end the request."""
    with ExitStack() as run:
        run.enter_context(reconciling(log))
        options = replace(options, halt=run.enter_context(stoppable(pipeline, request, log, options)))
        outcome = run.enter_context(emitting_run(pipeline, request, log, options))
        if request.result:
            outcome.result = finished_result(pipeline, request, log, options)
            return outcome.result
        progress = run.enter_context(ending(request, log, options))
        recorder = Recorder.of(log, request, options)
        targets = _open_source(pipeline, recorder, progress)
        load_targets(pipeline, recorder, targets, progress)
        run_posts(pipeline, recorder, progress)
        outcome.result = progress.result
        return outcome.result


def _open_source(
    pipeline: Pipeline, recorder: Recorder, progress: Progress
) -> Sequence[tuple[TargetDeclaration, LoadRows]]:
    """Call the pipeline's function and return the rows for each target; none where it returned the result itself."""
    if not pipeline.targets:
        progress.result = _call(pipeline, recorder)
        return ()
    first, options, slot = pipeline.targets[0], recorder.options, recorder.request.id
    record = recorder.begun(token_for(pipeline, first, slot).run_id, pipeline.key_of(first))
    with recorder.failure_of(record):
        refuse_duplicate_targets(pipeline)
        source = source_for(pipeline, options, session_for(options))
        current().next_step()
    if source.value.result is not None:
        recorder.succeeded(record)
        progress.result = source.value.result
        return ()
    progress.record = record
    return tuple((target, SourceRows(source, slot)) for target in pipeline.targets)


def load_targets(
    pipeline: Pipeline, recorder: Recorder, targets: Sequence[tuple[TargetDeclaration, LoadRows]], progress: Progress
) -> None:
    """Load every target with its rows and record each run; the first one's record may have begun already."""
    results: dict[str, Any] = {}
    errors: dict[str, str] = {}
    begun = progress.record
    for target, rows in targets:
        key = pipeline.key_of(target)
        record, begun = begun or recorder.begun(rows.token(pipeline, target).run_id, key), None
        progress.record, times = record, StepTimes(watched=True)
        try:
            with naming_target(pipeline, target), recorder.failure_of(record, times):
                current().next_step()
                with showing_progress(recorder.log, record, times):
                    done = load_target(pipeline, target, rows, recorder.options, times)
                progress.loaded.append(target)
                current().has_committed = True
            measured = _measured(done, target)
            recorder.succeeded(record, **{**measured, "extras": measured["extras"] | times.as_extras()})
            results[key] = result_of(done, target)
        except Exception as error:
            errors[key] = safe_text(error)
            if current().error is not None or not (pipeline.fan_out and pipeline.continue_on_failure):
                raise
    progress.failed = bool(errors)
    if errors:
        progress.result = {"results": results, "errors": errors, "status": "failed"}
    elif targets:
        progress.result = results if pipeline.fan_out else next(iter(results.values()))


def run_posts(pipeline: Pipeline, recorder: Recorder, progress: Progress) -> None:
    """Run the post steps in order, each once per load, also after a crash between them; a fan-out has none.

    A run whose step fails is a failed run, although its rows are there.
    """
    options, result = recorder.options, progress.result
    if progress.record is None or pipeline.fan_out:
        return
    counts: dict[str, Any] = {
        name: result.get(name) for name in ("rows_inserted", "rows_updated", "rows_deleted", "rows_rejected")
    }
    with recorder.failure_of(replace(progress.record, failed_step="transforms_post", **counts)):
        parent = parent_of(pipeline, result)
        for post in post_steps(pipeline):
            current().next_step()
            failpoint("post.before")
            try:
                _run_post(pipeline, post, parent, options)
            except Exception as error:
                options.bus.emit(PostFinished(pipeline.name, "", post.name, ok=False, message=safe_text(error)))
                if not pipeline.continue_on_failure_post:
                    raise
                continue
            failpoint("post.after")
            options.bus.emit(PostFinished(pipeline.name, "", post.name, ok=True))


def _run_post(pipeline: Pipeline, post: Post, parent: ParentContext, options: Options) -> None:
    """Run one post step, unless it succeeded before a crash; a pipeline among them is a run like any other."""
    step, connection = resolve_step(pipeline, post.step)
    # The slot makes a step that is run again after a crash the same one.
    slot = f"{parent.run_id}:{post.name}"
    token = Token(pipeline.name, parent.pipeline_name, slot)
    with recorded_step(token, post.name, connection, options, parent) as recorded:
        if recorded.done:
            return
        if isinstance(step, Pipeline):
            alone = replace(options, slot=slot, source_frame=None, shaped=False, replays=())
            recorded.succeeded(whole(run_pipeline(step, alone)))
        else:
            recorded.run(step, parent)


def _call(pipeline: Pipeline, recorder: Recorder) -> Any:
    """Run a pipeline without targets of its own, a plain function or one between warehouses, and record the run."""
    record = recorder.begun(recorder.request.id)
    with recorder.failure_of(record):
        if pipeline.warehouse is None:
            result = called(pipeline.function)
        else:
            with translating_errors(pipeline.origin):
                slot, clock = recorder.request.id, recorder.options.clock
                result = run_warehouse_pipeline(pipeline, pipeline.warehouse, slot, clock)
        current().check()
        current().finish()
    recorder.succeeded(record)
    return result


def _measured(loaded: LoadResult, target: TargetDeclaration) -> dict[str, Any]:
    """Return what the run log stores of a load."""
    committed, counts = loaded.committed, loaded.committed.counts
    extras: dict[str, Any] = {
        "path": loaded.path,
        "engine": loaded.engine,
        "engine_reason": loaded.engine_reason,
        "mode": target.write.spelled,
        "recovered": committed.replayed,
    }
    if loaded.engine == "spark" and (engine := engine_id()):
        extras["engine_id"] = engine
    if committed.audited is not None:
        extras["quality"] = committed.audited.to_dict()
    return {
        "rows_inserted": counts.inserted,
        "rows_updated": counts.updated + counts.closed,
        "rows_deleted": counts.deleted,
        "rows_rejected": counts.rejected,
        "extras": extras,
    }
