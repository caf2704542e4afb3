"""What the clients of buckets share: errors, deadlines, bounded repetition; no service is known here."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

from ematix_flow.connect.base.retry import BUCKET_REQUEST, BUCKET_UNREACHED
from ematix_flow.connect.storage.base import StoreError, StoreUnavailableError
from ematix_flow.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.base.retry import RetryPolicy

_Response = TypeVar("_Response")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
"""How long the service may be silent; a large object that is copied in the service sends nothing meanwhile."""

PROBE_SECONDS = 3.0
POOL = 16


class MissingObjectError(StoreError):
    """There is no such object."""


class PreconditionError(StoreError):
    """The object is there already, or is no longer the one that was meant."""


class StoreUnreachableError(StoreUnavailableError):
    """No server answers at the address of the service, so that no request reached it."""


class ConflictError(StoreUnavailableError):
    """Another writer changed the object at the same time, and nothing was written."""


def repeated(call: Callable[[], _Response], policy: RetryPolicy = BUCKET_REQUEST) -> _Response:
    """Return the response to a request, which is sent again while the service is away, busy or out of order.

    The loop is its own: a request may be part of the commit of a lake, and no wait of that is cut short as `attempts` would.
    """
    failures = 0
    while True:
        try:
            return call()
        except StoreUnavailableError as error:
            failures += 1
            limits = (policy.attempts, BUCKET_UNREACHED.attempts if isinstance(error, StoreUnreachableError) else None)
            if failures >= min(filter(None, limits)):
                raise
        time.sleep(policy.wait_after(failures))


def deadlines(seconds: float | None) -> tuple[float, float]:
    """Return how long a connection and a response may take."""
    answer = seconds or ANSWER_SECONDS
    return min(CONNECT_SECONDS, answer), answer


def installed(module: str, extra: str) -> Any:
    """Return a module of an optional package, or the error that names the command which installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"files in a bucket need the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint=f'pip install "ematix-flow-spark[{extra}]"') from None
