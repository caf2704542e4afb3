"""One server process with a life of its own: started, stopped, crashed and never left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OWN_PREFIX = "t_"
"""How the names of databases begin that a test was given."""
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOG_LINES = 40
_RESERVED: set[int] = set()
"""Ports that this process was given; the lock of a file does not keep a process from itself."""
# Reads until the test process is gone, however it went, then ends the server and removes its folder.
_WATCH = 'cat >/dev/null; kill -s QUIT -- "$1"; sleep 2; kill -s KILL -- "$1"; rm -rf "$2"'


class ServerError(Exception):
    """A server did not do what it was told; the message ends with its log."""


class Server(ABC):
    """A server in a temporary folder on a free port of the loopback interface."""

    name: ClassVar[str]
    account: ClassVar[str]
    """The user that root becomes to run the server; anybody else runs it as themselves."""
    stop_signal: ClassVar[signal.Signals]
    grouped: ClassVar[bool] = False
    """True for a server of several programs: what one is told all of them are told."""

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"flow-{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = _account(self.account)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    @abstractmethod
    def check(self) -> None:
        """Ask whether the server answers; an OSError says that it does not."""

    @abstractmethod
    def initialise(self) -> None:
        """Fill the empty folder with an empty data directory."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line of the server in the foreground."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the server reads."""
        return {}

    @property
    def data(self) -> Path:
        """Where the server keeps its data."""
        return self.folder / "data"

    @property
    def running(self) -> bool:
        """True while the server process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server, if it is not running, and come back once it answers."""
        if self.running:
            return
        is_new = not self.data.exists()
        if is_new:
            self.initialise()
        try:
            self._launch()
        except ServerError:
            if not is_new:
                raise
            # Somebody may have taken the port since it was found free.
            self.port = free_port()
            self._launch()

    def stop(self) -> None:
        """End the server in good order."""
        self._end(self.stop_signal)

    def crash(self) -> None:
        """Kill every process of the server at once, with no chance to write anything."""
        if self._process is None:
            return
        # Stopped first: a process that is about to be killed must not start another one meanwhile.
        self._signal(signal.SIGSTOP)
        children = [pid for pid, parent, _ in _processes() if parent == self._process.pid]
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end(signal.SIGKILL)
        _wait_until(lambda: not any(pid in children and state != "Z" for pid, _, state in _processes()), _STOP_SECONDS)

    def close(self) -> None:
        """End the server and remove everything it wrote."""
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        """Return the last lines that the server wrote."""
        log = self.folder / "log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(lines[-_LOG_LINES:])

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a program as the server's user, its output in the log."""
        with (self.folder / "log").open("ab") as log:
            code = subprocess.run(command, check=False, **self._surroundings(log)).returncode
        if code != 0:
            raise ServerError(f"{command[0]} ended with {code}:\n{self.log_tail()}")

    def _launch(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), start_new_session=True, **self._surroundings(log))
        self._watcher = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", f"{'-' * self.grouped}{self._process.pid}", str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        answered = _wait_until(lambda: not self.running or self._answers(), _START_SECONDS)
        if not answered or not self.running:
            self._end(signal.SIGKILL)
            raise ServerError(f"{self.name} did not start on port {self.port}:\n{self.log_tail()}")

    def _answers(self) -> bool:
        try:
            self.check()
        except OSError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._signal(how)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.communicate()
        self._process = self._watcher = None

    def _signal(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            (os.killpg if self.grouped else os.kill)(self._process.pid, how)

    def _surroundings(self, log: Any) -> dict[str, Any]:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": str(self.folder)}
        environment |= self.environment()
        output = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
        return {"cwd": self.folder, "env": environment, **output, **self._identity}


class DatabaseServer(Server):
    """A server that gives every test a database of its own."""

    @abstractmethod
    def url(self, database: str) -> str:
        """Return the URL of a database of this server."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run one statement outside of any test database, committed at once."""

    def check(self) -> None:
        """Ask whether the server answers."""
        self.execute("SELECT 1")

    def create_database(self) -> str:
        """Make an empty database with a name of its own and return its URL."""
        database = f"{OWN_PREFIX}{uuid.uuid4().hex[:16]}"
        self.execute(f"CREATE DATABASE {database}")
        return self.url(database)

    def drop_database(self, url: str) -> None:
        """Remove a database that `create_database` made."""
        self.execute(f"DROP DATABASE IF EXISTS {url.rsplit('/', 1)[1]}")


def _account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return pwd.getpwnam("nobody")


def free_port() -> int:
    """Return a port that nobody listens at and no other test process was given; it stays this one's until it ends.

    It is below those that the system gives to clients, so that none of them has it when a server restarts.
    """
    while True:
        port = random.randrange(15_000, 32_000)  # noqa: S311 - a choice, not a secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if _reserve(port):
                return port


def _reserve(port: int) -> bool:
    """Hold the byte of a port in a file that all test processes share: a server may open its port much later."""
    if port in _RESERVED:
        return False
    fcntl.lockf(_ports(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    _RESERVED.add(port)
    return True


@cache
def _ports() -> int:
    return os.open(Path(tempfile.gettempdir()) / "flow-test-ports", os.O_RDWR | os.O_CREAT, 0o666)


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def _processes() -> list[tuple[int, int, str]]:
    """Return (pid, parent, state letter) of every process; `ps` only where there is no /proc, for slim images lack it."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,state="], capture_output=True, text=True, check=True)
        rows = [line.split() for line in listing.stdout.splitlines()]
        return [(int(pid), int(parent), state[0]) for pid, parent, state in rows]
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended since it was listed
            # The program's name stands in brackets and may hold anything: what counts comes after the last one.
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            pids.append((int(stat.parent.name), int(parent), state))
    return pids
