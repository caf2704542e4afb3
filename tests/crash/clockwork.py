"""Schedulers and `flow run-due` as processes that can be killed: forked from one that has imported everything already.

Run as a program it reads one line of JSON for each child that is wanted, answers with its number, and lets it run; a
line `{"wait": PID}` waits for one and says how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTES_PER_SECOND = 60
"""How fast the clock of decisions runs: a slot of every minute comes every second."""


@dataclass(frozen=True)
class World:
    """Where the processes of one test meet."""

    folder: str
    run_log: str
    target: str
    """URL of the database that slots are loaded into."""
    lease_seconds: float = 2.0
    catchup: str = "last"
    failing: int = 0
    """Slots whose minute this divides fail; none for 0."""
    project: str = "-"
    """What the processes have in the variable of the project."""

    def notes(self, name: str) -> list[str]:
        """Return the lines that processes have written to a file."""
        file = Path(self.folder) / name
        return file.read_text().splitlines() if file.exists() else []


class Clockwork:
    """The side of the tests."""

    def __init__(self, home: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("EMATIX_FLOW_", "FLOW_"))}
        environment |= {"HOME": str(home), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "EMATIX_FLOW_ENGINE": "local"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.clockwork"],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, what: str, world: World, **more: Any) -> int:
        """Start a process and return its number."""
        return int(self._request({"what": what, "world": asdict(world), **more}))

    def wait(self, pid: int) -> str:
        """Wait for a process; returns `exited`, `killed` or `stopped`."""
        return str(self._request({"wait": pid}))

    def _request(self, job: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the process and what it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()


# The side of the processes


def _serve() -> None:
    from ematix_flow.connect.duckdb import database as duckdb  # noqa: F401
    from ematix_flow.connect.postgres import database as postgres  # noqa: F401
    from ematix_flow.connect.sqlite import database as sqlite  # noqa: F401
    from ematix_flow.engine.batch import run as conductor  # noqa: F401
    from ematix_flow.engine.schedule import backfill as backfilling  # noqa: F401
    from ematix_flow.engine.schedule import (
        requests,  # noqa: F401
        scheduler,  # noqa: F401
    )
    from ematix_flow.engine.schedule import run_due as due  # noqa: F401
    from ematix_flow.engine.schedule import worker as working  # noqa: F401
    from ematix_flow.run.local import threads  # noqa: F401

    # Children have this from their first moment on: one that is told to stop before it has begun has nothing to finish.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    alive: set[int] = set()
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            _, status = os.waitpid(job["wait"], os.WUNTRACED)
            ending = "stopped" if os.WIFSTOPPED(status) else "killed" if os.WIFSIGNALED(status) else "exited"
            alive -= {job["wait"]} if ending != "stopped" else set()
            print(json.dumps(ending), flush=True)  # noqa: T201 - the protocol
            continue
        pid = os.fork()
        if not pid:
            _child(job)
        alive.add(pid)
        print(pid, flush=True)  # noqa: T201 - the protocol
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _child(job: dict[str, Any]) -> None:
    """Do what a job says and end; what goes wrong is written to a file."""
    os.dup2(2, 1)
    world = World(**job["world"])
    code = 0
    try:
        from ematix_flow import failpoints

        os.environ["EMATIX_FLOW_PROJECT"] = world.project
        failpoints.arm(job.get("failpoints", ""))
        _WORK[job["what"]](world, job)
    except BaseException as error:  # noqa: BLE001 - told to the test, which judges it
        _note(world, "errors", f"{type(error).__name__}: {error}")
        code = 1
    os._exit(code)


def declare(world: World) -> None:
    """Declare the pipelines of every process: one that loads a row for each slot, one plain function, one that may fail."""
    from ematix_flow import Annotated, Text, pipeline, pk  # noqa: TC001 - the table reads its annotations
    from ematix_flow.declare.decorators import ematix, table

    @table(schema="main" if world.target.startswith("sqlite") else "public", name="slots")
    class Slots:
        # A key that no two loads share, so that nothing but the load path keeps a slot from being loaded twice.
        load_id: Annotated[Text, pk()]
        slot: Text

    @ematix.pipeline(
        target=Slots,
        mode="append",
        name="load",
        schedule="* * * * *",
        target_connection="clock",
        catchup=world.catchup,
        retry={"max_attempts": 20},
    )
    def load(conn: Any) -> str:
        slot = pipeline.current_slot()
        assert slot is not None
        return f"SELECT '{uuid.uuid4()}' AS load_id, '{slot.end:%Y-%m-%dT%H:%M}' AS slot"

    @pipeline.register(name="note", schedule="* * * * *", depends_on=["load"], catchup=world.catchup)
    def note() -> None:
        slot = pipeline.current_slot()
        assert slot is not None
        _note(world, "ran", f"{slot.end:%Y-%m-%dT%H:%M}")
        if world.failing and slot.end.minute % world.failing == 0:
            message = "as it was told to"
            raise ValueError(message)


def _runner(world: World, **how: Any) -> Any:
    from ematix_flow.declare.connection.registry import connection_from_url, register_connection
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.schedule.slot_run import SlotRunner
    from ematix_flow.observe.alerts.incidents import Incidents
    from ematix_flow.observe.bus import Bus
    from ematix_flow.run_log import from_url

    register_connection(connection_from_url("clock", world.target))
    declare(world)
    log, bus = from_url(world.run_log), Bus()
    bus.subscribe(lambda event: _heard(world, event))
    bus.subscribe(Incidents(log, lambda alert: _note(world, "alerts", f"{alert.kind} {alert.pipeline}")))
    return SlotRunner(log, Options(run_log=log, bus=bus, **how), lease_seconds=world.lease_seconds)


def _heard(world: World, event: Any) -> None:
    if type(event).__name__ == "PipelineEnded" and event.error_type:
        _note(world, "ended", f"{event.slot} {event.attempt} {event.error_type}: {event.error_message}")


def _run_due(world: World, job: dict[str, Any]) -> None:
    """Run what is due at an instant."""
    from dataclasses import replace

    from ematix_flow.engine.schedule.run_due import run_due

    runner = _runner(world)
    result = run_due(replace(runner, now=datetime.fromisoformat(job["now"])))
    for event in result.failed:
        _note(world, "failed", f"{event.name}: {event.error_message}")


def _scheduler(world: World, job: dict[str, Any]) -> None:
    """Be a scheduler whose clock runs fast."""
    from ematix_flow.clock import Clock
    from ematix_flow.engine.schedule.scheduler import Scheduler, SchedulerSettings

    began = float(job["began"])
    clock = Clock(now=lambda: START + timedelta(seconds=(time.time() - began) * MINUTES_PER_SECOND))
    runner = _runner(world, clock=clock)
    executor = _Forking(world, runner) if job.get("workers") else None
    settings = SchedulerSettings(
        executor=executor, poll_seconds=0.05, leader_seconds=world.lease_seconds, max_iterations=job.get("iterations")
    )
    scheduler = Scheduler(runner, settings)
    signal.signal(signal.SIGTERM, lambda *_: scheduler.stop.set())
    scheduler.run()


class _Forking:
    """Runs every slot in a process of its own, as the executor of subprocesses does, without the price of an import."""

    def __init__(self, world: World, runner: Any) -> None:
        self._world, self._runner = world, runner

    def dispatch(self, spec: Any) -> Any:
        """Fork a worker and note its number, so that the test can kill it."""
        from ematix_flow.engine.executors.base import DispatchHandle

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        pid = os.fork()
        if not pid:
            self._work(spec)
        _note(self._world, "workers", str(pid))
        return DispatchHandle(spec.pipeline_name, "fork", str(pid))

    def cancel(self, handle: Any) -> None:
        """Leave a worker alone."""

    def _work(self, spec: Any) -> None:
        from ematix_flow.declare.project import PROJECT
        from ematix_flow.engine.schedule.worker import work

        try:
            work(PROJECT.pipelines[spec.pipeline_name], spec.claim_token, self._runner)
        except BaseException as error:  # noqa: BLE001 - told to the test, which judges it
            _note(self._world, "errors", f"{type(error).__name__}: {error}")
        os._exit(0)


def _note(world: World, name: str, line: str) -> None:
    with (Path(world.folder) / name).open("a") as file:
        file.write(f"{line}\n")


_WORK = {"run_due": _run_due, "scheduler": _scheduler}


if __name__ == "__main__":
    _serve()
