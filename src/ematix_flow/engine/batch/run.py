"""Runs a pipeline: every target under one request, then the post steps, then the run log; the only place of this order."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ematix_flow.commit.runlog.open import forgotten_run_log, open_run_log
from ematix_flow.commit.runlog.requests import STOPPED
from ematix_flow.connect.halting import HaltedError, current
from ematix_flow.connect.lake_engine import EngineError
from ematix_flow.connect.redact import safe_text
from ematix_flow.connect.scratch import sweep_once
from ematix_flow.engine.batch.events import told
from ematix_flow.engine.batch.load import load_target
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.planner import token_for
from ematix_flow.engine.batch.post_steps import run_named_transform, run_posts
from ematix_flow.engine.batch.result import errors_in, from_kept, kept_text, loaded_in, result_of
from ematix_flow.engine.batch.run_records import Recorder
from ematix_flow.engine.batch.source import called, source_for
from ematix_flow.engine.batch.target import refuse_twins
from ematix_flow.engine.schedule.cancel import stoppable
from ematix_flow.engine.spark.session import engine_id, session_for
from ematix_flow.errors import NO_ROOM, FlowError, RunCancelledError, RunError, RunLogError, TransientError
from ematix_flow.events import RunFoundFinished, RunResumed
from ematix_flow.failpoints import failpoint
from ematix_flow.records import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.load import Loaded
    from ematix_flow.errors import Origin
    from ematix_flow.records import RunRecord


E = TypeVar("E", bound=BaseException)


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
    try:
        with stoppable(pipeline, request, log, options) as halt:
            try:
                return _told(pipeline, request, log, replace(options, halt=halt))
            except HaltedError as error:
                raise halt.blamed(error) from None
    finally:
        log.reconcile()


def _told(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Any:
    if options.slot is not None:  # whoever runs slots tells of them: only they know what becomes of one
        return _carried_out(pipeline, request, log, options)
    return told(pipeline.name, request.id, options, lambda: _remembered(pipeline, request, log, options))


def _remembered(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Any:
    """Run by request, and let those who depend on the pipeline know how that went."""
    success = False
    try:
        result = _carried_out(pipeline, request, log, options)
        success = not errors_in(result)
    finally:
        with suppress(RunLogError):
            log.record_run(pipeline.name, options.clock.now(), success)
    return result


def _carried_out(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Any:
    """Run everything under a request, and end the request."""
    if request.result:
        return _found_finished(pipeline, request, log, options)
    loaded: list[TargetDeclaration] = []
    try:
        result, complete = _run(pipeline, request, log, options, loaded)
    except RunCancelledError:
        _give_back(request, log, options, loaded, nothing_left=not loaded)
        raise
    except Exception:
        _give_back(request, log, options, loaded)
        raise
    except BaseException:
        log.release_request(request, STOPPED)
        raise
    failpoint("runlog.before_success")
    if complete and options.keep_result:
        log.finish_request(request, kept_text(result))
    elif complete:
        log.close_request(request, options.clock.now())
    else:
        _give_back(request, log, options, loaded)
    failpoint("runlog.after_success")
    return result


def _found_finished(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Any:
    """Give the result of a request that an earlier run had finished; nothing is loaded."""
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
    """Say whether a load that comes after another one brings nothing twice."""
    write = target.write
    by_column = write.incremental_column is not None and write.lookback is None
    return write.mode != "append" or by_column or write.incremental is not None


def run_transform(name: str, options: Options | None = None) -> dict[str, Any]:
    """Run a named transform on its own."""
    return run_named_transform(name, options or Options())


def _begun(pipeline: Pipeline, options: Options) -> tuple[RunLog, Request]:
    """Give the run log and the request; when the log is away the run goes on, and is forgotten afterwards."""
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


def _run(
    pipeline: Pipeline, request: Request, log: RunLog, options: Options, loaded: list[TargetDeclaration]
) -> tuple[Any, bool]:
    """Load every target, then run the post steps; gives the result and whether everything is done.

    `loaded` is told of every target that has its rows, also when another one fails.
    """
    recorder = Recorder.of(log, request, options)
    if not pipeline.targets:
        return _call(pipeline, recorder), True
    ids = {pipeline.key_of(one): token_for(pipeline, one, request.id).run_id for one in pipeline.targets}
    key, run_id = next(iter(ids.items()))
    first = recorder.begun(run_id, key)
    with recorder.failure_of(first):
        refuse_twins(pipeline)
        source = source_for(pipeline, options, session_for(options))
        current().next_step()
    if source.value.result is not None:
        recorder.succeeded(first)
        return source.value.result, True

    def load(target: TargetDeclaration) -> Loaded:
        done = load_target(pipeline, target, source, request.id, options)
        loaded.append(target)
        return done

    return load_targets(pipeline, recorder, ids, load, {key: first})


def load_targets(
    pipeline: Pipeline,
    recorder: Recorder,
    ids: Mapping[str, str],
    load: Callable[[TargetDeclaration], Loaded],
    begun: Mapping[str, RunRecord] = MappingProxyType({}),
) -> tuple[Any, bool]:
    """Do `load` for every target, record each run and run the post steps; gives the result and whether all is done.

    `ids` has the id of the run for each target; those in `begun` are recorded as running already.
    """
    results: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for target in pipeline.targets:
        key = pipeline.key_of(target)
        record = begun.get(key) or recorder.begun(ids[key], key)
        try:
            results[key] = _load_one(pipeline, target, load, record, recorder)
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
    """Run the post steps; a run whose step fails is a failed run, although its rows are there."""
    counts: dict[str, Any] = {
        name: result.get(name) for name in ("rows_inserted", "rows_updated", "rows_deleted", "rows_rejected")
    }
    with recorder.failure_of(replace(record, failed_step="transforms_post", **counts)):
        run_posts(pipeline, result, recorder.options)


def _call(pipeline: Pipeline, recorder: Recorder) -> Any:
    """Run a pipeline that is a plain function, and record the run whatever happens."""
    record = recorder.begun(recorder.request.id)
    with recorder.failure_of(record):
        result = called(pipeline.function)
        current().check()
        current().settle()
    recorder.succeeded(record)
    return result


def _load_one(
    pipeline: Pipeline,
    target: TargetDeclaration,
    load: Callable[[TargetDeclaration], Loaded],
    record: RunRecord,
    recorder: Recorder,
) -> dict[str, Any]:
    """Load one target and record the run, whatever happens."""
    try:
        with recorder.failure_of(record):
            current().next_step()
            loaded = load(target)
    except BaseException as error:
        raise as_ours(error, pipeline.origin) from error
    committed = loaded.committed
    counts = committed.counts
    measured = {} if committed.audited is None else {"quality": committed.audited.to_dict()}
    recorder.succeeded(
        record,
        rows_inserted=counts.inserted,
        rows_updated=counts.updated + counts.closed,
        rows_deleted=counts.deleted,
        rows_rejected=counts.rejected,
        extras={
            "path": loaded.path,
            "engine": loaded.engine,
            **({"engine_id": found} if loaded.engine == "spark" and (found := engine_id()) else {}),
            "mode": target.write.spelled,
            "recovered": committed.replayed,
            **measured,
        },
    )
    return result_of(loaded, target)


def as_ours(error: E, origin: Origin | None) -> E | FlowError:
    """Give the error with the place of the declaration; errors of drivers become ours, without secrets."""
    if isinstance(error, FlowError):
        return error.at(origin)
    module = type(error).__module__.split(".")[0]
    drivers = ("psycopg", "pymysql", "duckdb", "_duckdb", "sqlite3", "adbc_driver_manager", "pyspark", "py4j")
    if isinstance(error, EngineError) or module in drivers:
        return RunError(safe_text(error), origin=origin)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        hint = "nothing was changed; make room, or choose another place with TMPDIR."
        return TransientError(f"there is no room left: {error.strerror or error}", hint=hint, origin=origin)
    return error
