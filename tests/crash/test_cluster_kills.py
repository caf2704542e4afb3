"""Kills on a cluster while rows are staged: executors, a machine, the master; every row arrives once and nothing hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pytest

from tests.crash.harness import wait_until
from tests.services.standalone import Standalone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.services.postgres import PostgresServer

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(1200),
]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "run" / "cluster" / "project" / "batches.py"
SEED = int(os.environ.get("CRASH_SEED", "20260101"))
KILLS = 10
STAYS = 1.0
"""Seconds for which every task stays in the middle of its rows, so that a kill finds it there."""


@dataclass
class Seller:
    """A driver that loads batch after batch on a cluster, and what its tasks have noted."""

    cluster: Standalone
    source: str
    target: str
    folder: Path
    process: subprocess.Popen[str]
    notes: Path
    batches: list[int] = field(default_factory=list)

    def begin(self, batch: int) -> None:
        """Let a load begin and come back when its tasks are at their rows."""
        before = self._noted()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{batch}\n")
        self.process.stdin.flush()
        wait_until(lambda: self._noted() > before, 120)

    def ended(self) -> dict[str, Any]:
        """Return what became of the load."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]

    def check(self, batches: list[int]) -> None:
        """Compare every row of the target with the batches that were loaded."""
        expected = [(n, f"note {n}") for batch in batches for n in range(batch * 100, batch * 100 + 100)]
        with psycopg.connect(self.target) as opened:
            assert opened.execute("SELECT id, note FROM sold ORDER BY id").fetchall() == expected

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self.process.communicate(timeout=60)

    def _noted(self) -> int:
        return len(self.notes.read_text().splitlines()) if self.notes.exists() else 0


@pytest.fixture(scope="module")
def frail_cluster() -> Iterator[Standalone]:
    """Return a cluster that may be damaged."""
    cluster = Standalone()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def seller(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Callable[..., Seller]]:
    """Return the function that starts a driver on a cluster."""
    sellers_created: list[Seller] = []
    source, target = postgres_server.create_database(), postgres_server.create_database()
    with psycopg.connect(source) as filled:
        filled.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        filled.execute("INSERT INTO orders SELECT n, 'note ' || n FROM generate_series(0, 1999) n")

    def start(cluster: Standalone, **variables: str) -> Seller:
        cluster.start()
        notes = cluster.home / f"notes-{len(sellers_created)}-{tmp_path.name}"
        points = f"stage.task_start=note:{notes},stage.mid_rows=sleep:{STAYS},stage.after_task_commit=sleep:{STAYS}"
        points += f",carry.before_send=kill@file:{cluster.home / f'killed-{len(sellers_created)}-{tmp_path.name}'}"
        connections = {name: {"kind": "postgres", "url": url} for name, url in (("source", source), ("target", target))}
        connections["duck"] = {"kind": "duckdb", "path": str(tmp_path / "shop.duckdb")}
        environment = {**os.environ, **cluster.settings(), "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path),
                       "SHOP_CONNECTIONS": json.dumps(connections), **variables,
                       "EMATIX_FLOW_SPARK_CONF_spark__executorEnv__FLOW_FAILPOINTS": points}  # fmt: skip
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT)], cwd=tmp_path, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        sellers_created.append(Seller(cluster, source, target, tmp_path, process, notes))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return sellers_created[-1]

    yield start
    for one in sellers_created:
        one.close()
    for url in (source, target):
        postgres_server.drop_database(url)


@pytest.mark.deep
def test_executors_that_are_killed_while_they_stage_lose_and_double_nothing(
    cluster: Standalone, seller: Callable[..., Seller]
) -> None:
    shop, random = seller(cluster), Random(SEED)  # noqa: S311 - repeatable, not secret
    for batch in range(KILLS):
        shop.begin(batch)
        time.sleep(random.random() * STAYS)
        living = [pid for worker in shop.cluster.workers for pid in worker.executors()]
        for pid in random.sample(living, random.randint(1, len(living))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert shop.ended().get("rows_inserted") == 100
        shop.check(list(range(batch + 1)))


@pytest.mark.deep
def test_a_machine_a_master_and_a_whole_cluster_may_go_away_and_come_back(
    frail_cluster: Standalone, seller: Callable[..., Seller]
) -> None:
    # A master that is started again does not know the application, whose executors then end: it has to begin anew.
    shop = seller(frail_cluster, EMATIX_FLOW_SPARK_EXECUTOR_WAIT_SECONDS="20")
    cluster = frail_cluster
    away: list[list[Any]] = [[cluster.workers[0]], list(cluster.workers), [cluster.master]]
    for batch, servers in enumerate(away):
        shop.begin(batch)
        for server in servers:
            server.crash()
        cluster.start()
        assert shop.ended().get("rows_inserted") == 100
        shop.check(list(range(batch + 1)))
    again = seller(cluster)
    again.begin(3)
    assert again.ended().get("rows_inserted") == 100
    again.check([0, 1, 2, 3])


@pytest.mark.deep
def test_a_cluster_that_stays_away_ends_the_load(frail_cluster: Standalone, seller: Callable[..., Seller]) -> None:
    shop = seller(frail_cluster, EMATIX_FLOW_SPARK_EXECUTOR_WAIT_SECONDS="20")
    shop.begin(0)
    for worker in shop.cluster.workers:
        worker.crash()
    report = shop.ended()
    assert report["error"] == "EngineLostError"
    assert f"{shop.cluster.url} has had no executor for 20 seconds" in report["text"]
    shop.cluster.start()
    shop.begin(0)
    assert shop.ended().get("rows_inserted") == 100
    shop.check([0])


@pytest.mark.deep
def test_a_load_without_executors_ends_at_its_deadline(
    frail_cluster: Standalone, seller: Callable[..., Seller]
) -> None:
    shop = seller(frail_cluster, SHOP_TIMEOUT="60s")
    shop.begin(0)
    for worker in shop.cluster.workers:
        worker.crash()
    begun = time.monotonic()
    assert shop.ended()["error"] == "RunTimeoutError"
    assert time.monotonic() - begun < 120


@pytest.mark.deep
def test_drivers_and_tasks_that_are_killed_while_rows_are_carried_lose_and_double_nothing(
    frail_cluster: Standalone, seller: Callable[..., Seller], tmp_path: Path
) -> None:
    killed = seller(frail_cluster, SHOP_TARGET="duck", FLOW_FAILPOINTS="carry.received=kill")
    killed.begin(0)
    assert killed.process.wait(120) == -signal.SIGKILL
    shop = seller(frail_cluster, SHOP_TARGET="duck")
    shop.begin(0)
    assert shop.ended().get("rows_inserted") == 100
    with duckdb.connect(str(tmp_path / "shop.duckdb"), read_only=True) as target:
        rows = target.execute("SELECT id, note FROM public.sold ORDER BY id").fetchall()
    assert rows == [(n, f"note {n}") for n in range(100)]
