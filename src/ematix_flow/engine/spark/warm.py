"""Operates the warm engine: start it, show it, stop it; loads find it through their session."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ematix_flow.engine.spark.session import engine_id, session_settings, share_engine
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.run.warm.state import EngineState


@dataclass(frozen=True, slots=True)
class EngineReport:
    """A warm engine as people see it; without its token."""

    id: str
    pid: int
    java_pid: int
    port: int
    started_at: str
    version: str
    master: str
    in_use: bool
    current: bool
    """It is the one that commands of this environment use."""
    memory_bytes: int
    heap_bytes: int
    """The memory that Java takes for objects at most; its code, its threads and the Python workers come on top."""
    ui_url: str
    """The address of Spark's pages; empty where they are off."""
    idle_minutes: int
    packages: tuple[str, ...]
    log: str

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


UI = {"spark.ui.enabled": "true"}


class WarmEngine:
    """The warm engine as a program uses it: pipelines of this process run on it until it is stopped."""

    def __init__(self) -> None:
        settings = _of_this_machine(session_settings())
        if settings.warm == "off":
            hint = 'remove `warm = "off"` from [spark], or EMATIX_FLOW_SPARK_WARM, to use it.'
            raise RunError("the settings say that the warm engine is not to be used", hint=hint)
        share_engine()
        try:
            self.spark.version  # noqa: B018 - joins the engine, or starts it
        except BaseException:
            self.stop()
            raise
        if not self.id:
            self.stop()
            hint = "stop it first, or do without ematix.engine(): pipelines run on it anyway."
            raise RunError("this program has a Spark session of its own", hint=hint)

    @property
    def spark(self) -> Any:
        """Return the session of this process on the engine; if the engine has ended, on a new one."""
        from ematix_flow.run.spark.session import spark_session

        return spark_session(session_settings())

    @property
    def id(self) -> str:
        """Return the id of the engine, as `flow engine status` shows it; empty after `stop`."""
        return engine_id()

    @property
    def ui_url(self) -> str:
        """Return the address of Spark's pages; empty where the engine runs without them."""
        from ematix_flow.run.spark.session import engine_page

        return engine_page()

    def stop(self) -> None:
        """Release the session; the engine goes on for others, pipelines of this process get their own session."""
        from ematix_flow.run.spark.session import stop_session

        share_engine(share=False)
        stop_session()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def engine() -> WarmEngine:
    """Run pipelines of this program on the warm engine, which is started where there is none."""
    return WarmEngine()


def start_engine(*, ui: bool = False) -> EngineReport:
    """Start the warm engine, or find it running, and return it; with `ui` it is one that serves Spark's pages."""
    from ematix_flow.run.warm.client import lease_of

    settings = _of_this_machine(session_settings())
    conf = {**settings.conf, **(UI if ui else {})}
    lease = lease_of(replace(settings, warm="auto", shared=True, conf=conf))
    try:
        return _report(lease.folder, lease.state, current=True)
    finally:
        lease.release()


def _of_this_machine(settings: SparkSettings) -> SparkSettings:
    if not settings.is_local:
        message = (
            f"a warm engine is a Spark of this machine, and the settings name {settings.remote or settings.master}"
        )
        raise RunError(message, hint="remove `master` and `remote` from [spark] to use one.")
    return settings


def engines() -> list[EngineReport]:
    """Return every engine of this user that lives, that of this environment first."""
    return sorted((report for _, report in _living()), key=lambda report: not report.current)


def stop_engines(*, now: bool = False, every: bool = False) -> list[EngineReport]:
    """Request that engines end when no process uses them, or end them at once; return those engines."""
    from ematix_flow.run.warm.client import end_now, stop

    chosen = [(state, report) for state, report in _living() if report.current or every]
    for state, _ in chosen:
        (end_now if now else stop)(state)
    return [report for _, report in chosen]


def engine_log() -> Path:
    """Return the file that the engine of this environment writes to."""
    from ematix_flow.run.warm.client import LOG
    from ematix_flow.run.warm.state import engine_folder

    return engine_folder(session_settings(), os.environ) / LOG


def _living() -> list[tuple[EngineState, EngineReport]]:
    from ematix_flow.run.warm.state import engine_folder, living_engines

    own = engine_folder(session_settings(), os.environ)
    return [(state, _report(folder, state, current=folder == own)) for folder, state in living_engines(os.environ)]


def _report(folder: Path, state: EngineState, *, current: bool) -> EngineReport:
    import fcntl

    from ematix_flow.run.warm.client import LOG
    from ematix_flow.run.warm.state import in_use_file, locked

    unused = locked(in_use_file(folder, state.id), fcntl.LOCK_EX)
    if unused is not None:
        os.close(unused)
    return EngineReport(
        id=state.id,
        pid=state.pid,
        java_pid=state.java_pid,
        port=state.port,
        started_at=state.started_at,
        version=state.version,
        master=state.master,
        in_use=unused is None,
        current=current,
        memory_bytes=sum(_resident(pid) for pid in (state.pid, state.java_pid)),
        heap_bytes=state.heap_bytes,
        ui_url=state.ui,
        idle_minutes=state.idle_seconds // 60,
        packages=state.offer.packages,
        log=str(folder / LOG),
    )


def _resident(pid: int) -> int:
    """Return the bytes of memory that a process has in use; 0 where the system does not report it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
