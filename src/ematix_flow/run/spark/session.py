"""One Spark session per process: started early, joined late, ended with the command; decides nothing about what runs on it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.spark_settings import EXTENSIONS
from ematix_flow.errors import RunError, TransientError
from ematix_flow.run.spark import launch as classics
from ematix_flow.run.spark.class_archive import cache_folder
from ematix_flow.run.spark.conf import query_conf
from ematix_flow.run.spark.executor_watch import watch_executors
from ematix_flow.run.spark.log_conf import quieten_errors
from ematix_flow.run.spark.masters import expect_master
from ematix_flow.run.spark.ship import send_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.run.warm.client import EngineLease


@dataclass(frozen=True, slots=True)
class SessionCapabilities:
    """What a session can do; the one class that knows what only the classic kind has."""

    connect: bool
    """The session uses the Connect protocol."""
    context: bool
    """`sparkContext` is there: job groups, the environment of workers."""
    logical_plan: bool
    """The analysed plan of a frame can be read, for lineage."""
    driver_closures: bool
    """`foreachBatch` runs in this process, so it may use open connections and live objects."""
    local: bool
    """Tasks run on this machine and see its files and environment."""


@dataclass(slots=True)
class _Current:
    """The session of this process, perhaps still being made; `classic` is the Java process if it is ours, `lease` a warm one."""

    settings: SparkSettings
    session: Future[SparkSession]
    classic: classics.Classic | None = None
    lease: EngineLease | None = None
    used_at: float = field(default_factory=time.monotonic)
    forgotten: bool = False
    """The server does not know the session any more."""

    @property
    def usable(self) -> bool:
        if not self.session.done():
            return True
        if self.session.exception() is not None:
            return False
        if self.lease is not None:
            return self.lease.alive and self._answers()
        # A server that was started again knows nothing of sessions from before; its clients close themselves.
        if self.settings.remote is not None and getattr(self.session.result(), "is_stopped", False):
            return False
        return self.classic.alive if self.classic is not None else self.settings.remote is None or self._answers()

    def _answers(self) -> bool:
        """Return whether a server still knows the session: it closes one that was not used for long."""
        if time.monotonic() - self.used_at < LIVENESS_SECONDS:
            return True
        try:
            self.session.result().conf.get("spark.sql.ansi.enabled")
        except Exception:  # noqa: BLE001 - whatever it is, another session is needed
            self.forgotten = True
        return not self.forgotten


LIVENESS_SECONDS = 60.0
"""A session of a server that was not used for so long is checked before it is used again."""

_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""By this variable pyspark's functions know that they speak to a Connect server; a child with a session of its own must not."""

_lock = threading.RLock()
_current: _Current | None = None
_owner = 0


def prestart(settings: SparkSettings) -> None:
    """Begin to start the session and return at once; errors are raised by `spark_session`."""
    _begin(settings)


def spark_session(settings: SparkSettings) -> SparkSession:
    """Return the session for these settings: the one that runs or starts already when they are equal, else a new one."""
    current = _begin(settings)
    session = current.session.result()
    current.used_at = time.monotonic()
    if current.classic is not None and settings.is_local:
        classics.configure_workers(session, settings.worker_imports)
    elif current.lease is None:
        equip(session)
    return session


def equip(session: SparkSession) -> SparkSession:
    """Return the session after its tasks can import what this process has, wherever they run."""
    if not capabilities(session).local:
        send_code(session, cache_folder(os.environ))
    return session


def is_running() -> bool:
    """Return whether there is a session that can be used, or one that is being made."""
    with _lock:
        return _current is not None and _current.usable


def engine_ended() -> str | None:
    """Return why the warm engine that this process has a session on has ended, or its cluster was given up; else None."""
    with _lock:
        lease = _current.lease if _current is not None else None
        classic = _current.classic if _current is not None else None
    if classic is not None and classic.lost:
        return classic.lost
    return None if lease is None or lease.alive else lease.fate()


def engine_id() -> str:
    """Return the id of the warm engine that this process has a session on; empty where it has none."""
    with _lock:
        return _current.lease.state.id if _current is not None and _current.lease is not None else ""


def engine_page() -> str:
    """Return the address of Spark's pages of the warm engine that this process has a session on; empty where there are none."""
    with _lock:
        return _current.lease.state.ui if _current is not None and _current.lease is not None else ""


def shows_jobs() -> bool:
    """Return whether other users could see the jobs of the Connect session of this process."""
    with _lock:
        return _current is None or _current.lease is None or bool(_current.lease.state.ui)


def stop_session(*, last: bool = False) -> None:
    """End the session and its processes; one that the caller's own code made is left alone.

    After the `last` session of a process pyspark is not tidied up for another one, which would take half a second.
    """
    global _current  # Spark has one session per process, and so have we
    with _lock:
        current, _current = _current, None
    if current is None or current.session.exception() is not None:
        return
    session = current.session.result()
    if current.classic is not None:
        classics.stop_context(session, current.classic)
        classics.end(current.classic)
        if not last:
            classics.forget()
    elif current.lease is not None:
        os.environ.pop(_CONNECT_MODE, None)
        _leave(session, known=current.lease.alive and not current.forgotten)
        current.lease.release()
    elif current.settings.remote is not None:
        _leave(session, known=not current.forgotten)


