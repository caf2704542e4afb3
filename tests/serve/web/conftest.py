"""A project with a history: real pipelines of SQLite tables, run by the command, and the page over their run log."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.declare.project import load_module
from ematix_flow.serve.cli.main import main
from ematix_flow.web import create_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOWS = """
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk


@ematix.connection
class lite:
    kind = "sqlite"
    path = "lite.db"


@ematix.table(schema="main", name="copies")
class Copies:
    id: Annotated[BigInt, pk()]
    name: Text


@ematix.table(schema="main", name="totals")
class Totals:
    many: BigInt


@ematix.pipeline(target=Copies, target_connection="lite", mode="merge", schedule="*/5 * * * *")
def copy(conn):
    return "SELECT 1 AS id, 'a' AS name UNION ALL SELECT 2, 'b'"


@ematix.pipeline(target=Totals, target_connection="lite", mode="truncate", depends_on=["copy"])
def count(conn):
    return "SELECT count(*) AS many FROM copies"


@ematix.pipeline(target=Copies, target_connection="lite", mode="append")
def broken(conn):
    return "SELECT id, name FROM nowhere"


@ematix.pipeline(target=Copies, target_connection="lite", mode="merge")
def never(conn):
    return "SELECT 3 AS id, 'c' AS name"


ematix.workflow(name="nightly", jobs=["never"], triggered_by=["count"])
"""

MOVING = """
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk


@ematix.connection
class shop:
    kind = "sqlite"
    path = "shop.db"


@ematix.connection
class lite:
    kind = "sqlite"
    path = "lite.db"


@ematix.table(schema="main", name="moved")
class Moved:
    id: Annotated[BigInt, pk()]
    name: Text


@ematix.pipeline(target=Moved, target_connection="lite", source_connection="shop", mode="merge")
def moved(conn):
    return "SELECT id, name FROM orders"
"""


@pytest.fixture
def project() -> Path:
    """Return a working folder with the module `flows`, which is loaded; it is forgotten afterwards."""
    Path("flows.py").write_text(FLOWS, encoding="utf-8")
    load_module("flows")
    return Path.cwd()


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., int]:
    """Return the command, called in this process, on the project."""

    def call(*arguments: str) -> int:
        code = main([*arguments, "-m", "flows"])
        capsys.readouterr()
        return code

    return call


@pytest.fixture
def history(run: Callable[..., int]) -> None:
    """Run three pipelines, one of which fails."""
    assert run("run", "copy") == 0
    assert run("run", "count") == 0
    assert run("run", "broken") == 1


@pytest.fixture
def page(project: Path) -> Iterator[Callable[..., TestClient]]:
    """Return a client of the page over the default run log, with options of the application."""
    clients: list[TestClient] = []

    def client(**options: Any) -> TestClient:
        app = create_app(**{"history": open_run_log(), **options})
        clients.append(TestClient(app, base_url="http://localhost", follow_redirects=False))
        clients[-1].__enter__()
        return clients[-1]

    yield client
    for one in clients:
        one.__exit__(None, None, None)


@pytest.fixture
def api(page: Callable[..., TestClient]) -> TestClient:
    """Return a client of a page without login."""
    return page()


@pytest.fixture
def moving(project: Path) -> None:
    """Write a source with rows, and a pipeline that moves them to another database."""
    Path("moving.py").write_text(MOVING, encoding="utf-8")
    with sqlite3.connect("shop.db") as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        connection.executemany("INSERT INTO orders VALUES (?, ?)", [(number, "a") for number in range(3000)])
    connection.close()
