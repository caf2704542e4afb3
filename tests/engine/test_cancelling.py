"""A run that is cancelled or takes too long stops: its statement is interrupted, and what was not committed is not committed."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import wait
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import register_connection
from ematix_flow.clock import Clock
from ematix_flow.commit import publish
from ematix_flow.connect.base import cancellation as halting
from ematix_flow.connect.base.cancellation import Halt
from ematix_flow.connect.sqlite import session as sqlite_session
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine import Options, preview_pipeline, run_pipeline
from ematix_flow.engine.batch import load as loading
from ematix_flow.engine.schedule import actions
from ematix_flow.engine.schedule.run_due import run_due
from ematix_flow.errors import DeclareError, FlowError, RunCancelledError, RunError, RunTimeoutError
from ematix_flow.events import RunStarted
from ematix_flow.observe.bus import Bus
from ematix_flow.records import RunRecord
from tests.crash.proxy import Proxy
from tests.engine.conftest import create_warehouse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from tests.engine.conftest import Warehouse
    from tests.engine.schedules import Rig

ENDLESS = {
    "duckdb": "SELECT count(*) FROM range(100000000000) a, range(1000) b",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(600)",
    "mysql": "SELECT COUNT(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c, information_schema.columns d",
}
GIVE_UP_SECONDS = 60


@pytest.fixture(autouse=True)
def _check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ematix_flow.engine.schedule.lease.CHECK_SECONDS", 0.02)
    monkeypatch.setattr("ematix_flow.engine.schedule.cancel.CHECK_SECONDS", 0.02)


def endless(warehouse: Warehouse, declare: Callable[..., Pipeline], **more: Any) -> Pipeline:
    """Declare a load whose query does not end by itself."""
    slow = f"SELECT 1 AS id, 'x' AS name FROM ({ENDLESS[warehouse.kind]}) AS slow"
    return declare(warehouse, slow, **more)


def test_a_session_is_interrupted_from_another_thread(warehouse: Warehouse) -> None:
    halt, began = Halt(), time.monotonic()
    with halt.over():
        session = warehouse.database.session()
    threading.Timer(0.3, halt.stop, (RunError("enough"),)).start()
    with pytest.raises(warehouse.database.errors):
        session.query(ENDLESS[warehouse.kind])
    session.close()
    assert time.monotonic() - began < GIVE_UP_SECONDS


def test_a_stop_in_a_moment_that_may_not_be_interrupted_is_made_up_for(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halting, "INSIST_SECONDS", 0.05)
    halt, woken = Halt(), threading.Event()
    with halt.over(), halt.waking(woken.set):
        session = warehouse.database.session()
        with halt.held():
            halt.stop(RunError("enough"))
            assert session.query("SELECT 1") == [(1,)]
            assert not woken.is_set()
        with pytest.raises(warehouse.database.errors):
            session.query(ENDLESS[warehouse.kind])
        assert woken.wait(GIVE_UP_SECONDS)
        session.close()


def test_what_a_session_does_is_left_alone_while_it_commits_and_afterwards(warehouse: Warehouse) -> None:
    halt = Halt()
    with halt.over():
        session = warehouse.database.session()
        try:
            with halt.committing():
                halt.stop(RunError("too late"))
                assert session.query("SELECT 1") == [(1,)]
            assert session.query("SELECT 2") == [(2,)]
            with pytest.raises(RunError, match="too late"):
                halt.next_step()
        finally:
            session.close()
    stopped = Halt()
    stopped.stop(RunError("first"))
    with pytest.raises(RunError, match="first"), stopped.committing():
        pytest.fail("a run that is to stop commits nothing")


@pytest.mark.slow
def test_a_statement_of_a_scheduled_run_is_interrupted_and_nothing_is_loaded(
    rig: Rig, warehouse: Warehouse, declare: Callable[..., Pipeline]
) -> None:
    endless(warehouse, declare, schedule="0 * * * *", mode="append")
    scheduler = rig.scheduler()
    scheduler.tick()
    _until(lambda: bool(rig.log.list_runs(status="running")[0]))
    assert actions.cancel(rig.log, "load", "anna") == "one"
    assert not wait(scheduler.begun(), GIVE_UP_SECONDS).not_done
    state = rig.state("load")
    assert (state.slot_status, state.error) == ("cancelled", "cancelled by anna")
    (run,), _ = rig.log.list_runs(pipeline="load")
    assert run.status == "cancelled"
    rig.pass_time(30)
    assert rig.due().fired == []
    assert [event.error_type for event in rig.ended()] == ["RunCancelledError"]


@pytest.mark.slow
def test_a_query_that_threads_read_for_a_scheduler_is_interrupted(
    rig: Rig, warehouse: Warehouse, declare: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")
    seconds = timedelta(seconds=1)
    endless(warehouse, declare, schedule="0 * * * *", mode="append", force_path="cross_db", timeout=seconds)
    scheduler = rig.scheduler()
    scheduler.tick()
    assert not wait(scheduler.begun(), GIVE_UP_SECONDS).not_done
    assert [event.error_type for event in rig.ended()] == ["RunTimeoutError"]


def test_a_run_by_hand_is_cancelled_through_the_run_log_and_the_next_one_is_new(
    rig: Rig, duck: Warehouse, declare: Callable[..., Pipeline]
) -> None:
    pipeline = endless(duck, declare, mode="append")
    caught: list[BaseException] = []

    def work() -> None:
        try:
            run_pipeline(pipeline, Options(run_log=rig.log))
        except FlowError as error:
            caught.append(error)

    running = threading.Thread(target=work)
    running.start()
    _until(lambda: bool(rig.log.list_runs(status="running")[0]))
    assert "process" in actions.cancel(rig.log, "load", "anna")
    running.join(GIVE_UP_SECONDS)
    assert [type(error) for error in caught] == [RunCancelledError]
    (run,), _ = rig.log.list_runs(pipeline="load")
    assert run.status == "cancelled"
    assert not rig.log.open_request("load", rig.now).resumed


def test_a_cancelled_run_does_not_wait_for_the_next_attempt_at_its_commit(
    rig: Rig,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    declare: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lite = create_warehouse("sqlite", request, tmp_path)
    pipeline = declare(lite)
    run_pipeline(pipeline, Options(run_log=rig.log))
    monkeypatch.setattr(sqlite_session, "LOCK_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(loading, "COMMIT", replace(loading.COMMIT, first_wait=10_000.0, longest_wait=10_000.0))
    waiting, caught, bus = threading.Event(), list[BaseException](), Bus()

    def wait_for(event: threading.Event, seconds: float) -> bool:
        waiting.set()
        return event.wait(seconds)

    def work() -> None:
        try:
            run_pipeline(pipeline, Options(run_log=rig.log, bus=bus, clock=Clock(wait=wait_for)))
        except FlowError as error:
            caught.append(error)

    with closing(
        sqlite3.connect(tmp_path / "warehouse.sqlite", isolation_level=None, check_same_thread=False)
    ) as holder:
        bus.subscribe(lambda event: holder.execute("BEGIN IMMEDIATE") if isinstance(event, RunStarted) else None)
        running = threading.Thread(target=work)
        running.start()
        assert waiting.wait(GIVE_UP_SECONDS)
        actions.cancel(rig.log, "load", "anna")
        running.join(GIVE_UP_SECONDS)
    assert [type(error) for error in caught] == [RunCancelledError]


class _Gone(Proxy):
    """A network that is away from the next COMMIT on."""

    def _interfere(self, server: Any, data: bytes) -> bool:
        self.refuse()
        return super()._interfere(server, data)


@pytest.mark.service
def test_a_run_that_is_cancelled_while_its_commit_is_looked_up_tells_what_became_of_it(
    rig: Rig,
    postgres_url: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    declare: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = _Gone(postgres_url)
    direct = create_warehouse("postgres", request, tmp_path)
    register_connection(connection_from_fields("warehouse", {"kind": "postgres", "url": proxy.url}))
    pipeline = declare(direct)
    run_pipeline(pipeline, Options(run_log=rig.log))
    direct.run(f"INSERT INTO {direct.orders} VALUES (3, 'c')")
    halts, waiting, back, results = list[Halt](), threading.Event(), threading.Event(), list[Any]()

    def reach(point: str) -> None:
        if point == "commit.before_commit":
            halts.append(halting.current())
            proxy.at_commit = "cut after"

    def wait_for(event: threading.Event, _: float) -> bool:
        waiting.set()
        return back.wait(GIVE_UP_SECONDS) and event.is_set()

    monkeypatch.setattr(publish, "failpoint", reach)
    options = Options(run_log=rig.log, clock=Clock(wait=wait_for))
    running = threading.Thread(target=lambda: results.append(run_pipeline(pipeline, options)))
    running.start()
    assert waiting.wait(GIVE_UP_SECONDS)
    actions.cancel(rig.log, "load", "anna")
    _until(lambda: halts[0].error is not None)
    proxy.accept()
    back.set()
    running.join(GIVE_UP_SECONDS)
    proxy.close()
    assert [result["status"] for result in results] == ["success"]
    assert direct.rows(f"SELECT count(*) FROM {direct.target}") == [(3,)]


@pytest.mark.slow
def test_a_run_that_takes_too_long_has_failed_and_is_tried_again_by_its_policy(
    rig: Rig, duck: Warehouse, declare: Callable[..., Pipeline]
) -> None:
    endless(duck, declare, schedule="0 * * * *", timeout=timedelta(seconds=0.3), retry={"max_attempts": 2})
    result = run_due(rig.runner())
    assert [(event.error_type, event.gave_up) for event in result.failed] == [("RunTimeoutError", False)]
    rig.pass_time(1)
    result = run_due(rig.runner())
    assert [(event.error_type, event.attempt_count, event.gave_up) for event in result.failed] == [
        ("RunTimeoutError", 2, True)
    ]
    runs, _ = rig.log.list_runs(pipeline="load")
    assert [(run.status, run.attempt) for run in runs] == [("failed", 2), ("failed", 1)]
    assert "took longer than its timeout of 0.3 s" in str(runs[0].error_summary)
    assert issubclass(RunTimeoutError, TimeoutError)


@pytest.mark.slow
def test_a_run_that_is_stopped_after_its_commit_does_not_say_that_nothing_was_committed(
    rig: Rig, duck: Warehouse, declare: Callable[..., Pipeline]
) -> None:
    def post(conn: Any) -> None:
        actions.cancel(rig.log, "load", "anna")
        halting.current().check()

    load = declare(duck, mode="append", transforms_post=[post])
    for _ in ("loads", "finds its rows"):
        with pytest.raises(RunCancelledError) as caught:
            run_pipeline(load, Options(run_log=rig.log))
        assert caught.value.hint == "what it had committed before stays, and running it again loads none of it twice."
    ids = [row[0] for row in duck.rows("SELECT id FROM mart.orders")]
    assert len(set(ids)) == len(ids) > 0


def test_a_preview_shows_the_timeout(duck: Warehouse, declare: Callable[..., Pipeline], fixed: Options) -> None:
    shown = preview_pipeline(declare(duck, timeout="30m"), fixed)
    assert shown.text().splitlines()[0] == "pipeline load, timeout 1800 s"
    assert shown.to_dict()["timeout"] == 1800


@pytest.mark.parametrize("value", [0, -1, "soon", True])
def test_a_timeout_that_no_run_could_keep_is_refused(rig: Rig, value: object) -> None:
    with pytest.raises(DeclareError, match="timeout"):
        rig.add("a", timeout=value)


def test_every_attempt_at_a_slot_has_a_record_with_its_number(rig: Rig) -> None:
    rig.add("a", retry={"max_attempts": 3})
    rig.broken.add("a")
    records: list[list[RunRecord]] = []
    for _ in range(3):
        rig.due()
        rig.pass_time(1)
    runs, total = rig.log.list_runs(pipeline="a")
    assert (total, [(run.attempt, run.status) for run in runs]) == (3, [(3, "failed"), (2, "failed"), (1, "failed")])
    assert len({run.run_id for run in runs}) == 1
    rig.add("b", work=lambda: records.append(rig.log.list_runs(status="running")[0]))
    rig.due()
    assert [(run.pipeline, run.attempt) for run in records[0]] == [("b", 1)]
    assert rig.log.list_runs(status="running") == ([], 0)


def test_an_interrupted_slot_has_a_record_when_it_is_taken_up(rig: Rig) -> None:
    rig.add("a", idempotent=True)
    slot = "2026-03-01T12:00:00Z"
    rig.log.change_state("a", lambda s: _running(s, slot))
    dead = RunRecord(f"a@{slot}", "a", "running", rig.now.isoformat(), request_id=f"a@{slot}")
    rig.log.record(dead)
    assert [event.name for event in rig.due().fired] == ["a"]
    runs, _ = rig.log.list_runs(pipeline="a")
    assert sorted((run.attempt, run.status) for run in runs) == [(1, "interrupted"), (2, "succeeded")]


def test_an_interrupted_slot_that_is_not_taken_up_has_a_record(rig: Rig) -> None:
    rig.add("a")
    slot = "2026-03-01T12:00:00Z"
    rig.log.change_state("a", lambda s: _running(s, slot))
    rig.log.record(RunRecord(f"a@{slot}", "a", "running", rig.now.isoformat(), request_id=f"a@{slot}"))
    rig.due()
    assert [(run.attempt, run.status) for run in rig.log.list_runs()[0]] == [(1, "interrupted")]


def test_work_outside_of_a_run_is_never_stopped() -> None:
    halting.current().check()
    halting.current().next_step()


def _running(state: Any, slot: str) -> Any:
    from ematix_flow.plan.schedule.cron import instant_of
    from ematix_flow.plan.schedule.retry import begun

    return begun(state, slot, instant_of(slot))


def _until(true: Callable[[], bool]) -> None:
    """Wait until something is seen; the time only ends a test that has failed."""
    until = time.monotonic() + GIVE_UP_SECONDS
    while not true():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)