def _leave(session: SparkSession, *, known: bool) -> None:
    """Release a session of a server, which goes on for others; one that it does not know is dropped."""
    from ematix_flow.run.spark.connect_client import drop

    if known:
        session.stop()
    else:
        drop(session)


def capabilities(spark: SparkSession) -> SessionCapabilities:
    """Return what this session can do."""
    connect = type(spark).__module__.startswith("pyspark.sql.connect")
    local = not connect and str(spark.sparkContext.master).startswith("local")
    return SessionCapabilities(
        connect=connect, context=not connect, logical_plan=not connect, driver_closures=not connect, local=local
    )


def remote_master(borrowed: SparkSession | None) -> str:
    """Return the master of a session that was made around us, when it is not this machine.

    A Connect session does not report it.
    """
    if borrowed is not None and type(borrowed).__module__.startswith("pyspark.sql.connect"):
        return ""
    master = "local" if borrowed is None else str(borrowed.sparkContext.master)
    if borrowed is None and (_current is None or _current.classic is None):
        from pyspark import SparkContext

        # What Python knows of it: Java may be gone already.
        context: Any = SparkContext._active_spark_context  # noqa: SLF001 - there is no other way that does not start one
        master = str(context.master) if context is not None else master
    return "" if master.startswith("local") else master


def _begin(settings: SparkSettings) -> _Current:
    """Return the current session if it fits, else begin another one."""
    global _current, _owner  # noqa: PLW0603 - see stop_session
    with _lock:
        if _current is not None and _current.settings == settings and _current.usable:
            return _current
        stop_session()
        if not _owner:
            atexit.register(_end_with_the_process)
        _owner = os.getpid()
        _current = _Current(settings, Future())
        threading.Thread(target=_fill, args=(_current,), name="spark-start", daemon=True).start()
        return _current


def _fill(current: _Current) -> None:
    """Create the session, or store the error for the caller that requests the session."""
    try:
        current.session.set_result(_create_session(current))
    except BaseException as error:  # noqa: BLE001 - raised again by Future.result in the asking thread
        started, current.classic = current.classic, None
        if started is not None and not started.ending:
            classics.end(started, started=False)
        current.session.set_exception(error)


def _create_session(current: _Current) -> SparkSession:
    settings = current.settings
    if settings.remote is not None:
        return _connected(settings, settings.remote)
    existing = _session_of_the_caller()
    if existing is not None:
        return _with_query_conf(existing.newSession(), settings)
    if settings.uses_warm:
        from ematix_flow.run.warm.client import join

        session, current.lease = join(settings)
        os.environ[_CONNECT_MODE] = "1"
        return _with_query_conf(session, settings)
    os.environ.pop(_CONNECT_MODE, None)
    expect_master(settings.master)
    current.classic = classics.launch(settings)
    return _joined(current.classic)


def _joined(classic: classics.Classic) -> SparkSession:
    """Return the session on a Java that was started; one that its cluster does not accept ends, and reports little."""
    from py4j.protocol import Py4JError

    if classic.settings.is_local:
        return classics.open_session(classic)
    try:
        session = classics.open_session(classic)
    except (OSError, Py4JError) as error:
        message = f"the cluster {classic.settings.master} did not take this application"
        raise TransientError(message, hint='see its log; log_level = "WARN" under [spark] shows more.') from error
    watch_executors(session, classic)
    return session


def _session_of_the_caller() -> SparkSession | None:
    """Return a session that notebooks or tests around us have created; Spark allows no second one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None
    except OSError:  # its Java has ended
        classics.forget()
        return None


def _connected(settings: SparkSettings, remote: str) -> SparkSession:
    """Return a session on a Spark Connect server."""
    from pyspark.sql import SparkSession

    from ematix_flow.run.spark.connect_client import bounded, far_session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quieten_errors(settings.log_level)
    if remote.startswith("sc://"):
        os.environ[_CONNECT_MODE] = "1"
        session = far_session(remote)
    else:  # a server inside this process, which pyspark starts
        session = bounded(SparkSession.builder.remote(remote).getOrCreate())
    return _with_query_conf(session, settings)


def _with_query_conf(session: SparkSession, settings: SparkSettings) -> SparkSession:
    for key, value in query_conf(settings).items():
        if key == EXTENSIONS:
            _expect_extensions(session, value)
        else:
            session.conf.set(key, value)
    return session


def _expect_extensions(session: SparkSession, required: str) -> None:
    """Refuse a session that was started without extensions that a system needs: they cannot be added later."""
    known = (session.conf.get(EXTENSIONS, "") or "").split(",")
    missing = [name for name in required.split(",") if name not in known]
    if missing:
        listed = ",".join(missing)
        message = f"the Spark session that is used here lacks {listed}"
        raise RunError(message, hint=f"start it with {EXTENSIONS}={listed} and the packages that these are in.")


def _end_with_the_process() -> None:
    """End Spark and Java; a forked child leaves them to its parent."""
    current = _current
    if current is None or os.getpid() != _owner:
        return
    if current.lease is not None:
        stop_session(last=True)
    if current.classic is None:
        return
    if current.session.done() and current.session.exception() is None:
        classics.stop_context(current.session.result(), current.classic)
    classics.end(current.classic)
