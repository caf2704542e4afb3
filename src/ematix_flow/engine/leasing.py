"""A lease on a pipeline that is renewed while its run lasts; that an old holder commits nothing is the fence's business."""

from __future__ import annotations

import os
import socket
import threading
import time
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from ematix_flow.commit.runlog.records import Claim, instant
from ematix_flow.errors import FencedError, RunLogError

if TYPE_CHECKING:
    from types import TracebackType

    from ematix_flow.commit.runlog.log import RunLog

LEASE_SECONDS = 60.0
"""How long a run may be silent before somebody else takes it over."""

BEATS = 3
"""Renewals in the time of one lease."""


class Lease:
    """The right to run one pipeline, under a token that the run log gave."""

    def __init__(self, log: RunLog, name: str, token: str, seconds: float, every: float | None = None) -> None:
        self.name, self.token, self.seconds = name, token, seconds
        self._log = log
        self._every = every or seconds / BEATS
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
            with suppress(RunLogError):  # a lease that cannot be given back ends by itself
                self._log.release(self.token)

    def check(self) -> None:
        """Refuse to go on when somebody else has taken the run over; asked right before a commit."""
        if not self._lost.is_set() and time.monotonic() - self._renewed > self.seconds:
            self._renew()  # this process slept; the answer says whether it was missed
        if self._lost.is_set():
            message = f"the lease on {self.name} was lost: this run was silent for too long and another one took over"
            raise FencedError(message, hint="nothing was changed; the run that took over does the work.")

    def _beat(self) -> None:
        while not self._ended.wait(self._every) and not self._lost.is_set():
            self._renew()

    def _renew(self) -> None:
        try:
            if self._log.heartbeat(self.token, self.seconds):
                self._renewed = time.monotonic()
            else:
                self._lost.set()
        except RunLogError as error:
            # The fence of the target still keeps two runs apart, so the work goes on.
            if not self._warned:
                self._warned = True
                warnings.warn(f"{error.what}; the lease on {self.name} cannot be renewed", UserWarning, stacklevel=2)


def held_now(log: RunLog) -> dict[str, str]:
    """Give who holds which lease, by the clock of the run log."""
    held = [claim for claim in log.all(Claim) if claim.claim_token]
    if not held:
        return {}
    now = log.book.now()
    return {claim.pipeline_name: claim.worker_id for claim in held if instant(claim.expires_at) > now}


def default_worker(role: str) -> str:
    """Give a name for this process among all that share a run log."""
    return f"{role}-{socket.gethostname()}-{os.getpid()}"
