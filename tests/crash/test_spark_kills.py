"""Kills of real runs, forty where tests go deep: the driver, Java, a worker or all of them; the command is given again and every row is there once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.plan.sql.render import native_name
from tests.crash.harness import wait_until
from tests.depth import deep, quick_or_deep
from tests.services.server import _processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(1200)]

SOURCE = Path(__file__).parent.parent.parent / "src"
ROWS = 300
BATCHES = 12
SEED = int(os.environ.get("CRASH_SEED", "20260101"))

MODULE = """
import json, os
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection

given = json.loads(os.environ["CRASH_FLOW"])
for name in ("source", "target"):
    register_connection(connection_from_fields(name, given[name]))


@ematix.table(schema=given["schema"], name="sales")
class Sales:
    id: Annotated[BigInt, pk()]
    batch: BigInt
    note: Text


@ematix.pipeline(target=Sales, target_connection="target", source_connection="source", mode="append")
def sell(conn):
    return given["read"].format(os.environ["CRASH_BATCH"])
"""

FROM_FILES = "batch-{}.csv"
FROM_TABLE = "SELECT id, batch, note FROM sales WHERE batch = {}"


@dataclass
class Route:
    """Runs of one pipeline, batch after batch, by the command that people give."""

    folder: Path
    flow: dict[str, Any]
    batch: int = 0
    random: Random = field(default_factory=lambda: Random(SEED))  # noqa: S311 - repeatable, not secret

    def start(self, failpoints: str = "") -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "HOME": str(self.folder),
            "CRASH_FLOW": json.dumps(self.flow),
            "CRASH_BATCH": str(self.batch),
            "FLOW_FAILPOINTS": failpoints,
            # Named, so that rows between two databases pass through Spark as well.
            "EMATIX_FLOW_ENGINE": "spark",
            "EMATIX_FLOW_SPARK_MASTER": "local[2, 4]",
        }
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "ematix_flow", "run", "--module", "sold", "sell"],
                cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def finish(self) -> None:
        """Run the command, which finishes what was killed, and look at every row."""
        assert self.start().wait(300) == 0, (self.folder / "log").read_text()[-3000:]
        self.batch += 1
        self.check()

    def check(self) -> None:
        rows = [row for number in range(self.batch) for row in rows_of(number)]
        assert self.stored_rows() == rows

    def stored_rows(self) -> list[tuple[Any, ...]]:
        database = open_database(connection_from_fields("target", self.flow["target"]))
        table = database.table_name(self.flow["schema"], "sales")
        with closing(database.session()) as session:
            name = native_name(table, database.dialect)
            return [tuple(row) for row in session.query(f"SELECT id, batch, note FROM {name} ORDER BY id")]


def rows_of(batch: int) -> list[tuple[int, int, str]]:
    return [(batch * ROWS + i, batch, f"note {i % 7}") for i in range(ROWS)]


@pytest.fixture
def route(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], Route]:
    """Return the function that makes a route from files or PostgreSQL into a database."""

    def create(source: str, kind: str) -> Route:
        (tmp_path / "sold.py").write_text(MODULE)
        if kind in ("duckdb", "sqlite"):
            target = {"kind": kind, "path": str(tmp_path / "target.db")}
        else:
            target = {"kind": kind, "url": request.getfixturevalue(f"{kind}_url")}
        schema = target["url"].rsplit("/", 1)[1] if kind == "mysql" else "main" if kind == "sqlite" else "crash"
        if source == "files":
            origin, read = files(tmp_path / "in"), FROM_FILES
        else:
            origin, read = table(request.getfixturevalue("postgres_server")), FROM_TABLE
        return Route(tmp_path, {"source": origin, "target": target, "schema": schema, "read": read})

    return create


def files(folder: Path) -> dict[str, str]:
    folder.mkdir()
    for batch in range(BATCHES):
        lines = ["id,batch,note", *(f"{k},{b},{note}" for k, b, note in rows_of(batch))]
        (folder / f"batch-{batch}.csv").write_text("\n".join(lines) + "\n")
    return {"kind": "object_store_local", "path": str(folder), "format": "csv"}


def table(server: PostgresServer) -> dict[str, str]:
    url = server.create_database()
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE sales (id BIGINT PRIMARY KEY, batch BIGINT, note TEXT)")
        cursor.executemany("INSERT INTO sales VALUES (%s, %s, %s)", [row for b in range(BATCHES) for row in rows_of(b)])
    return {"kind": "postgres", "url": url}


ROUTES = [
    deep("files", "duckdb"),
    deep("files", "sqlite"),
    deep("files", "postgres"),
    deep("files", "mysql"),
    pytest.param("postgres", "postgres", marks=pytest.mark.service),
]


# Each command starts a Java of its own, so these need not wait for the session that other tests share.
@pytest.mark.xdist_group("kills")
@pytest.mark.parametrize(("source", "kind"), ROUTES)
def test_kills_of_a_route(route: Callable[[str, str], Route], source: str, kind: str) -> None:
    built = route(source, kind)
    for _ in range(quick_or_deep(1, 2)):
        for kill in quick_or_deep((java,), (the_driver, java, everything)):
            kill(built)
            built.finish()
        a_worker(built)
        built.check()


def the_driver(route: Route) -> None:
    """Kill the driver while it commits."""
    point = route.random.choice(["stage.collected", "commit.applied", "commit.commit_sent", "gc.before_drop"])
    assert route.start(f"{point}=kill").wait(300) == -signal.SIGKILL


def java(route: Route) -> None:
    """Kill Java while a task stages; the run fails or hangs on nothing."""
    reached = route.folder / f"java-{route.batch}"
    process = route.start(f"stage.before_task_commit=stop@file:{reached}")
    wait_until(reached.exists, 300)
    for pid in descendants(process.pid, "java"):
        os.kill(pid, signal.SIGKILL)
    assert process.wait(300) != 0


def a_worker(route: Route) -> None:
    """Kill a Python worker while it stages: Spark tries again, and the run succeeds."""
    reached = route.folder / f"worker-{route.batch}"
    assert route.start(f"stage.mid_rows=kill@file:{reached}").wait(300) == 0
    assert reached.exists()
    route.batch += 1


def everything(route: Route) -> None:
    """Kill every process of the run at a random moment after its first task began."""
    reached = route.folder / f"all-{route.batch}"
    process = route.start(f"stage.task_start=sleep:0@file:{reached}")
    wait_until(reached.exists, 300)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(route.random.uniform(0, 1.5))
    for pid in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if process.wait(300) == 0:
        # It had finished: the next command would be a new request.
        route.batch += 1


def descendants(pid: int, name: str = "") -> list[int]:
    """Return the processes below one, by the name of their program if one is given."""
    children = [child for child, parent, _ in _processes() if parent == pid]
    below = [process for child in children for process in [child, *descendants(child)]]
    return [process for process in below if name in _program(process)]


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
