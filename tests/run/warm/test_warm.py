from __future__ import annotations

import os
import signal
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.errors import MissingExtraError, RunError, TransientError
from ematix_flow.run.read.data_source import register
from ematix_flow.run.spark import session as sessions
from ematix_flow.run.spark.connect_client import drop
from ematix_flow.run.warm import client
from ematix_flow.run.warm.client import end_now, join, lease_of, stop
from ematix_flow.run.warm.state import FOLDER_VARIABLE, Offer, engine_folder, is_alive, read_state, write_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ematix_flow.run.warm.client import EngineLease

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETTINGS = SparkSettings(master="local[2, 4]", shared=True, conf={"spark.sql.shuffle.partitions": "2"})
WAIT = 60


@pytest.fixture(autouse=True)
def _at_root(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(engines))


def _gone(lease: EngineLease) -> bool:
    deadline = time.monotonic() + WAIT
    while is_alive(lease.folder, lease.state.id):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_commands_share_an_engine_and_see_nothing_of_each_other() -> None:
    first, one = join(SETTINGS)
    second, two = join(SETTINGS)
    assert one.state == two.state
    first.range(3).createOrReplaceTempView("rows")
    assert first.sql("SELECT count(*) FROM rows").collect()[0][0] == 3
    assert not second.catalog.tableExists("rows")
    first.stop()
    one.release()
    assert second.range(4).count() == 4
    second.stop()
    two.release()


@pytest.mark.deep
def test_tasks_run_the_code_of_the_package_that_started_the_engine() -> None:
    def batches_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import ematix_flow

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [str(ematix_flow.__file__)]})

    session, lease = join(SETTINGS)
    ((file,),) = session.range(0, 1, 1, 1).mapInArrow(batches_of, "file string").collect()
    assert file == client.__file__.replace("run/warm/client.py", "__init__.py")
    session.stop()
    lease.release()


def test_a_session_reads_connections_as_frames() -> None:
    with sqlite3.connect("here.sqlite") as database:
        database.execute("CREATE TABLE t (id INTEGER, name TEXT)")
        database.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session, lease = join(SETTINGS)
    register(session, {"it": connection_from_fields("it", {"kind": "sqlite", "path": "here.sqlite"})})
    frame = session.read.format("ematix").option("connection", "it").option("table", "t").load()
    assert [tuple(row) for row in frame.where("id > 1").collect()] == [(2, "b")]
    session.stop()
    lease.release()


@pytest.mark.deep
def test_a_session_that_the_server_has_closed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        first = sessions.spark_session(SETTINGS)
        assert first.range(3).count() == 3
        first.client.release_session()  # as the server does when nobody has used it for long
        assert sessions.spark_session(SETTINGS) is first  # nobody asks again and again
        monkeypatch.setattr(sessions, "LIVENESS_SECONDS", 0.0)
        second = sessions.spark_session(SETTINGS)
        assert second is not first
        assert second.range(4).count() == 4
    finally:
        sessions.stop_session()


