"""Opens sessions on Spark Connect servers so that a server that is gone, or no longer answers, blocks no caller.

The client as it comes retries a dead server for ten minutes and one that is frozen for ever, also while it only cleans
up: when a session is stopped or collected, and when the process ends.
"""

from __future__ import annotations

import atexit
import threading
import time
import warnings
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

CLEAN_UP_SECONDS = 5.0
"""How long a server has to answer a request that only tidies up."""

_SERVICE = "/spark.connect.SparkConnectService/"
_CLEAN_UP = frozenset(_SERVICE + name for name in ("ReleaseExecute", "ReleaseSession", "Interrupt"))
_BACK_OFF_SECONDS = 30.0
_NEAR = (3, 1000)
"""How often a request is repeated, with at most how many milliseconds between: a server of this machine is there or gone for good."""

_FAR = (9, 10_000)
"""About a minute: a network may come back, a server that was started again has forgotten the session."""

_PULSE = (
    # Servers close connections that send keepalives more often than every five minutes.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 60_000),
)


# What it logs is in the error as well.
warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")


class _CallDetails(NamedTuple):
    """The parts of a request that gRPC hands to its interceptors."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _CleanUp(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Limits requests that only clean up to a deadline and one try.

    After one that failed the next ones are not even sent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._silent_until = 0.0

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Pass a request on, a tidying one with a deadline."""
        if details.method not in _CLEAN_UP:
            return continuation(details, request)
        with self._lock:
            silent = time.monotonic() < self._silent_until
        # The client repeats errors of gRPC for as long as its policy allows, and no others.
        if silent:
            raise ConnectionError("the Spark Connect server does not answer")
        call = continuation(_limited(details), request)
        if isinstance(call, grpc.RpcError):
            with self._lock:
                self._silent_until = time.monotonic() + _BACK_OFF_SECONDS
            raise ConnectionError("the Spark Connect server did not answer") from call
        return call


class _Session(ConnectSession):
    """A session that is closed by a thread of its own when it is collected.

    The collector may run inside the very locks that closing takes: those of the pool of releases and of gRPC.
    """

    __module__ = ConnectSession.__module__  # by which the kind of a session is recognised

    def __del__(self) -> None:
        _dropped.put(self._client)


def _close_dropped() -> None:
    while True:
        with suppress(Exception):
            _dropped.get().close()


_dropped: SimpleQueue[Any] = SimpleQueue()
threading.Thread(target=_close_dropped, name="connect-close", daemon=True).start()


def _limited(details: Any) -> _CallDetails:
    return _CallDetails(
        details.method,
        CLEAN_UP_SECONDS,
        details.metadata,
        details.credentials,
        getattr(details, "wait_for_ready", None),
        getattr(details, "compression", None),
    )


def near_session(port: int, token: str) -> SparkSession:
    """Return a new session on a server of this machine."""
    # The host has to be spelled like this: for any other one the client requires TLS as soon as there is a token.
    return bounded(_Session(connection=_channel(f"sc://localhost:{port}/;token={token}")), _NEAR)


def far_session(remote: str) -> SparkSession:
    """Return a new session on a server anywhere; it is the one of this process where there is no other."""
    session = _Session(connection=_channel(remote, *_PULSE))
    ConnectSession._set_default_and_active_session(session)  # noqa: SLF001 - as its builder does
    return bounded(session)


def bounded(session: Any, retries: tuple[int, int] = _FAR) -> SparkSession:
    """Return a session whose client gives up in time."""
    session.client.set_retry_policies([DefaultPolicy(max_retries=retries[0], max_backoff=retries[1])])
    # At the end of the process it would request the server to forget models, which a session that ends does anyway.
    atexit.unregister(session.client._cleanup_ml_cache)  # noqa: SLF001 - there is no setting for it
    return cast("SparkSession", session)


def drop(session: Any) -> None:
    """Close a session whose server is gone, without a word to it."""
    session.client.close()


def _channel(url: str, *options: tuple[str, Any]) -> DefaultChannelBuilder:
    channel = DefaultChannelBuilder(url, list(options))
    channel.add_interceptor(cast("Any", _CleanUp()))
    return channel
