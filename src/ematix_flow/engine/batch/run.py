"""Runs a pipeline: every target under one request, then the post steps, then the run log; the only place of this order."""

from __future__ import annotations

import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog.open import forgotten_run_log, open_run_log
from ematix_flow.commit.runlog.requests import STOPPED
from ematix_flow.connect.base.cancellation import current
from ematix_flow.connect.base.scratch import sweep_once
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.pipeline.pipeline import Pipeline
from ematix_flow.engine.batch.events import Outcome, emitting_attempt, emitting_pipeline
from ematix_flow.engine.batch.load import FreshRows, load_target
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.planner import token_for
from ematix_flow.engine.batch.post_steps import parent_of, recorded_step, resolve_step, run_named_transform
from ematix_flow.engine.batch.result import errors_in, from_kept, kept_text, loaded_in, result_of
from ematix_flow.engine.batch.run_records import Recorder
from ematix_flow.engine.batch.source import called, source_for
from ematix_flow.engine.batch.target import refuse_duplicate_targets
from ematix_flow.engine.errors import translating_errors
from ematix_flow.engine.schedule.cancel import stoppable
from ematix_flow.engine.spark.session import engine_id, session_for
from ematix_flow.errors import RunCancelledError, RunLogError
from ematix_flow.events import PostFinished, RunFoundFinished, RunResumed
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.post_steps import post_steps
from ematix_flow.records import Request, Token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import ParentContext, TargetDeclaration
    from ematix_flow.engine.batch.load import Loaded, Rows
    from ematix_flow.plan.steps import Post
    from ematix_flow.records import RunRecord


def run_pipeline(pipeline: Pipeline, options: Options | None = None) -> Any:
    """Run a pipeline now and give its result; an interrupted request is resumed."""
    options = options or Options()
    log, request = _begun(pipeline, options)
    return _run_request(pipeline, request, log, options)


def run_unclosed(pipeline: Pipeline, options: Options) -> tuple[Any, Callable[[], None]]:
    """Run a pipeline like `run_pipeline`; gives the result, and what closes the request once that was delivered.

    Until then a next run gives the same result and loads nothing, so that no crash of the caller loads it twice.
    """
    log, request = _begun(pipeline, options)
    result = _run_request(pipeline, request, log, replace(options, keep_result=True))

    def close() -> None:
        if not errors_in(result):
            log.close_request(request, options.clock.now())
            log.reconcile()

    return result, close


