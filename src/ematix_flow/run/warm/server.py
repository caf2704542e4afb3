"""The process that keeps a warm Spark: starts Java with a Connect server, watches over it and ends it when unused.

It is started by the first command that needs it, as `python -m ematix_flow.run.warm.server FOLDER ID`, and reads what it
shall offer from its standard input. It runs no load itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow import __version__
from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.spark import launch as classic
from ematix_flow.run.spark.java_process import memory_bytes
from ematix_flow.run.warm.state import (
    EngineState,
    alive_file,
    fate_prefix,
    forget_state,
    give_sign,
    in_use_file,
    locked,
    offer_of,
    read_state,
    remove_files,
    write_state,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable
CONNECT = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    # A scheduler may have nothing to do for that long; sessions of commands that were killed cost little.
    "spark.connect.session.manager.defaultSessionTimeout": "2h",
    # The work of a command that was killed ends soon, and not after five minutes on the cores of others.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "30s",
    "spark.connect.execute.manager.detachedTimeout": "60s",
    "spark.connect.execute.manager.maintenanceInterval": "10s",
    # A user who may open Spark's pages, which know no passwords, must not be able to end a load.
    "spark.ui.port": "0",
    "spark.ui.killEnabled": "false",
}
_ENDS_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
_OUT_OF_MEMORY = 3
"""The code that Java ends with then."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_POLL_SECONDS = 1.0
_WORKER_IMPORTS = (
    "ematix_flow.run.stage.tasks",
    "ematix_flow.run.stage.file_tasks",
    "ematix_flow.connect.postgres.database",
    "ematix_flow.connect.duckdb.database",
)


def main(arguments: list[str]) -> int:
    """Serve until no command needs it any more; return the exit code."""
    folder, engine = Path(arguments[0]), arguments[1]
    alive = locked(alive_file(folder, engine), fcntl.LOCK_EX)
    if alive is None:
        return 1
    request = json.load(sys.stdin)
    server = _Server(folder, engine, _settings(request["settings"]), request)
    signal.signal(signal.SIGTERM, lambda *_: server.leaving.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server.start()
        server.watch()
    finally:
        server.end()
        remove_files(folder, engine)
    return 0


def _settings(text: Mapping[str, Any]) -> SparkSettings:
    known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in text.items()}
    return SparkSettings(**known)


class _Server:
    """Java with its session, and what is known of its use."""

    def __init__(self, folder: Path, engine: str, settings: SparkSettings, limits: Mapping[str, Any]) -> None:
        self._folder = folder
        self._engine = engine
        self._settings = settings
        self._idle_seconds = int(limits["idle_seconds"])
        self._frozen_seconds = float(limits["frozen_seconds"])
        self._classic: classic.Classic | None = None
        self._answered = time.monotonic()
        self._listens = False
        self.leaving = threading.Event()

    def start(self) -> None:
        """Start Java and note where it listens."""
        token = secrets.token_urlsafe(32)
        os.environ[TOKEN_VARIABLE] = token
        os.environ["PYSPARK_PYTHON"] = sys.executable
        java_options = f"{self._settings.conf.get(_JAVA_OPTIONS, '')} {_ENDS_WITHOUT_MEMORY}".strip()
        conf = {**self._settings.conf, **CONNECT, _JAVA_OPTIONS: java_options}
        self._classic = classic.launch(replace(self._settings, conf=conf, worker_imports=_WORKER_IMPORTS))
        session = classic.open_session(self._classic)
        state = EngineState(
            id=self._engine,
            pid=os.getpid(),
            java_pid=self._classic.driver.process.pid,
            port=_port(session),
            token=token,
            started_at=SYSTEM_CLOCK.now().isoformat(timespec="seconds"),
            version=__version__,
            master=self._settings.master,
            idle_seconds=self._idle_seconds,
            offer=offer_of(self._settings),
            ui=session.sparkContext.uiWebUrl or "",
            heap_bytes=memory_bytes(self._classic.conf["spark.driver.memory"]),
        )
        write_state(self._folder, state)
        self._listens = True
        self._answered = time.monotonic()  # however long it took to start
        threading.Thread(target=self._listen, args=(session,), name="engine-pulse", daemon=True).start()
        threading.Thread(target=_exercise, args=(session,), name="engine-exercise", daemon=True).start()

    def watch(self) -> None:
        """Return when Java has ended, does not answer, or is not used for long or after a request to end."""
        unused_since = time.monotonic()
        while self._classic is not None and self._classic.alive and not self._is_frozen():
            give_sign(self._folder, self._engine)
            noted = read_state(self._folder)
            replaced = noted is None or noted.id != self._engine
            users = locked(in_use_file(self._folder, self._engine), fcntl.LOCK_EX)
            if users is None:
                unused_since = time.monotonic()
            elif replaced or self.leaving.is_set() or time.monotonic() - unused_since >= self._idle_seconds:
                # The lock stays held: a command that comes now finds it taken and starts an engine of its own.
                return
            else:
                os.close(users)
            if self.leaving.is_set() and not replaced:
                forget_state(self._folder, self._engine)
            self.leaving.wait(_POLL_SECONDS) if not self.leaving.is_set() else time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """End Java; its scratch folder goes with it."""
        if self._classic is None:
            return
        if self._listens:  # else the last lines are those of the error
            print(f"{fate_prefix(self._engine)}{self._reason(self._classic)}", file=sys.stderr, flush=True)  # noqa: T201 - the log
        forget_state(self._folder, self._engine)
        classic.end(self._classic)

    def _reason(self, java: classic.Classic) -> str:
        code = java.driver.process.poll()
        if code == _OUT_OF_MEMORY:
            return f"Java ran out of memory; its heap of {java.conf['spark.driver.memory']} was full"
        if code is not None:
            return f"Java was ended by {signal.Signals(-code).name}" if code < 0 else f"Java ended with code {code}"
        return "Java did not answer" if self._is_frozen() else "it was idle"

    def _is_frozen(self) -> bool:
        return time.monotonic() - self._answered > self._frozen_seconds

    def _listen(self, session: SparkSession) -> None:
        """Check again and again that Java answers."""
        java: Any = session.sparkContext._jvm  # noqa: SLF001 - pyspark has no other way to reach Java
        with suppress(Exception):  # that Java has ended is seen by `watch`
            while True:
                java.java.lang.System.currentTimeMillis()
                self._answered = time.monotonic()
                time.sleep(_POLL_SECONDS)


def _exercise(session: SparkSession) -> None:
    """Run a job as loads have it, so that classes are loaded and workers wait when the first load comes."""
    with suppress(Exception):  # that Java has ended is seen by `watch`
        session.sparkContext.setJobDescription("the engine warms up")
        session.range(0, session.sparkContext.defaultParallelism).mapInArrow(_same, "id long").collect()


def _same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches


def _port(session: SparkSession) -> int:
    java: Any = session.sparkContext._jvm  # noqa: SLF001 - as above
    service = getattr(java.org.apache.spark.sql.connect.service, "SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
