"""A lease on a pipeline that is renewed while its run lasts; the fence ensures that an old holder commits nothing."""

from __future__ import annotations

import os
import socket
import threading
import time
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from ematix_flow.commit.runlog.records import Claim, instant
from ematix_flow.connect.base.cancellation import Halt
from ematix_flow.errors import FencedError, RunCancelledError, RunLogError

if TYPE_CHECKING:
    from types import TracebackType

    from ematix_flow.commit.runlog.log import RunLog

LEASE_SECONDS = 60.0
"""How long a run may be silent before another worker takes it over."""

BEATS = 3
"""Renewals in the time of one lease."""

CHECK_SECONDS = 2.0
"""How often a run checks whether it was cancelled."""


class PipelineLease:
    """The right to run one pipeline, under a token from the run log."""

    def __init__(self, log: RunLog, name: str, token: str, seconds: float, every: float | None = None) -> None:
        self.name, self.token, self.seconds = name, token, seconds
        self._log = log
        self._every = every or seconds / BEATS
        self.halt = Halt(lambda _: self._poll())
        """Stops the run when the lease is lost or cancelled."""
        self._ended, self._lost = threading.Event(), threading.Event()
        self._renewed = time.monotonic()
        self._warned = False
        self._thread = threading.Thread(target=self._beat, name=f"lease-{name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(self.seconds)
        if not self._lost.is_set():
            with suppress(RunLogError):  # a lease that cannot be released ends by itself
                self._log.release(self.token)

    def check(self) -> None:
        """Refuse to go on when the run was taken over or cancelled; called right before a commit."""
        self.halt.check()

    def _beat(self) -> None:
        """Renew the lease now and then, and check more often whether the run was cancelled."""
        while not self._ended.wait(min(self._every, CHECK_SECONDS)) and not self._lost.is_set():
            if time.monotonic() - self._renewed >= self._every:
                self._renew()
            else:
                self._poll()

    def _poll(self) -> None:
        """Read the lease; nothing is written, because a commit may be under way in the same database."""
        if time.monotonic() - self._renewed > self.seconds:
            self._renew()  # this process slept; the renewal shows whether the lease was lost
        else:
            with suppress(RunLogError):  # the fence of the target still keeps two runs apart
                self._cancel_check(self._log.held(self.token))

    def _cancel_check(self, claim: Claim | None) -> None:
        if claim is None:
            self._lost.set()
            message = f"the lease on {self.name} was lost: this run was silent for too long and another one took over"
            self.halt.stop(FencedError(message, hint="nothing was changed; the run that took over does the work."))
        elif claim.cancelled_by:
            self.halt.stop(cancelled(self.name, claim.cancelled_by, self.halt))

    def _renew(self) -> None:
        try:
            if self._log.heartbeat(self.token, self.seconds):
                self._renewed = time.monotonic()
            self._cancel_check(self._log.held(self.token))
        except RunLogError as error:
            # The fence of the target still keeps two runs apart, so the work goes on.
            if not self._warned:
                self._warned = True
                warnings.warn(f"{error.what}; the lease on {self.name} cannot be renewed", UserWarning, stacklevel=2)


def cancelled(pipeline: str, by: str, halt: Halt) -> RunCancelledError:
    """Return the error of a cancelled run."""
    return RunCancelledError(f"the run of {pipeline} was cancelled by {by}", hint=f"{left_behind(halt)}.")


def left_behind(halt: Halt) -> str:
    """Return what a run that is stopped now has committed: targets and steps before the one that is stopped stay."""
    if halt.has_committed:
        return "what it had committed before stays, and running it again loads none of it twice"
    return "nothing of it was committed"


def held_now(log: RunLog) -> dict[str, str]:
    """Return which worker holds which lease, by the clock of the run log."""
    held = [claim for claim in log.all(Claim) if claim.claim_token]
    if not held:
        return {}
    now = log.backend.now()
    return {claim.pipeline_name: claim.worker_id for claim in held if instant(claim.expires_at) > now}


def default_worker(role: str) -> str:
    """Return a name for this process among all that share a run log."""
    return f"{role}-{socket.gethostname()}-{os.getpid()}"
