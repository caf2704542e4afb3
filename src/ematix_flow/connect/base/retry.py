"""The one module for retrying: which call is made again, after which errors, how often and after which waits.

What stays outside, and what stamina does here and what not, is in docs/decisions/retries.md.
"""

from __future__ import annotations

import random
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.connect.base.cancellation import current
from ematix_flow.errors import EngineLostError, OvertakenError, RunLogError, StagingLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from stamina import Attempt
    from stamina.typing import RetryDetails, RetryHook

    from ematix_flow.clock import Clock

Errors = tuple[type[BaseException], ...]

# Its own generator: a caller who seeded Python's draws the same numbers whether or not a call is made again beside it.
_JITTER = random.Random()  # noqa: S311 - only to part ways


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """One row of the table; all times are seconds."""

    what: str
    """The call that is made again."""
    on: Errors = ()
    """The errors that may pass; empty where only the caller can decide, as from the codes of a driver."""
    attempts: int | None = None
    """How often it is made at most."""
    seconds: float | None = None
    """How long it is made again; an attempt that begins within this time may end after it."""
    first_wait: float = 0.0
    factor: float = 2.0
    """By how much every wait is longer than the one before."""
    longest_wait: float = 60.0
    jitter: float = 0.0
    """The share of a wait that is random, so that many callers do not come back at the same time."""

    def wait_after(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row."""
        try:
            most = min(self.longest_wait, self.first_wait * self.factor ** (failures - 1))
        except OverflowError:
            most = self.longest_wait
        return most * _JITTER.uniform(1.0 - self.jitter, 1.0)

    def ends_after(self, failures: int, seconds: float) -> bool:
        """Return whether the call is not made again after so many failures or so long a time."""
        often = self.attempts is not None and failures >= self.attempts
        return often or (self.seconds is not None and seconds >= self.seconds)


# The table.

OVERTAKEN = RetryPolicy(
    "a transaction on metadata in a store, when another writer committed first",
    (OvertakenError,), attempts=40, first_wait=0.02, factor=1.25, longest_wait=0.6, jitter=1.0,
)  # fmt: skip
COMMIT = RetryPolicy(
    "the transaction of a load, when the target is away or busy",
    (TransientError,), attempts=4, first_wait=0.5,
)  # fmt: skip
COMMIT_OUTCOME = RetryPolicy(
    "the question whether a load is committed, when the answer to COMMIT was lost",
    seconds=60.0, first_wait=1.0, factor=1.0,
)  # fmt: skip
STAGING = RetryPolicy(
    "staging and committing a load, when its staged rows or its Spark are lost",
    (EngineLostError, StagingLostError), attempts=3,
)  # fmt: skip
STAGE_PARTITION = RetryPolicy(
    "staging one partition in a thread, as often as a Spark of this machine tries a task",
    attempts=4, first_wait=0.5,
)  # fmt: skip
CREATE_LAKE_TABLE = RetryPolicy(
    "CREATE TABLE of a lake, when another process is halfway through the same",
    attempts=10, first_wait=1.0, factor=1.0,
)  # fmt: skip
TARGET_AWAY = RetryPolicy(
    "a batch of a stream, when the table of its target is being replaced",
    seconds=30.0, first_wait=0.1, longest_wait=5.0,
)  # fmt: skip
STREAM_RESTART = RetryPolicy(
    "a stream or one of its targets with --restart-on-error; --max-backoff-ms is its longest wait",
    first_wait=0.5, jitter=0.5,
)  # fmt: skip
RUN_LOG_TABLES = RetryPolicy(
    "creating the tables of a run log, when another process creates them too",
    (RunLogError,), attempts=3,
)  # fmt: skip
RUN_LOG_AWAY = RetryPolicy(
    "opening the run log of a scheduler, which waits for --poll-interval each time",
    (RunLogError,), factor=1.0,
)  # fmt: skip
SQLITE_JOURNAL = RetryPolicy(
    "switching an SQLite file to a write-ahead log, when another connection reads it: here SQLite itself does not wait",
    seconds=30.0, first_wait=0.01, longest_wait=0.5, jitter=0.5,
)  # fmt: skip
DUCKDB_FILE = RetryPolicy(
    "opening a DuckDB file that another process has open",
    seconds=30.0, first_wait=0.2, factor=1.0,
)  # fmt: skip
LAKE_LOCK = RetryPolicy(
    "taking the lock of a lake table that another load holds",
    seconds=60.0, first_wait=0.3, factor=1.0, jitter=2 / 3,
)  # fmt: skip
LAKE_REFUSAL = RetryPolicy(
    "having a lake table refuse the change of a dead writer, while others change the table",
    attempts=4,
)  # fmt: skip
KAFKA_BUSY = RetryPolicy(
    "a question to a Kafka cluster while a coordinator or leader takes over",
    seconds=30.0, first_wait=0.1, longest_wait=1.0, jitter=0.5,
)  # fmt: skip
KAFKA_METADATA = RetryPolicy(
    "reading the metadata of a Kafka cluster; every attempt itself waits for a broker",
    seconds=30.0,
)  # fmt: skip
KAFKA_TOPIC = RetryPolicy(
    "looking for a topic that brokers may be creating at this moment",
    attempts=4, first_wait=0.1, factor=3.0,
)  # fmt: skip
KAFKA_OFFSETS = RetryPolicy(
    "finding the topic of stream offsets, when it is being created or its broker is away",
    seconds=20.0, first_wait=0.1, factor=1.0,
)  # fmt: skip
KAFKA_COMMIT = RetryPolicy(
    "committing a Kafka transaction; every attempt itself waits for the coordinator",
    seconds=45.0,
)  # fmt: skip
SLOT_BUSY = RetryPolicy(
    "reading the changes behind a replication slot, which one connection at a time can do",
    seconds=60.0, first_wait=0.05, longest_wait=1.0, jitter=0.5,
)  # fmt: skip
XA_PREPARED = RetryPolicy(
    "the question whether transactions are over that were prepared when a stream of changes began or found another table",
    seconds=60.0, first_wait=0.05, longest_wait=1.0, jitter=0.5,
)  # fmt: skip
SNAPSHOT_BEHIND = RetryPolicy(
    "the snapshot of a MariaDB that does not show yet what is in its log, as while a replica has not confirmed it",
    seconds=60.0, first_wait=0.05, longest_wait=1.0, jitter=0.5,
)  # fmt: skip
KINESIS_BUSY = RetryPolicy(
    "sending the records that a Kinesis stream refused for the moment",
    attempts=8, first_wait=0.05,
)  # fmt: skip
BROKER_AWAY = RetryPolicy(
    "connecting to the broker of a queue, until the stream ends",
    (TransientError,), first_wait=0.1, factor=3.0, longest_wait=5.0,
)  # fmt: skip
BUCKET_REQUEST = RetryPolicy(
    "a request to a bucket whose service is busy, out of order or silent",
    attempts=6, first_wait=0.2, longest_wait=5.0, jitter=1.0,
)  # fmt: skip
BUCKET_UNREACHED = RetryPolicy(
    "the same, when no connection to the service can be opened; the waits are those of the request",
    attempts=3,
)  # fmt: skip
BUCKET_PROBE = RetryPolicy(
    "the request that checks whether a bucket answers, for an interactive command",
    attempts=2, first_wait=0.2, jitter=1.0,
)  # fmt: skip
AWS_REQUEST = RetryPolicy(
    "a request to Kinesis or Glue; botocore makes it again, with waits and errors of its own",
    attempts=5,
)  # fmt: skip
SCHEMA_REGISTRY = RetryPolicy(
    "a request to a schema registry that is away or busy",
    (TransientError,), attempts=4, first_wait=0.3, factor=3.0, jitter=0.5,
)  # fmt: skip
NOTIFICATION = RetryPolicy(
    "delivering an alert, trace or lineage event that did not leave this machine; what may have arrived is not sent again",
    attempts=3, first_wait=0.2, factor=5.0,
)  # fmt: skip
WARM_ENGINE = RetryPolicy(
    "joining the warm engine, when the one that was found has ended; the next attempt starts another",
    attempts=3,
)  # fmt: skip


def attempts(
    policy: RetryPolicy,
    *,
    on: Errors | Callable[[Exception], bool] | None = None,
    stop: threading.Event | None = None,
    clock: Clock = SYSTEM_CLOCK,
    waiting: Callable[[Exception, float], None] | None = None,
) -> Iterator[AbstractContextManager[None]]:
    """Return context managers for a call, one for each time that it is made; the loop over them ends with a success.

    The last error is raised, and so is one that does not pass. A wait ends with `stop`, which raises the error that was
    waited for, or where there is none with the halt of the current run, which raises the reason of the halt. `waiting`
    gets the error and the seconds of every wait before it begins.
    """
    first, began = _Bare(), time.monotonic()
    yield first
    if first.error is None:
        return
    failure = _Failure(on or policy.on, first.take())
    passed = time.monotonic() - began
    remaining_attempts: Callable[..., Iterator[AbstractContextManager[None]]] = (
        _limited if find_spec("stamina") else _counted
    )
    for number, attempt in enumerate(remaining_attempts(failure, policy, passed), 1):
        seconds = policy.wait_after(number)
        if waiting is not None:
            waiting(failure.last, seconds)
        _wait(seconds, stop, clock, failure.last)
        yield attempt


def _limited(failure: _Failure, policy: RetryPolicy, passed: float) -> Iterator[Attempt]:
    """Return the attempts after the first one, as stamina counts and limits them."""
    import stamina

    left = None if policy.seconds is None else policy.seconds - passed
    once = left is not None and left <= 0
    _leave_ours_out()
    tries = iter(
        stamina.retry_context(
            failure.passes,
            attempts=1 if once else policy.attempts,
            timeout=None if once else left,
            # stamina sleeps, and nothing wakes it up: the waits are ours.
            wait_initial=0,
            wait_max=0,
            wait_jitter=0,
        )
    )
    while (attempt := _next(tries)) is not None:
        if attempt.num > 1:
            yield attempt
            continue
        with attempt:
            raise failure.last


def _counted(failure: _Failure, policy: RetryPolicy, passed: float) -> Iterator[_Bare]:
    """Return the same attempts without stamina: tasks run on executors, which need not have it."""
    began, number = time.monotonic() - passed, 1
    while failure.passes(failure.last) and not policy.ends_after(number, time.monotonic() - began):
        attempt = _Bare()
        yield attempt
        if attempt.error is None:
            return
        failure.last, number = attempt.take(), number + 1
    raise failure.last


@dataclass
class _Bare:
    """An attempt without stamina, as the first one is: few calls go beyond it, and many are quicker than that import."""

    error: Exception | None = None

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None

    def take(self) -> Exception:
        """Return the error and forget it, because the caller holds the attempt and the error holds the caller's frame."""
        assert self.error is not None  # noqa: S101 - asked after a failure
        error, self.error = self.error, None
        return error


@dataclass
class _Failure:
    """The last failure of a call, and whether the next attempt may be a success."""

    on: Errors | Callable[[Exception], bool]
    last: Exception

    def passes(self, error: BaseException) -> bool:
        """Return whether the call may be made again after an error; an interrupt is one, too."""
        if not isinstance(error, Exception):
            return False
        self.last = error
        return isinstance(error, self.on) if isinstance(self.on, tuple) else self.on(error)


def _wait(seconds: float, stop: threading.Event | None, clock: Clock, error: Exception) -> None:
    """Wait, but not for longer than the work lasts that the wait is part of."""
    if stop is not None:
        if clock.wait(stop, seconds):
            raise error
        return
    halt, halted = current(), threading.Event()
    if halt.is_held:  # by a COMMIT, in which no wait is cut short
        clock.wait(halted, seconds)
        return
    with halt.waking(halted.set):
        clock.wait(halted, seconds)
    halt.check_known()


_OURS: ContextVar[bool] = ContextVar("retrying", default=False)


def _next(tries: Iterator[Attempt]) -> Attempt | None:
    token = _OURS.set(True)
    try:
        return next(tries, None)
    finally:
        _OURS.reset(token)


@cache
def _leave_ours_out() -> None:
    """Keep stamina from logging and counting our retries; it has one list of hooks, which the user's own code may need."""
    from stamina.instrumentation import get_on_retry_hooks, set_on_retry_hooks

    def without_ours(hook: RetryHook) -> RetryHook:
        def call(details: RetryDetails) -> AbstractContextManager[None] | None:
            return None if _OURS.get() else hook(details)

        return call

    set_on_retry_hooks([without_ours(hook) for hook in get_on_retry_hooks()])
