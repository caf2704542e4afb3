"""Kills of commands that share a warm engine, and of the engine under them: every row is there once, and nobody else is disturbed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import duckdb
import psycopg
import pytest

from tests.services.engines import engines_in, surroundings
from tests.services.server import _processes

if TYPE_CHECKING:
    from ematix_flow.run.warm.state import EngineState

pytestmark = [
    pytest.mark.crash,
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.xdist_group("kills"),
    pytest.mark.timeout(1800),
]

SOURCE = Path(__file__).parent.parent.parent / "src"
SEED = int(os.environ.get("CRASH_SEED", "20260101"))
KILLS = 10
ROWS = 2000
POINTS = (
    "plan.after_bounds",
    "stage.collected",
    "commit.applied",
    "commit.commit_sent",
    "gc.before_drop",
    "result.before_print",
)

MODULE = """
import os
from typing import Annotated

from ematix_flow import BigInt, ematix, pk


@ematix.connection
class inbox:
    kind = "object_store_local"
    path = "in"
    format = "csv"


@ematix.connection
class target:
    {target}


@ematix.table(schema="sales", name="sold")
class Sold:
    id: Annotated[BigInt, pk()]
    batch: BigInt


@ematix.pipeline(target=Sold, target_connection="target", source_connection="inbox", mode="append")
def sell(conn):
    return "batch-" + os.environ["BATCH"] + ".csv"
"""


@dataclass
class Shop:
    """A project whose command is killed, batch after batch."""

    folder: Path
    engines: Path
    url: str = ""
    batch: int = 0
    random: Random = field(default_factory=lambda: Random(SEED))  # noqa: S311 - repeatable, not secret

    def create(self) -> Shop:
        """Write the project."""
        (self.folder / "in").mkdir(parents=True)
        target = (
            f'kind = "postgres"\n    url = "{self.url}"' if self.url else 'kind = "duckdb"\n    path = "sold.duckdb"'
        )
        (self.folder / "shop.py").write_text(MODULE.format(target=target))
        return self

    def command(self, failpoints: str = "") -> subprocess.Popen[bytes]:
        """Start the command for the batch that is due."""
        lines = ["id,batch", *(f"{self.batch * ROWS + i},{self.batch}" for i in range(ROWS))]
        (self.folder / "in" / f"batch-{self.batch}.csv").write_text("\n".join(lines) + "\n")
        environment = {
            **surroundings(self.engines),
            "PYTHONPATH": str(SOURCE),
            "HOME": str(self.folder),
            "BATCH": str(self.batch),
            "FLOW_FAILPOINTS": failpoints,
        }
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "ematix_flow", "run", "--module", "shop", "sell"],
                cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def finish(self) -> None:
        """Run the command, which finishes what was killed, and look at every row."""
        assert self.command().wait(300) == 0, (self.folder / "log").read_text()[-3000:]
        self.batch += 1
        assert self.stored_rows() == [(number, number // ROWS) for number in range(self.batch * ROWS)]

    def stored_rows(self) -> list[tuple[int, int]]:
        """Return the rows of the target."""
        query = "SELECT id, batch FROM sales.sold ORDER BY id"
        if self.url:
            with psycopg.connect(self.url) as connection:
                return [(row[0], row[1]) for row in connection.execute(query).fetchall()]
        with duckdb.connect(str(self.folder / "sold.duckdb"), read_only=True) as connection:
            return [(row[0], row[1]) for row in connection.execute(query).fetchall()]

    def engine(self) -> EngineState | None:
        """Return the engine that runs."""
        return next(iter(engines_in(self.engines)), None)


def _kill_engine(shop: Shop, process: subprocess.Popen[bytes]) -> None:
    """Kill Java, or a worker of it, some moment after the command began; the command may still do its work."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(shop.random.uniform(0.2, 2.5))
    state = shop.engine()
    if state is not None:
        workers = [pid for pid, parent, _ in _processes() if parent == state.java_pid]
        pid = shop.random.choice([state.java_pid, state.pid, *workers[:1]])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_anything(shop: Shop) -> None:
    """Kill the command at a failpoint or the engine at a random moment."""
    if shop.random.random() < 0.5:
        point = shop.random.choice(POINTS)
        assert shop.command(f"{point}=kill").wait(300) == -signal.SIGKILL
        return
    process = shop.command()
    _kill_engine(shop, process)
    if process.wait(300) == 0:
        # It had finished, or began again with another engine: the next command would be a new request.
        shop.batch += 1


@pytest.mark.parametrize("kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.service)])
def test_kills_lose_and_double_nothing(
    kind: str, tmp_path: Path, engines: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    shop = Shop(tmp_path / "shop", engines, url).create()
    for _ in range(KILLS):
        _kill_anything(shop)
        shop.finish()


def test_a_load_whose_engine_is_killed_is_staged_again_by_the_same_command(tmp_path: Path, engines: Path) -> None:
    shop = Shop(tmp_path / "shop", engines).create()
    shop.finish()
    reached = tmp_path / "reached"
    process = shop.command(f"ddl.after_expand=stop@file:{reached}")
    while not reached.exists():
        assert process.poll() is None
        time.sleep(0.05)
    state = shop.engine()
    assert state is not None
    os.kill(state.java_pid, signal.SIGKILL)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(300) == 0, (shop.folder / "log").read_text()[-3000:]
    shop.batch += 1
    shop.finish()
    later = shop.engine()
    assert later is not None
    assert later.id != state.id


def test_a_killed_command_disturbs_no_other_on_its_engine(tmp_path: Path, engines: Path) -> None:
    """Two projects with the same names of files and pipelines share an engine, and each gets its own rows."""
    one, two = (Shop(tmp_path / name, engines).create() for name in ("one", "two"))
    one.finish()
    state = one.engine()
    for _ in range(2):
        killed = one.command("stage.collected=kill")
        two.finish()
        assert killed.wait(300) == -signal.SIGKILL
        one.finish()
    assert one.engine() == state
    log = json.dumps((one.folder / "log").read_text())
    assert state is not None
    assert state.token not in log