@pytest.mark.deep
def test_workers_wait_for_the_first_load() -> None:
    lease = lease_of(SETTINGS)
    deadline = time.monotonic() + WAIT
    while not _daemons(lease.state.java_pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _daemons(lease.state.java_pid)
    lease.release()


def _daemons(java: int) -> list[int]:
    """Return the processes of Python below Java."""
    stats = [(path.parent.name, path.read_text()) for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    return [int(pid) for pid, stat in stats if int(stat.rpartition(")")[2].split()[1]) == java]


def test_a_connection_without_the_token_is_refused() -> None:
    from ematix_flow.run.spark.connect_client import far_session

    lease = lease_of(SETTINGS)
    for query in ("", "token=wrong"):
        session: Any = far_session(f"sc://localhost:{lease.state.port}/;{query}")
        with pytest.raises(Exception, match=r"(?i)unauthenticated|invalid|credentials"):
            session.version  # noqa: B018
        session.client.close()
    lease.release()


def test_the_token_is_in_no_argument_and_no_setting() -> None:
    session, lease = join(SETTINGS)
    token = lease.state.token
    for pid in (lease.state.pid, lease.state.java_pid):
        assert token not in Path(f"/proc/{pid}/cmdline").read_text()
    assert token not in str(session.sql("SET -v").collect())
    assert token not in str(session.sql("SET").collect())
    (log,) = lease.folder.glob("engine.log")
    assert token not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    session.stop()
    lease.release()


@pytest.mark.deep
def test_the_server_has_no_variable_of_the_command_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_SHOP", "postgres://me:canary-of-a-command@host/db")
    lease = lease_of(SparkSettings(master="local[1, 4]", shared=True))
    for pid in (lease.state.pid, lease.state.java_pid):
        assert "canary-of-a-command" not in Path(f"/proc/{pid}/environ").read_text()
    end_now(lease.state)
    lease.release()


@pytest.mark.deep
def test_an_engine_that_is_stopped_serves_its_users_to_the_end() -> None:
    session, lease = join(SETTINGS)
    stop(lease.state)
    deadline = time.monotonic() + WAIT
    while read_state(lease.folder) == lease.state and time.monotonic() < deadline:
        time.sleep(0.05)
    later = lease_of(SETTINGS)
    assert later.state.id != lease.state.id
    assert session.range(5).count() == 5
    session.stop()
    lease.release()
    assert _gone(lease)
    assert is_alive(later.folder, later.state.id)
    later.release()


def test_a_killed_server_is_replaced() -> None:
    lease = lease_of(SETTINGS)
    os.kill(lease.state.java_pid, signal.SIGKILL)
    assert _gone(lease)
    lease.release()
    session, later = join(SETTINGS)
    assert later.state.id != lease.state.id
    assert session.range(2).count() == 2
    session.stop()
    later.release()


@pytest.mark.deep
def test_java_ends_with_the_process_that_watches_over_it() -> None:
    lease = lease_of(SETTINGS)
    os.kill(lease.state.pid, signal.SIGKILL)
    deadline = time.monotonic() + WAIT
    while _runs(lease.state.java_pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(lease.state.java_pid)
    assert not lease.alive
    lease.release()


@pytest.mark.deep
def test_a_stale_note_is_passed_over() -> None:
    lease = lease_of(SETTINGS)
    state = lease.state
    end_now(state)
    lease.release()
    assert _gone(lease)
    write_state(lease.folder, state)
    later = lease_of(SETTINGS)
    assert later.state.id != state.id
    later.release()


@pytest.mark.deep
def test_the_stop_of_a_service_ends_java_and_who_watches_over_it() -> None:
    lease = lease_of(SETTINGS)
    for pid in (lease.state.java_pid, lease.state.pid):
        os.kill(pid, signal.SIGTERM)
    assert _gone(lease)
    assert not _runs(lease.state.java_pid)
    assert "Java" in lease.fate()
    lease.release()


@pytest.mark.deep
def test_a_note_with_another_token_is_passed_over() -> None:
    lease = lease_of(SETTINGS)
    write_state(lease.folder, replace(lease.state, token="another"))
    session, later = join(SETTINGS)
    assert later.state.id != lease.state.id
    assert session.range(2).count() == 2
    session.stop()
    lease.release()
    later.release()
    assert _gone(lease)


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED")
def test_an_engine_without_memory_ends_and_says_so() -> None:
    small = replace(SETTINGS, master="local[1, 7]", conf={"spark.driver.memory": "600m"})
    session, lease = join(small)
    assert lease.state.heap_bytes == 600 << 20
    with pytest.raises(Exception, match=r"(?i)unavailable|connect|socket|closed|reset"):
        session.sql("SELECT length(repeat('x', 2000000000 + CAST(id AS INT))) FROM range(1)").collect()
    assert _gone(lease)
    assert lease.fate() == "Java ran out of memory; its heap of 600m was full"
    drop(session)
    lease.release()


@pytest.mark.deep
def test_an_engine_that_offers_something_else_is_replaced_by_one_that_offers_what_is_needed() -> None:
    lease = lease_of(SETTINGS)
    more = {"spark.ematix.test": "1", "spark.sql.shuffle.partitions": "3"}
    larger = lease_of(replace(SETTINGS, conf=more))
    assert larger.state.id != lease.state.id
    assert larger.state.offer.covers(Offer(conf=tuple(more.items())))
    lease.release()
    assert _gone(lease)
    again = lease_of(replace(SETTINGS, conf={"spark.ematix.test": "1"}))
    assert again.state == larger.state
    again.release()
    larger.release()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.deep
def test_an_engine_that_nobody_uses_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    described = client._described
    monkeypatch.setattr(client, "_described", lambda *about: {**described(*about), "idle_seconds": 1})
    lease = lease_of(replace(SETTINGS, master="local[1, 3]"))
    assert lease.alive
    lease.release()
    assert _gone(lease)
    assert not list(lease.folder.glob(f"{lease.state.id}.*"))


@pytest.mark.deep
def test_a_frozen_engine_is_ended_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "JOIN_SECONDS", 3.0)
    lease = lease_of(SETTINGS)
    os.kill(lease.state.java_pid, signal.SIGSTOP)
    lease.release()
    session, later = join(SETTINGS)
    assert later.state.id != lease.state.id
    assert session.range(2).count() == 2
    session.stop()
    later.release()


@pytest.mark.deep
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED")
def test_an_engine_that_stands_still_as_a_whole_is_ended_by_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SILENT_SECONDS", 4.0)
    session, lease = join(SETTINGS)
    for pid in (lease.state.pid, lease.state.java_pid):
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Exception, match=r"(?i)unavailable|connect|socket|closed|reset"):
        session.range(2).count()
    assert not lease.alive
    drop(session)
    lease.release()


def test_an_engine_that_cannot_start_says_why_at_once() -> None:
    wrong = replace(SETTINGS, master="local[1, 5]", conf={"spark.driver.memory": "no size"})
    with pytest.raises((RunError, TransientError), match=r"did not start: .*no size"):
        lease_of(wrong)
    assert read_state(engine_folder(wrong, os.environ)) is None


def test_without_java_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(MissingExtraError, match="Java 17 or newer") as raised:
        lease_of(replace(SETTINGS, master="local[1, 6]"))
    assert "--engine local" in str(raised.value)
