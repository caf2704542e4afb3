"""The request of a run: opened or resumed, emitted as events, and ended with the work under it."""

from __future__ import annotations

import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog.open import forgotten_run_log, open_run_log
from ematix_flow.commit.runlog.requests import STOPPED
from ematix_flow.connect.base.scratch import sweep_once
from ematix_flow.engine.batch.events import RunOutcome, emitting_attempt, emitting_pipeline
from ematix_flow.engine.batch.result import errors_in, loaded_in, result_from_text, result_to_text
from ematix_flow.errors import RunCancelledError, RunLogError
from ematix_flow.events import RunAlreadyFinished, RunResumed
from ematix_flow.failpoints import failpoint
from ematix_flow.records import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.records import RunRecord


def open_request(pipeline: Pipeline, options: Options) -> tuple[RunLog, Request]:
    """Return the run log and the request; when the log is away the run goes on without a record."""
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


@contextmanager
def reconciling(log: RunLog) -> Iterator[None]:
    """Send what a run log missed while it was away, however this block ends."""
    try:
        yield
    finally:
        log.reconcile()


@contextmanager
def emitting_run(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Iterator[RunOutcome]:
    """Emit the events of a run by request, and record its outcome for dependents; slot runners do so themselves."""
    outcome = RunOutcome()
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
def _remembering(pipeline: Pipeline, log: RunLog, options: Options, outcome: RunOutcome) -> Iterator[None]:
    """Record the outcome of this block for pipelines that depend on this one."""
    success = False
    try:
        yield
        success = not errors_in(outcome.result)
    finally:
        with suppress(RunLogError):
            log.record_run(pipeline.name, options.clock.now(), success)


@dataclass(slots=True)
class Progress:
    """How far the work under a request has come."""

    loaded: list[TargetDeclaration] = field(default_factory=list)
    """The targets that have their rows."""
    record: RunRecord | None = None
    """The record of the newest run, which begins with the call of the pipeline's function; None where nothing is loaded."""
    result: Any = None
    failed: bool = False
    """Whether targets of a fan-out failed that the others did not wait for."""


@contextmanager
def ending(request: Request, log: RunLog, options: Options) -> Iterator[Progress]:
    """End a request with this block: close it, store its result, or leave it to the next run."""
    progress = Progress()
    try:
        yield progress
    except RunCancelledError:
        _release_or_close(request, log, options, progress.loaded, nothing_left=not progress.loaded)
        raise
    except Exception:
        _release_or_close(request, log, options, progress.loaded)
        raise
    except BaseException:
        log.release_request(request, STOPPED)
        raise
    failpoint("runlog.before_success")
    if progress.failed:
        _release_or_close(request, log, options, progress.loaded)
    elif options.retain_result:
        log.finish_request(request, result_to_text(progress.result))
    else:
        log.close_request(request, options.clock.now())
    failpoint("runlog.after_success")


def finished_result(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Any:
    """Return the result of a request that an earlier run had finished; nothing is loaded."""
    result = result_from_text(request.result)
    options.bus.emit(RunAlreadyFinished(pipeline.name, "", request.id, loaded_in(result)))
    if not options.retain_result:
        log.close_request(request, options.clock.now())
    return result


def _release_or_close(
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