def _run_request(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Any:
    """Run everything under a request, end the request, and emit how that went."""
    with _reconciling(log), stoppable(pipeline, request, log, options) as halt:
        options = replace(options, halt=halt)
        with _observed(pipeline, request, log, options) as outcome:
            if request.result:
                outcome.result = _found_finished(pipeline, request, log, options)
            else:
                with _ending(request, log, options) as progress:
                    recorder = Recorder.of(log, request, options)
                    opened = _open_source(pipeline, recorder)
                    progress.result, progress.complete = opened.result, opened.record is None
                    if opened.record is not None:
                        progress.result, progress.complete = load_targets(
                            pipeline, recorder, opened.targets, progress.loaded, opened.record
                        )
                outcome.result = progress.result
    return outcome.result


@contextmanager
def _reconciling(log: RunLog) -> Iterator[None]:
    """Send what a run log missed while it was away, however this block ends."""
    try:
        yield
    finally:
        log.reconcile()


@contextmanager
def _observed(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Iterator[Outcome]:
    """Emit how a run by request goes, and remember it for what depends on the pipeline; the runner of a slot does so itself."""
    outcome = Outcome()
    if options.slot is not None:
        yield outcome
        return
    with (
        emitting_pipeline(pipeline.name, request.id, options, outcome),
        emitting_attempt(pipeline.name, request.id, 1, options.bus, outcome),
        _remembering(pipeline, log, options, outcome),
    ):
        yield outcome


@contextmanager
def _remembering(pipeline: Pipeline, log: RunLog, options: Options, outcome: Outcome) -> Iterator[None]:
    """Let those who depend on the pipeline know how this block went."""
    success = False
    try:
        yield
        success = not errors_in(outcome.result)
    finally:
        with suppress(RunLogError):
            log.record_run(pipeline.name, options.clock.now(), success)


@dataclass(slots=True)
class _Progress:
    """How far the work under a request has come."""

    loaded: list[TargetDeclaration] = field(default_factory=list)
    """The targets that have their rows."""
    result: Any = None
    complete: bool = False


@contextmanager
def _ending(request: Request, log: RunLog, options: Options) -> Iterator[_Progress]:
    """End a request with this block: close it, keep its result, or leave it to the next run."""
    progress = _Progress()
    try:
        yield progress
    except RunCancelledError:
        _give_back(request, log, options, progress.loaded, nothing_left=not progress.loaded)
        raise
    except Exception:
        _give_back(request, log, options, progress.loaded)
        raise
    except BaseException:
        log.release_request(request, STOPPED)
        raise
    failpoint("runlog.before_success")
    if progress.complete and options.keep_result:
        log.finish_request(request, kept_text(progress.result))
    elif progress.complete:
        log.close_request(request, options.clock.now())
    else:
        _give_back(request, log, options, progress.loaded)
    failpoint("runlog.after_success")


def _found_finished(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Any:
    """Return the result of a request that an earlier run had finished; nothing is loaded."""
    result = from_kept(request.result)
    options.bus.emit(RunFoundFinished(pipeline.name, "", request.id, loaded_in(result)))
    if not options.keep_result:
        log.close_request(request, options.clock.now())
    return result


def _give_back(
    request: Request, log: RunLog, options: Options, loaded: list[TargetDeclaration], *, nothing_left: bool = False
) -> None:
    """End a request that failed, or keep it open for the next run; a cancelled one that loaded nothing is over.

    When some targets have their rows already, the next run should bring them newer ones and not wait for the others; it
    waits where it has to, since the same rows would be appended a second time.
    """
    if nothing_left or (loaded and all(_repeatable(target) for target in loaded)):
        log.close_request(request, options.clock.now())
    else:
        log.release_request(request)


def _repeatable(target: TargetDeclaration) -> bool:
    """Return whether a load that comes after another one brings nothing twice."""
    write = target.write
    by_column = write.incremental_column is not None and write.lookback is None
    return write.mode != "append" or by_column or write.incremental is not None


def run_transform(name: str, options: Options | None = None) -> dict[str, Any]:
    """Run a named transform on its own."""
    return run_named_transform(name, options or Options())


def _begun(pipeline: Pipeline, options: Options) -> tuple[RunLog, Request]:
    """Return the run log and the request; when the log is away the run goes on, and is forgotten afterwards."""
    log = options.run_log or open_run_log()
    sweep_once()
    try:
        return log, _request(pipeline, log, options)
    except RunLogError as error:
        text = f"{error.what}; this run is not remembered and cannot be resumed"
        warnings.warn(text, UserWarning, stacklevel=3)
        forgotten = forgotten_run_log()
        return forgotten, _request(pipeline, forgotten, options)


def _request(pipeline: Pipeline, log: RunLog, options: Options) -> Request:
    if options.slot is not None:
        return Request(options.slot, pipeline.name)
    request = log.open_request(options.request or pipeline.name, options.clock.now(), new=options.new)
    if request.resumed and not request.result:
        options.bus.emit(RunResumed(pipeline.name, "", request.id, request.ended))
    return request


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a pipeline's function has given: rows for targets, or a result that is all there is."""

    targets: tuple[tuple[TargetDeclaration, Rows], ...] = ()
    record: RunRecord | None = None
    """The record of the first target's run, which began with the call of the function; None after a result."""
    result: Any = None


def _open_source(pipeline: Pipeline, recorder: Recorder) -> _Opened:
    """Call the pipeline's function and open what it names."""
    if not pipeline.targets:
        return _Opened(result=_call(pipeline, recorder))
    first, options, slot = pipeline.targets[0], recorder.options, recorder.request.id
    record = recorder.begun(token_for(pipeline, first, slot).run_id, pipeline.key_of(first))
    with recorder.failure_of(record):
        refuse_duplicate_targets(pipeline)
        source = source_for(pipeline, options, session_for(options))
        current().next_step()
    if source.value.result is not None:
        recorder.succeeded(record)
        return _Opened(result=source.value.result)
    return _Opened(tuple((target, FreshRows(source, slot)) for target in pipeline.targets), record)


def load_targets(
    pipeline: Pipeline,
    recorder: Recorder,
    targets: Sequence[tuple[TargetDeclaration, Rows]],
    loaded: list[TargetDeclaration],
    begun: RunRecord | None = None,
) -> tuple[Any, bool]:
    """Load every target with its rows, record each run and run the post steps; return the result and whether all is done.

    `loaded` gets every target that has its rows; `begun` is the record of the first run where that has begun already.
    """
    results: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for target, rows in targets:
        key = pipeline.key_of(target)
        record, begun = begun or recorder.begun(rows.token(pipeline, target).run_id, key), None
        try:
            with translating_errors(pipeline.origin), recorder.failure_of(record):
                current().next_step()
                done = load_target(pipeline, target, rows, recorder.options)
                loaded.append(target)
            recorder.succeeded(record, **_measured(done, target))
            results[key] = result_of(done, target)
        except Exception as error:
            errors[key] = safe_text(error)
            if current().error is not None or not (pipeline.fan_out and pipeline.continue_on_failure):
                raise
    if errors:
        return {"results": results, "errors": errors, "status": "failed"}, False
    result = results if pipeline.fan_out else next(iter(results.values()))
    if not pipeline.fan_out:
        _run_posts(pipeline, result, record, recorder)
    return result, True


def _run_posts(pipeline: Pipeline, result: dict[str, Any], record: RunRecord, recorder: Recorder) -> None:
    """Run the post steps in order, each once per load, also after a crash between them.

    A run whose step fails is a failed run, although its rows are there.
    """
    counts: dict[str, Any] = {
        name: result.get(name) for name in ("rows_inserted", "rows_updated", "rows_deleted", "rows_rejected")
    }
    options = recorder.options
    with recorder.failure_of(replace(record, failed_step="transforms_post", **counts)):
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
            recorded.succeeded(run_pipeline(step, replace(options, slot=slot, source_frame=None, replays=())))
        else:
            recorded.run(step, parent)


def _call(pipeline: Pipeline, recorder: Recorder) -> Any:
    """Run a pipeline that is a plain function, and record the run whatever happens."""
    record = recorder.begun(recorder.request.id)
    with recorder.failure_of(record):
        result = called(pipeline.function)
        current().check()
        current().settle()
    recorder.succeeded(record)
    return result


def _measured(loaded: Loaded, target: TargetDeclaration) -> dict[str, Any]:
    """Return what the run log keeps of a load."""
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
