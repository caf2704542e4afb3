"""Every slot runs once, whoever starts twice, dies or sleeps: schedulers, workers and run-due as processes of their own."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import closing, suppress
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_url
from ematix_flow.engine.schedule import actions
from ematix_flow.failpoints import SLOT_NAMES
from ematix_flow.plan.schedule.retry import SUCCEEDED
from ematix_flow.records import PipelineState
from ematix_flow.run_log import from_url
from tests.crash.clockwork import START, Clockwork, World
from tests.crash.proxy import Proxy
from tests.depth import every_other, quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.crash

STARTS = quick_or_deep(12, 100)
KILLS = quick_or_deep(6, 40)


@pytest.fixture(scope="module")
def clockwork(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clockwork]:
    opened = Clockwork(tmp_path_factory.mktemp("clockwork"))
    yield opened
    opened.close()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(str(tmp_path), f"sqlite://{tmp_path}/log.db", f"sqlite:///{tmp_path}/target.db")


@pytest.fixture
def postgres_world(tmp_path: Path, postgres_url: str) -> World:
    return World(str(tmp_path), postgres_url, postgres_url)


def _slots(world: World) -> Counter[str]:
    """Return how often each slot was loaded."""
    database = open_database(connection_from_url("read", world.target))
    with closing(database.session()) as session:
        return Counter(str(slot) for (slot,) in session.query("SELECT slot FROM slots"))


def _minutes(first: int, last: int) -> list[str]:
    return [f"{START + timedelta(minutes=number):%Y-%m-%dT%H:%M}" for number in range(first, last + 1)]


def _double_starts(clockwork: Clockwork, world: World) -> None:
    for number in range(1, STARTS + 1):
        now = (START + timedelta(minutes=number, seconds=1)).isoformat()
        pair = [clockwork.start("run_due", world, now=now) for _ in range(2)]
        assert [clockwork.wait(pid) for pid in pair] == ["exited", "exited"], world.notes("errors")
    assert world.notes("errors") == []
    assert world.notes("failed") == []
    assert _slots(world) == Counter(_minutes(1, STARTS))
    # The plain function has no ledger: the lease and the slot alone see to it that it runs once.
    assert Counter(world.notes("ran")).most_common(1)[0][1] == 1


@pytest.mark.deep
def test_double_starts_run_every_slot_once(clockwork: Clockwork, world: World) -> None:
    _double_starts(clockwork, world)


@pytest.mark.service
def test_double_starts_on_a_server_run_every_slot_once(clockwork: Clockwork, postgres_world: World) -> None:
    _double_starts(clockwork, postgres_world)


@pytest.mark.service
@pytest.mark.parametrize("workers", [False, True], ids=["inprocess", "workers"])
def test_kills_of_schedulers_and_workers_neither_miss_nor_repeat_a_slot(
    clockwork: Clockwork, postgres_world: World, *, workers: bool
) -> None:
    world = World(**{**_fields(postgres_world), "catchup": "all", "lease_seconds": 0.5, "failing": 7})
    random, began, killed = Random(20260301), time.time(), 0  # noqa: S311 - the same kills every time
    running = [clockwork.start("scheduler", world, began=began, workers=workers) for _ in range(2)]
    while killed < KILLS:
        time.sleep(random.uniform(0.05, 0.4))
        victims = [int(pid) for pid in world.notes("workers")[-2:]] if workers and killed % 2 else []
        if victims:
            with suppress(ProcessLookupError):
                os.kill(random.choice(victims), signal.SIGKILL)
                killed += 1
            continue
        position = random.randrange(2)
        os.kill(running[position], signal.SIGKILL)
        assert clockwork.wait(running[position]) == "killed"
        running[position] = clockwork.start("scheduler", world, began=began, workers=workers)
        killed += 1
    last = int(time.time() - began)
    _await_slot(world, last)
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    assert [clockwork.wait(pid) for pid in running] == ["exited", "exited"], world.notes("errors")
    loaded = _slots(world)
    assert {slot: times for slot, times in loaded.items() if times > 1} == {}, "a slot was loaded twice"
    first = min(_number(slot) for slot in loaded)
    assert [slot for slot in _minutes(first, last) if slot not in loaded] == [], world.notes("ended")
    _check_alerts(world)


def _fields(world: World) -> dict[str, object]:
    return {name: getattr(world, name) for name in World.__dataclass_fields__}


def _number(slot: str) -> int:
    return next(number for number in range(100_000) if f"{START + timedelta(minutes=number):%Y-%m-%dT%H:%M}" == slot)


def _await_slot(world: World, number: int) -> None:
    """Wait until a slot has been loaded, with the ones before it."""
    slot, until = f"{START + timedelta(minutes=number):%Y-%m-%dT%H:%M:00Z}", time.monotonic() + 90
    with closing(from_url(world.run_log)) as log:
        while time.monotonic() < until:
            state = log.find(PipelineState, "load")
            if state is not None and state.last_slot >= slot and state.slot_status == SUCCEEDED:
                return
            time.sleep(0.1)
    pytest.fail(f"the schedulers did not get to {slot}: {state}; {world.notes('errors')[-3:]}")


def _check_alerts(world: World) -> None:
    """Check that a failure that lasts is told once, and so is its end."""
    for before, after in pairwise(world.notes("alerts")):
        assert before != after, f"{after} was told twice"


@pytest.mark.parametrize(
    "point", every_other([*SLOT_NAMES, "commit.before_commit", "commit.after_commit", "runlog.before_success"])
)
def test_a_scheduler_that_is_killed_at_any_step_neither_misses_nor_repeats_a_slot(
    clockwork: Clockwork, world: World, point: str
) -> None:
    world = World(**{**_fields(world), "lease_seconds": 0.5, "catchup": "all"})
    began = time.time() - 1
    first = clockwork.start("scheduler", world, began=began, failpoints=f"{point}=kill@2")
    assert clockwork.wait(first) == "killed"
    second = clockwork.start("scheduler", world, began=began)
    _await_slot(world, last := int(time.time() - began) + 2)  # one that only the second can have loaded
    os.kill(second, signal.SIGTERM)
    assert clockwork.wait(second) == "exited"
    loaded = _slots(world)
    start = min(_number(slot) for slot in loaded)
    assert {slot: loaded[slot] for slot in _minutes(start, last)} == dict.fromkeys(_minutes(start, last), 1)


@pytest.mark.parametrize("point", ["slot.claimed", "slot.begun", "commit.after_commit", "slot.before_success"])
def test_a_killed_slot_of_a_project_is_taken_up_by_that_project_alone(
    clockwork: Clockwork, tmp_path: Path, point: str
) -> None:
    ours, theirs = (
        World(str(tmp_path), f"sqlite://{tmp_path}/log.db", f"sqlite:///{tmp_path}/{name}.db", 0.5, project=f"/{name}")
        for name in ("ours", "theirs")
    )
    now = (START + timedelta(minutes=5, seconds=1)).isoformat()
    assert clockwork.wait(clockwork.start("run_due", ours, now=now, failpoints=f"{point}=kill")) == "killed"
    time.sleep(0.6)  # the lease ends by the clock of the machine
    for world in (theirs, ours, theirs, ours):
        assert clockwork.wait(clockwork.start("run_due", world, now=now)) == "exited", world.notes("errors")
    assert _slots(ours) == _slots(theirs) == Counter(_minutes(5, 5))
    assert world.notes("ran") == _minutes(5, 5) * 2, "the plain function of each"


@pytest.mark.parametrize("point", ["commit.connected", "ddl.after_expand"])
@pytest.mark.service
def test_a_lease_holder_that_slept_through_a_takeover_commits_nothing(
    clockwork: Clockwork, postgres_world: World, point: str
) -> None:
    world = World(**{**_fields(postgres_world), "lease_seconds": 0.5})
    now = (START + timedelta(minutes=5, seconds=1)).isoformat()
    sleeper = clockwork.start("run_due", world, now=now, failpoints=f"{point}=stop")
    assert clockwork.wait(sleeper) == "stopped"
    time.sleep(0.6)
    second = clockwork.start("run_due", world, now=now)
    assert clockwork.wait(second) == "exited"
    with closing(from_url(world.run_log)) as log:
        after = log.find(PipelineState, "load")
    assert after is not None
    assert after.slot_status == SUCCEEDED
    assert after.interruptions == 1
    loaded = _slots(world)
    os.kill(sleeper, signal.SIGCONT)
    assert clockwork.wait(sleeper) == "exited"
    assert _slots(world) == loaded == Counter(_minutes(5, 5))
    with closing(from_url(world.run_log)) as log:
        assert log.find(PipelineState, "load") == after, "who was taken over writes nothing about the slot"
    assert world.notes("failed") == []
    assert world.notes("alerts") == []


@pytest.mark.service
def test_a_server_with_the_run_log_and_the_target_that_is_away_for_a_while_costs_no_slot(
    clockwork: Clockwork, tmp_path: Path, postgres_url: str
) -> None:
    proxy = Proxy(postgres_url)
    world = World(str(tmp_path), proxy.url, proxy.url, lease_seconds=1.0, catchup="all")
    direct = World(**{**_fields(world), "run_log": postgres_url, "target": postgres_url})
    began = time.time()
    with closing(proxy):
        running = clockwork.start("scheduler", world, began=began)
        for _ in range(2):
            time.sleep(1.5)
            proxy.down()
            time.sleep(1.5)
            proxy.accept()
        last = int(time.time() - began) + 2
        _await_slot(direct, last)
        os.kill(running, signal.SIGTERM)
        assert clockwork.wait(running) == "exited", world.notes("errors")
    loaded = _slots(direct)
    first = min(_number(slot) for slot in loaded)
    assert {slot: loaded[slot] for slot in _minutes(first, last)} == dict.fromkeys(_minutes(first, last), 1)


CANCELLED_AT = (
    "plan.after_bounds",
    "ddl.after_expand",
    "commit.fence_locked",
    "commit.applied",
    "commit.before_commit",
)
COMMITTED_AT = ("commit.commit_sent", "commit.after_commit", "runlog.before_success")


def _cancelled_at(clockwork: Clockwork, world: World, point: str) -> tuple[int, str]:
    """Have a slot stand still at a place, cancel it, and return its process and the instant."""
    now = (START + timedelta(minutes=5, seconds=1)).isoformat()
    pid = clockwork.start("run_due", world, now=now, failpoints=f"{point}=stop@1")
    assert clockwork.wait(pid) == "stopped"
    with closing(from_url(world.run_log)) as log:
        assert actions.cancel(log, "load", "anna")
    return pid, now


def _outcome(world: World) -> tuple[str, list[str]]:
    """Return what became of the slot, and of its attempts, the first one first."""
    with closing(from_url(world.run_log)) as log:
        state = log.find(PipelineState, "load")
        assert state is not None
        runs, _ = log.list_runs(pipeline="load")
        return state.slot_status, [run.status for run in reversed(runs)]


@pytest.mark.parametrize("point", [*CANCELLED_AT, *COMMITTED_AT])
def test_a_run_that_is_cancelled_at_any_step_has_committed_or_is_cancelled(
    clockwork: Clockwork, world: World, point: str
) -> None:
    pid, now = _cancelled_at(clockwork, world, point)
    os.kill(pid, signal.SIGCONT)
    assert clockwork.wait(pid) == "exited", world.notes("errors")
    committed = point in COMMITTED_AT
    assert _outcome(world) == (("succeeded", ["succeeded"]) if committed else ("cancelled", ["cancelled"]))
    again = clockwork.start("run_due", world, now=now)
    assert clockwork.wait(again) == "exited"
    assert sum(_slots(world).values()) == int(committed), "a cancelled slot is not repeated by itself"
    assert world.notes("alerts") == []


@pytest.mark.parametrize("point", ["commit.applied", "commit.after_commit"])
def test_a_worker_that_is_killed_while_it_is_cancelled_leaves_a_slot_that_says_what_happened(
    clockwork: Clockwork, world: World, point: str
) -> None:
    world = World(**{**_fields(world), "lease_seconds": 0.5})
    pid, now = _cancelled_at(clockwork, world, point)
    os.kill(pid, signal.SIGKILL)
    assert clockwork.wait(pid) == "killed"
    time.sleep(0.6)  # until the lease of the dead has ended
    again = clockwork.start("run_due", world, now=now)
    assert clockwork.wait(again) == "exited", world.notes("errors")
    committed = point == "commit.after_commit"
    assert _outcome(world) == (("succeeded", ["succeeded"]) if committed else ("cancelled", ["cancelled"]))
    assert sum(_slots(world).values()) == int(committed)


@pytest.mark.parametrize("point", ["plan.after_bounds", "commit.applied"])
def test_a_slot_whose_process_was_killed_is_interrupted_in_the_history_and_then_succeeds(
    clockwork: Clockwork, world: World, point: str
) -> None:
    world = World(**{**_fields(world), "lease_seconds": 0.5})
    now = (START + timedelta(minutes=5, seconds=1)).isoformat()
    pid = clockwork.start("run_due", world, now=now, failpoints=f"{point}=stop@1")
    assert clockwork.wait(pid) == "stopped"
    os.kill(pid, signal.SIGKILL)
    assert clockwork.wait(pid) == "killed"
    time.sleep(0.6)  # until the lease of the dead has ended
    again = clockwork.start("run_due", world, now=now)
    assert clockwork.wait(again) == "exited", world.notes("errors")
    assert _outcome(world) == ("succeeded", ["interrupted", "succeeded"])
    assert _slots(world) == Counter(_minutes(5, 5))
