"""Runs that a user requested: one per pipeline, resumed after a failure or a crash, owned by one process of a host."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.records import RequestRow
from ematix_flow.connect.base.processes import process_start
from ematix_flow.errors import RunError
from ematix_flow.records import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ematix_flow.commit.runlog.backend import RunLogBackend

OPEN = "open"
FINISHED = "finished"
DONE = "done"

FAILED = "failed"
STOPPED = "stopped"


def open_request(backend: RunLogBackend, pipeline: str, at: datetime, *, new: bool = False) -> Request:
    """Return the interrupted request of this pipeline, or a new one; refused while a process of this host works on it.

    A finished request comes with its result: everything is committed, and only the delivery is left to do.
    """
    while True:
        existing = backend.find(RequestRow, (pipeline,))
        if existing is not None and is_unclosed(existing) and _alive(existing):
            message = f"pipeline {pipeline!r} is running already, in process {existing.pid}"
            raise RunError(message, hint="wait for it, or stop it; running the pipeline again then resumes its work.")
        resumed = existing if existing is not None and is_unclosed(existing) and not new else None
        stored = backend.swap(existing, _owned(resumed or _new_request(pipeline, at)))
        if stored is not None:
            ended = resumed.ended if resumed is not None else ""
            return Request(stored.request_id, pipeline, resumed is not None, stored.opened_at, ended, stored.result)


def finish_request(backend: RunLogBackend, request: Request, result: str) -> None:
    """Mark a request as finished: everything is committed, and its owner has yet to deliver the result."""
    _change(backend, request, lambda row: replace(row, state=FINISHED, result=result))


def close_request(backend: RunLogBackend, request: Request, at: datetime) -> None:
    """Mark a request as done: the next run of the pipeline is a new one."""
    _change(backend, request, lambda row: replace(row, state=DONE, closed_at=at.isoformat(), pid=0, result=""))


def release_request(backend: RunLogBackend, request: Request, ended: str = FAILED) -> None:
    """Keep a request that failed or was stopped open for the next run, but owned by no process."""
    _change(backend, request, lambda row: replace(row, pid=0, ended=ended))


def is_unclosed(row: RequestRow) -> bool:
    """Return whether the next run of the pipeline takes this request up."""
    return row.state in (OPEN, FINISHED)


def cancel(backend: RunLogBackend, pipeline: str, by: str) -> RequestRow | None:
    """Request that the process of a request stops; return None when this machine knows no process that works on it."""
    while (existing := backend.find(RequestRow, (pipeline,))) is not None and existing.state == OPEN and existing.pid:
        if existing.host == socket.gethostname() and existing.pid != os.getpid() and not _alive(existing):
            return None
        stored = backend.swap(existing, replace(existing, cancelled_by=existing.cancelled_by or by))
        if stored is not None:
            return stored
    return None


def cancelled_by(backend: RunLogBackend, request: Request) -> str:
    """Return who cancelled a request; empty when it was not cancelled."""
    existing = backend.find(RequestRow, (request.pipeline,))
    return existing.cancelled_by if existing is not None and existing.request_id == request.id else ""


def _change(backend: RunLogBackend, request: Request, change: Callable[[RequestRow], RequestRow]) -> None:
    """Change the row of a request; one that another request has replaced is left alone."""
    while True:
        existing = backend.find(RequestRow, (request.pipeline,))
        if existing is None or existing.request_id != request.id:
            return
        if backend.swap(existing, change(existing)) is not None:
            return


def _new_request(pipeline: str, at: datetime) -> RequestRow:
    return RequestRow(pipeline, f"req-{uuid.uuid4().hex}", OPEN, at.isoformat())


def _owned(row: RequestRow) -> RequestRow:
    row = replace(row, host=socket.gethostname(), pid=os.getpid(), pid_started=process_start(os.getpid()))
    return replace(row, closed_at="", ended="", cancelled_by="")


def _alive(row: RequestRow) -> bool:
    """Return whether the owner of a request still runs; a process of another host is left to the fence."""
    if not row.pid or row.host != socket.gethostname() or row.pid == os.getpid():
        return False
    return process_start(row.pid) == row.pid_started and row.pid_started != ""


def is_gone(host: str, pid: int, started: str) -> bool:
    """Return whether a process is known to have ended; one of another host is not."""
    return host == socket.gethostname() and process_start(pid) != started


def worked_on(backend: RunLogBackend) -> dict[str, str]:
    """Return the pipelines with a request that a process of this machine works on, each with the process as text."""
    open_ = [row for row in backend.all(RequestRow) if is_unclosed(row)]
    return {row.pipeline: f"in process {row.pid}" for row in open_ if row.pid == os.getpid() or _alive(row)}
