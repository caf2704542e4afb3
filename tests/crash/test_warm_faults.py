"""Faults of a warm engine under a load: frozen, without memory, without disk, and a command that is interrupted beside it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.spark.connect_client import drop
from ematix_flow.run.warm import client
from ematix_flow.run.warm.client import join, lease_of
from ematix_flow.run.warm.state import FOLDER_VARIABLE
from tests.crash.harness import wait_until
from tests.crash.test_warm_kills import SOURCE, Shop
from tests.run.warm.test_commands import MODULE as QUERY
from tests.run.warm.test_commands import flow
from tests.services.engines import end_engines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ematix_flow.run.warm.client import EngineLease

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.xdist_group("kills"),
    pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED"),
]

SMALL = SparkSettings(shared=True, conf={"spark.driver.memory": "700m"})
DEADLINE = 120


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineLease]:
    """Return an engine with little memory that is noticed soon when it is frozen."""
    folder = tmp_path / "engines"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    monkeypatch.setattr(client, "FROZEN_SECONDS", 4.0)
    lease = lease_of(SMALL)
    yield lease
    lease.release()
    end_engines(folder)


def _stopped(shop: Shop, name: str) -> subprocess.Popen[bytes]:
    """Return a command that stands still in front of its staging."""
    reached = shop.folder / name
    process = shop.command(f"ddl.after_expand=stop@file:{reached}")
    wait_until(reached.exists, DEADLINE)
    return process


def _goes_on(shop: Shop, process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(DEADLINE) == 0, (shop.folder / "log").read_text()[-3000:]
    shop.batch += 1


@pytest.mark.deep
def test_a_load_outlives_an_engine_that_is_frozen(tmp_path: Path, engine: EngineLease) -> None:
    shop = Shop(tmp_path / "shop", tmp_path / "engines").create()
    process = _stopped(shop, "frozen")
    os.kill(engine.state.java_pid, signal.SIGSTOP)
    _goes_on(shop, process)
    assert engine.fate() == "Java did not answer"
    shop.finish()


@pytest.mark.deep
def test_a_load_outlives_an_engine_without_memory(tmp_path: Path, engine: EngineLease) -> None:
    shop = Shop(tmp_path / "shop", tmp_path / "engines").create()
    session, greedy = join(SMALL)
    assert greedy.state == engine.state
    process = _stopped(shop, "greedy")
    with pytest.raises(Exception, match=r"(?i)unavailable|connect|socket|closed|reset"):
        session.sql("SELECT length(repeat('x', 2000000000 + CAST(id AS INT))) FROM range(1)").collect()
    assert "out of memory" in greedy.fate()
    _goes_on(shop, process)
    drop(session)
    greedy.release()
    shop.finish()


ENDLESS = """
import os, sys, time
from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.warm.client import join

def endless(batches):
    open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
    os.rename(sys.argv[1] + ".part", sys.argv[1])
    time.sleep(3600)
    yield from batches

spark, lease = join(SparkSettings(shared=True))
spark.range(0, 1, 1, 1).mapInArrow(endless, "id long").collect()
"""


@pytest.mark.deep
def test_the_work_of_a_killed_command_does_not_go_on(tmp_path: Path, engine: EngineLease) -> None:
    file = tmp_path / "worker"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    client = subprocess.Popen([sys.executable, "-c", ENDLESS.replace("sys.argv[1]", repr(str(file)))], env=environment)
    wait_until(file.exists, DEADLINE)
    client.kill()
    client.wait()

    def slow(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        time.sleep(70)  # longer than an answer may take before its client has to ask again
        yield from batches

    session, other = join(SMALL)
    assert session.range(0, 1, 1, 1).mapInArrow(slow, "id long").collect() == [(0,)]
    wait_until(lambda: not Path(f"/proc/{file.read_text()}").exists(), DEADLINE)
    session.stop()
    other.release()
    assert engine.alive


@pytest.mark.deep
def test_an_interrupted_command_and_a_full_disk_leave_the_engine_to_others(tmp_path: Path, engine: EngineLease) -> None:
    shop = Shop(tmp_path / "shop", tmp_path / "engines").create()
    process = _stopped(shop, "interrupted")
    for number in (signal.SIGINT, signal.SIGCONT):
        os.killpg(process.pid, number)
    assert process.wait(DEADLINE) == 130
    shop.finish()

    project = tmp_path / "query"
    (project / "texts" / "items").mkdir(parents=True)
    (project / "flows.py").write_text(QUERY)
    for name in ("a", "b", "c"):  # rows of several tasks meet through files of Spark
        (project / "texts" / "items" / f"{name}.csv").write_text("id,name\n1,tea\n2,salt\n")
    command = (project, tmp_path / "engines", "run", "count_items", "-m", "flows")
    before = resource.prlimit(engine.state.java_pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    refused = flow(*command)
    assert refused.returncode == 1
    assert "there is no room left" in refused.stderr
    assert "TMPDIR" in refused.stderr
    resource.prlimit(engine.state.java_pid, resource.RLIMIT_FSIZE, before)
    assert '"rows_inserted": 2' in flow(*command).stdout
    assert shop.engine() == engine.state
