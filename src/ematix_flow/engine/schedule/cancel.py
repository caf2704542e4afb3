"""Stops runs that are cancelled or take too long; `connect.base.cancellation` interrupts their work."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog import requests
from ematix_flow.connect.base.cancellation import Halt, HaltedError
from ematix_flow.engine.schedule.lease import CHECK_SECONDS, cancelled, left_behind
from ematix_flow.errors import RunLogError, RunTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.records import Request


@contextmanager
def stoppable(pipeline: Pipeline, request: Request, log: RunLog, options: Options) -> Iterator[Halt]:
    """Return what stops the run in this block: its lease or a request that is cancelled, and the limit of its time."""
    halt = options.halt or Halt(lambda one: _check_cancelled(one, request, log))
    with halt.over(), _watched(halt, request, log, options), _limited(halt, pipeline.name, pipeline.timeout):
        try:
            yield halt
        except HaltedError as error:
            raise halt.blamed(error) from None


@contextmanager
def _watched(halt: Halt, request: Request, log: RunLog, options: Options) -> Iterator[None]:
    """Check now and then whether a run by hand was cancelled; the holder of a lease checks itself."""
    if options.halt is not None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(CHECK_SECONDS) and halt.error is None:
            _check_cancelled(halt, request, log)

    watcher = threading.Thread(target=watch, name=f"request-{request.pipeline}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()


def _check_cancelled(halt: Halt, request: Request, log: RunLog) -> None:
    with suppress(RunLogError):  # a load never fails because of its run log
        by = requests.cancelled_by(log.backend, request)
        if by:
            halt.stop(cancelled(request.pipeline, by, halt))


@contextmanager
def _limited(halt: Halt, name: str, limit: timedelta | None) -> Iterator[None]:
    """Stop the run when its time is over."""
    if limit is None:
        yield
        return
    message = f"the run of {name} took longer than its timeout of {limit.total_seconds():g} s"

    def stop() -> None:
        hint = f"{left_behind(halt)}; timeout= is the longest time of one attempt."
        halt.stop(RunTimeoutError(message, hint=hint))

    timer = threading.Timer(limit.total_seconds(), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
