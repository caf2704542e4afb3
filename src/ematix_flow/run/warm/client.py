"""Joins the warm engine, or starts one: what a command does to have a session at once instead of a cold start."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.background import in_background
from ematix_flow.connect.base.processes import may_run
from ematix_flow.connect.base.retry import WARM_ENGINE, attempts
from ematix_flow.declare.spark_settings import SETTINGS
from ematix_flow.errors import RunError, TransientError
from ematix_flow.run.spark.java import find_java
from ematix_flow.run.warm.state import (
    engine_folder,
    fate_prefix,
    forget_state,
    in_use_file,
    is_alive,
    last_sign,
    locked,
    offer_of,
    read_state,
    starting,
    sweep,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.run.warm.state import (
        EngineState,
        Offer,
    )

START_SECONDS = 180.0
SILENT_SECONDS = 90.0
"""How long an engine's watching process may show no sign of life before those who use the engine end it."""

_GUARD_SECONDS = 1.0
JOIN_SECONDS = 30.0
FROZEN_SECONDS = 60.0
"""How long Java may not answer before it is ended; its users begin again with another one."""

_POLL_SECONDS = 0.02
_REFUSED = "Invalid authentication token"
_FATE_SECONDS = 5.0
LOG = "engine.log"
_LOG_BYTES = 5 << 20
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "XDG_CACHE_HOME")
_PASSED_ON_PREFIXES = ("LC_", "SPARK_CONF", "HADOOP_", "EMATIX_FLOW_CACHE")


class _SilentError(TransientError):
    """A noted engine does not answer, and is given up."""


class _EndedError(TransientError):
    """An engine ended between its start and its use."""


@dataclass(frozen=True, slots=True)
class EngineLease:
    """The right to use an engine; while the handle is open the engine does not end by itself."""

    folder: Path
    state: EngineState
    handle: int
    released: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)

    @property
    def alive(self) -> bool:
        """Return whether the engine can answer: its server and its Java live."""
        return _lives(self.folder, self.state)

    def fate(self) -> str:
        """Return why the engine has ended, as far as the process that watched over it has logged it."""
        prefix, deadline = fate_prefix(self.state.id), time.monotonic() + _FATE_SECONDS
        while True:
            watched = is_alive(self.folder, self.state.id) and time.monotonic() < deadline
            reason = (self.folder / LOG).read_text("utf-8", "replace").partition(prefix)[2]
            if reason or not watched:
                return reason.partition("\n")[0]
            time.sleep(_POLL_SECONDS)

    def release(self) -> None:
        """Release the right."""
        self.released.set()
        os.close(self.handle)


def join(settings: SparkSettings) -> tuple[SparkSession, EngineLease]:
    """Return a session of its own on the warm engine; one that does not answer is ended and replaced."""
    for attempt in attempts(WARM_ENGINE, on=(_SilentError,)):
        with attempt:
            session, lease = _joined(settings)
    in_background(partial(_guard, lease), "engine-guard")
    return session, lease


def _joined(settings: SparkSettings) -> tuple[SparkSession, EngineLease]:
    lease = lease_of(settings)
    silent = _SilentError(
        "the warm engine does not answer",
        hint='flow engine stop --now ends it; `warm = "off"` under [spark] does without.',
    )
    try:
        return _session(lease.state), lease
    except TimeoutError:
        lease.release()
        end_now(lease.state)
        raise silent from None
    except BaseException as error:
        gone = isinstance(error, Exception) and (not lease.alive or _REFUSED in str(error))
        lease.release()
        if not gone:
            raise
        # A note with another token than the engine's is of no use to any command; the engine ends when it is unused.
        forget_state(lease.folder, lease.state.id)
        raise silent from None


def _guard(lease: EngineLease) -> None:
    """End an engine that shows no sign of life: a command would wait for its response as long as it hangs."""
    previous, since = 0, time.monotonic()
    while not lease.released.wait(_GUARD_SECONDS) and lease.alive:
        sign = last_sign(lease.folder, lease.state.id)
        if sign != previous:
            # Compared with itself and not with the clock, which goes on while a machine sleeps.
            previous, since = sign, time.monotonic()
        elif time.monotonic() - since > SILENT_SECONDS:
            end_now(lease.state)
            return


