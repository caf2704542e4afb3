"""What the warm engine leaves on disk: where it listens, its token, what it offers, and locks of living processes.

Locks are those of the kernel (flock), so that a killed process leaves none behind. For one engine there are two files:
`<id>.alive`, held by its server from start to end, and `<id>.in-use`, held together by the commands that use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.spark_settings import EXTENSIONS, joined_conf, joined_names
from ematix_flow.errors import MissingExtraError, RunError
from ematix_flow.run.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ematix_flow.declare.spark_settings import SparkSettings

FOLDER_VARIABLE = "EMATIX_FLOW_ENGINE_DIR"
_STATE = "engine.json"
_START = "start.lock"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a Java process was started with and cannot be given later."""

    packages: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    conf: tuple[tuple[str, str], ...] = ()

    def covers(self, other: Offer) -> bool:
        """Return whether a server with this offer serves every command that needs the other."""
        known = dict(self.conf)
        return (
            set(other.packages) <= set(self.packages)
            and set(other.jars) <= set(self.jars)
            and all(_covers(key, known.get(key, ""), value) for key, value in other.conf)
        )

    def merged(self, other: Offer) -> Offer:
        """Return an offer that covers both, as far as their settings agree; where they do not, those of `other` count."""
        return Offer(
            joined_names(self.packages, other.packages),
            joined_names(self.excludes, other.excludes),
            joined_names(self.jars, other.jars),
            tuple(joined_conf(self.conf, other.conf).items()),
        )


@dataclass(frozen=True, slots=True)
class EngineState:
    """A warm engine that runs."""

    id: str
    pid: int
    """The process that watches over Java and ends it."""
    java_pid: int
    port: int
    token: str = field(repr=False)
    started_at: str
    version: str
    master: str
    idle_seconds: int
    offer: Offer
    ui: str = ""
    """The address of Spark's pages; empty where they are off."""
    heap_bytes: int = 0


def offer_of(settings: SparkSettings) -> Offer:
    """Return what a server must have been started with to serve these settings."""
    return Offer(settings.packages, settings.excludes, settings.jars, tuple(settings.conf.items()))


def engine_folder(settings: SparkSettings, environ: Mapping[str, str]) -> Path:
    """Return the folder of the engine for this user, this Python environment, this product and this master; it is made."""
    root = _root(environ)
    key = json.dumps([sys.prefix, sys.version, _product(), settings.master, _java(environ)])
    folder = root / hashlib.sha256(key.encode()).hexdigest()[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        message = f"the folder of the warm engine, {folder}, can be entered by other users"
        raise RunError(message, hint=f"remove it, or name another place with {FOLDER_VARIABLE}.")
    return folder


def living_engines(environ: Mapping[str, str]) -> list[tuple[Path, EngineState]]:
    """Return the engines of this user that live, each with its folder, those of other environments included."""
    folders = sorted(file.parent for file in _root(environ).glob(f"*/{_STATE}"))
    noted = [(folder, state) for folder in folders if (state := read_state(folder)) is not None]
    return [(folder, state) for folder, state in noted if is_alive(folder, state.id)]


def _root(environ: Mapping[str, str]) -> Path:
    if named := environ.get(FOLDER_VARIABLE):
        return Path(named)
    runtime = environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "ematix-flow" if runtime else Path.home() / ".ematix-flow" / "engine"


def _java(environ: Mapping[str, str]) -> str:
    """Return which Java would be used; a shell with JAVA_HOME and one without may well mean the same."""
    try:
        java = find_java(environ)
    except MissingExtraError:  # reported by the command that starts an engine
        return ""
    return f"{java.command} {java.build}"


def _product() -> str:
    """Return what changes whenever the code that tasks run does: a server with older code is not joined."""
    root = Path(__file__).resolve().parent.parent.parent
    newest = max(file.stat().st_mtime_ns for file in root.rglob("*.py"))
    return f"{root} {newest}"


def read_state(folder: Path) -> EngineState | None:
    """Return the engine that was noted last; whether it lives is checked by `is_alive`."""
    try:
        known: dict[str, Any] = json.loads((folder / _STATE).read_text("utf-8"))
        offer = {name: _tuples(value) for name, value in known.pop("offer").items()}
        return EngineState(offer=Offer(**offer), **known)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_state(folder: Path, state: EngineState) -> None:
    """Note an engine, whole or not at all, so that only this user can read its token."""
    draft = folder / f"{state.id}.draft"
    handle = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(state), file)
    draft.replace(folder / _STATE)


def forget_state(folder: Path, engine: str) -> None:
    """Remove the note about an engine, unless another engine has replaced it."""
    if not _is_noted(folder, engine):  # the command that waits for it to start holds the lock
        return
    with starting(folder):
        if _is_noted(folder, engine):
            (folder / _STATE).unlink(missing_ok=True)


def _is_noted(folder: Path, engine: str) -> bool:
    state = read_state(folder)
    return state is not None and state.id == engine


def is_alive(folder: Path, engine: str) -> bool:
    """Return whether the server of an engine lives."""
    file = alive_file(folder, engine)
    lock = locked(file, fcntl.LOCK_EX) if file.exists() else -1
    if lock is None:
        return True
    if lock >= 0:
        os.close(lock)
    return False


def give_sign(folder: Path, engine: str) -> None:
    """Leave a sign that the process that watches over an engine goes on."""
    os.utime(alive_file(folder, engine))


def last_sign(folder: Path, engine: str) -> int:
    """Return what changes with every sign of life; 0 where there is none."""
    try:
        return alive_file(folder, engine).stat().st_mtime_ns
    except OSError:
        return 0


def alive_file(folder: Path, engine: str) -> Path:
    """Return the file that the server of an engine holds as long as it lives."""
    return folder / f"{engine}.alive"


def fate_prefix(engine: str) -> str:
    """Return what is in the log in front of the reason why an engine has ended."""
    return f"engine {engine} has ended: "


def in_use_file(folder: Path, engine: str) -> Path:
    """Return the file that the users of an engine hold together."""
    return folder / f"{engine}.in-use"


def locked(file: Path, kind: int) -> int | None:
    """Return a handle that holds a lock of a kind on a file, or None where others hold it against us."""
    handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


@contextmanager
def starting(folder: Path) -> Iterator[None]:
    """Let one process at a time start or remove an engine."""
    handle = os.open(folder / _START, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what killed engines left behind; the process that starts one has the folder for itself."""
    for file in folder.glob("*.alive"):
        if not is_alive(folder, file.stem):
            remove_files(folder, file.stem)


def remove_files(folder: Path, engine: str) -> None:
    """Remove what an engine that has ended left behind."""
    for file in folder.glob(f"{engine}.*"):
        with suppress(OSError):
            file.unlink()


def _covers(key: str, known: str, value: str) -> bool:
    return known == value or (key == EXTENSIONS and set(value.split(",")) <= set(known.split(",")))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value
