"""What the clients of buckets share: errors, deadlines, bounded repetition; no service is known here."""

from __future__ import annotations

import importlib
import random
import time
from typing import TYPE_CHECKING, Any, TypeVar

from ematix_flow.connect.store import StoreError, StoreUnavailableError
from ematix_flow.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
"""How long the service may be silent; a large object that is copied in the service says nothing meanwhile."""

PROBE_SECONDS = 3.0
PROBE_ATTEMPTS = 2
ATTEMPTS = 6
CONNECT_ATTEMPTS = 3
"""Of a service that nobody answers for; together with the seconds above this is how long an unreachable one takes."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
POOL = 16


class MissingObjectError(StoreError):
    """There is no such object."""


class PreconditionError(StoreError):
    """The object is there already, or is no longer the one that was meant."""


class UnreachedError(StoreUnavailableError):
    """Nobody answers at the address of the service, so that nothing was asked of it."""


class ConflictError(StoreUnavailableError):
    """Somebody changed the object at the same time, and nothing was written."""


def repeated(call: Callable[[], _Answer], attempts: int = ATTEMPTS) -> _Answer:
    """Give what a request answers; it is made again while the service is away, busy or out of order."""
    attempt = 0
    while True:
        try:
            return call()
        except StoreUnavailableError as error:
            attempt += 1
            if attempt >= attempts or (isinstance(error, UnreachedError) and attempt >= CONNECT_ATTEMPTS):
                raise
        pause(attempt)


def pause(attempt: int) -> None:
    """Wait before the next attempt, longer each time and never in step with others."""
    time.sleep(random.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)))  # noqa: S311 - only to part ways


def deadlines(seconds: float | None) -> tuple[float, float]:
    """Return how long a connection and a response may take."""
    answer = seconds or ANSWER_SECONDS
    return min(CONNECT_SECONDS, answer), answer


def installed(module: str, extra: str) -> Any:
    """Give a module of an optional package, or the error that names the command which installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"files in a bucket need the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint=f'pip install "ematix-flow-spark[{extra}]"') from None