def lease_of(settings: SparkSettings) -> EngineLease:
    """Return the right to use an engine that offers what the settings need, which is started where there is none."""
    folder, needed = engine_folder(settings, os.environ), offer_of(settings)
    for attempt in attempts(WARM_ENGINE, on=(_EndedError,)):
        with attempt:
            lease = _entered(folder, needed) or _started(folder, settings, needed)
    return lease


def _started(folder: Path, settings: SparkSettings, needed: Offer) -> EngineLease:
    with starting(folder):
        state = read_state(folder)
        if state is None or not state.offer.covers(needed) or not _lives(folder, state):
            _start(folder, settings, needed if state is None else state.offer.merged(needed))
    lease = _entered(folder, needed)
    if lease is None:
        raise _EndedError("the warm engine ended while it was joined", hint="run the command again.")
    return lease


def _entered(folder: Path, needed: Offer) -> EngineLease | None:
    """Return the right to use the engine that is noted, if it lives and offers what is needed."""
    state = read_state(folder)
    if state is None or not state.offer.covers(needed):
        return None
    handle = locked(in_use_file(folder, state.id), fcntl.LOCK_SH)
    if handle is None:
        return None
    # It may have decided to end between the check and the lock.
    if _lives(folder, state) and read_state(folder) == state:
        return EngineLease(folder, state, handle)
    os.close(handle)
    return None


def _start(folder: Path, settings: SparkSettings, offer: Offer) -> None:
    """Start an engine in the background and wait until it listens."""
    find_java(os.environ)  # fails with a better message than a log
    sweep(folder)
    engine = uuid.uuid4().hex[:12]
    log = folder / LOG
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(folder / f"{LOG}.1")
    with os.fdopen(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ematix_flow.run.warm.server", str(folder), engine],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=_environment(),
            cwd=folder,
            start_new_session=True,
        )
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    with process.stdin as pipe:
        pipe.write(json.dumps(_described(settings, offer)).encode())
    _await(folder, engine, process)


def _await(folder: Path, engine: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        state = read_state(folder)
        if state is not None and state.id == engine:
            return
        if process.poll() is not None:
            raise RunError(
                f"the warm engine did not start: {_last_log_line(folder)}", hint="flow engine logs shows more."
            )
        time.sleep(_POLL_SECONDS)
    process.kill()
    raise TransientError(f"the warm engine did not start within {START_SECONDS:.0f} seconds")


def _described(settings: SparkSettings, offer: Offer) -> dict[str, Any]:
    """Return what a server is to be, as JSON has it; it goes through a pipe, which no other process can read."""
    known = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name in SETTINGS and f.name != "remote"}
    known |= {"packages": offer.packages, "excludes": offer.excludes, "jars": offer.jars, "conf": dict(offer.conf)}
    limits = {"idle_seconds": settings.idle_minutes * 60, "frozen_seconds": FROZEN_SECONDS}
    return {"settings": known | {"profile": "long"}, **limits}


def _environment() -> dict[str, str]:
    """Return the environment of a server: commands with other variables share it, so it is given no setting of theirs."""
    from ematix_flow.run.spark.java_process import package_root

    inherited = {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    # Of the module path it is given only the location of this package: another copy may be installed, or none.
    return inherited | {"PYTHONSAFEPATH": "1", "PYTHONPATH": package_root() or ""}


def _session(state: EngineState) -> SparkSession:
    """Return a new session on an engine; TimeoutError when it does not answer."""
    return in_background(lambda: _connected(state), "engine-join").result(JOIN_SECONDS)


def _connected(state: EngineState) -> SparkSession:
    from ematix_flow.run.spark.connect_client import near_session

    session = near_session(state.port, state.token)
    session.version  # noqa: B018 - asks the server, which may refuse
    return session


def stop(state: EngineState) -> None:
    """Request an engine to end as soon as no command uses it; it takes no new users from then on."""
    _signal(state.pid, signal.SIGTERM)


def end_now(state: EngineState) -> None:
    """End an engine at once, even while commands use it."""
    _signal(state.java_pid, signal.SIGKILL)
    _signal(state.pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _lives(folder: Path, state: EngineState) -> bool:
    """Return whether an engine can answer: the process that watches over Java may not have seen yet that it is gone."""
    return is_alive(folder, state.id) and may_run(state.java_pid)


def _last_log_line(folder: Path) -> str:
    lines = (folder / LOG).read_text("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"
