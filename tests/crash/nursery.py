"""A process that forks a child for every job and tells how it ended: crash tests without the price of an import each.

Run as a program it reads jobs as lines of JSON and answers each with one line. It holds no connection and no thread of
its own, so that a fork is as good as a fresh process.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
DEADLINE = 120.0


@dataclass(frozen=True)
class Ending:
    """How a job ended: `signal` of its death, the error it raised, or its answer."""

    signal: int = 0
    stopped: int = 0
    """The id of a child that stopped itself and waits to be continued."""
    error: str = ""
    answer: Any = None

    @property
    def died(self) -> bool:
        return self.signal == signal.SIGKILL


class Nursery:
    """The side of the tests: starts the process and sends it jobs."""

    def __init__(self, home: Path, *, lakes: bool = False) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("EMATIX_FLOW_", "FLOW_"))}
        environment |= {"HOME": str(home), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "EMATIX_FLOW_ENGINE": "local"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery", *(["lakes"] if lakes else [])],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, function: str, *arguments: Any, kill_after: float | None = None, **how: Any) -> Ending:
        """Run a function of `tests.crash.jobs` in a child; with `kill_after` it is killed then, if it still lives.

        With `since`, the name of a file, the time begins when that file is there.
        """
        given = [asdict(value) if hasattr(value, "__dataclass_fields__") else value for value in arguments]
        return self._request({"function": function, "arguments": given, "kill_after": kill_after, **how})

    def resume(self, ending: Ending) -> Ending:
        """Continue a child that stopped itself and return how it ended."""
        return self._request({"resume": ending.stopped})

    def _request(self, job: dict[str, Any]) -> Ending:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Ending(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process; children that still live are killed by it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE)
        if self._process.stdout is not None:
            self._process.stdout.close()


# The side of the process


@dataclass(frozen=True)
class _Child:
    pid: int
    pipe: int


def _serve() -> None:
    from tests.crash import jobs

    jobs.warm_up()
    if "lakes" in sys.argv:
        jobs.warm_up_for_lakes()
    # A collector that looks at what the children share would make each of them copy it.
    gc.freeze()
    stopped: dict[int, _Child] = {}
    for line in sys.stdin:
        job = json.loads(line)
        if "resume" in job:
            child = stopped.pop(job["resume"])
            os.kill(child.pid, signal.SIGCONT)
        else:
            child = _fork(job)
        ending = _await(child, job.get("kill_after"), job.get("since"))
        if ending.stopped:
            stopped[ending.stopped] = child
        print(json.dumps(asdict(ending)), flush=True)  # noqa: T201 - the protocol
    for child in stopped.values():
        os.kill(child.pid, signal.SIGKILL)


def _fork(job: dict[str, Any]) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Child(pid, reading)
    os.close(reading)
    os.dup2(2, 1)
    os.write(writing, json.dumps(_performed(job)).encode())
    os._exit(0)


def _performed(job: dict[str, Any]) -> dict[str, Any]:
    from tests.crash import jobs

    try:
        return {"answer": jobs.perform(job)}
    except BaseException as error:  # noqa: BLE001 - told to the test, which judges it
        return {"error": f"{type(error).__name__}: {error}"}


def _await(child: _Child, kill_after: float | None, since: str | None) -> Ending:
    """Wait until the child ends or stops; kill it when its time is over."""
    started = time.monotonic()
    answer_bytes = b""
    while True:
        ready, _, _ = select.select([child.pipe], [], [], 0.003 if since is None else 0.0005)
        if ready:
            answer_bytes += os.read(child.pipe, 1 << 16)
        if since is not None and not Path(since).exists():
            started = time.monotonic()
        pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED)
        lived = time.monotonic() - started
        if not pid and lived > (DEADLINE if kill_after is None else kill_after):
            os.kill(child.pid, signal.SIGKILL)
            kill_after = DEADLINE * 2
        if not pid:
            continue
        if os.WIFSTOPPED(status):
            return Ending(stopped=child.pid)
        answer_bytes += _rest(child.pipe)
        if os.WIFSIGNALED(status):
            return Ending(signal=os.WTERMSIG(status))
        return Ending(**json.loads(answer_bytes))


def _rest(pipe: int) -> bytes:
    received = b""
    while block := os.read(pipe, 1 << 16):
        received += block
    os.close(pipe)
    return received


if __name__ == "__main__":
    _serve()
