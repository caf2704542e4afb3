"""Between the command and the COMMIT of a load stand few calls of ours, so that its order can be followed."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import ematix_flow
from ematix_flow import failpoints
from ematix_flow.connect.delta import commit as delta_commit
from ematix_flow.serve.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.slow

MOST_FRAMES = 15
OURS = str(Path(ematix_flow.__file__).parent)
MODULE = """
from typing import Annotated
from ematix_flow import BigInt, Text, ematix, pk

{connections}

@ematix.table(schema="public")
class Things:
    id: Annotated[BigInt, pk()]
    name: Text

@ematix.pipeline(target=Things, source_connection="origin", target_connection="target", mode="append")
def things(conn):
    return {query!r}
"""


def frames() -> int:
    """Count the frames of ours below which this is called."""
    stack = traceback.extract_stack()
    return sum(frame.filename.startswith(OURS) and not frame.filename.endswith("failpoints.py") for frame in stack)


@pytest.fixture
def depths(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return how many frames of ours there are right before the commit of a database, or where Delta's next version is written."""
    counts: list[int] = []
    write_next = delta_commit._write_next

    def noted(*arguments: Any) -> None:
        counts[:] = [frames()]
        write_next(*arguments)

    monkeypatch.setattr(failpoints, "_act", lambda *_: counts.append(frames()) if not counts else None)
    monkeypatch.setattr(delta_commit, "_write_next", noted)
    failpoints.arm("commit.before_commit=raise")
    yield counts
    failpoints.arm("")


def run(name: str, query: str, **connections: dict[str, str]) -> None:
    declarations = "".join(f"@ematix.connection\nclass {key}:\n{fields(value)}\n" for key, value in connections.items())
    Path(f"{name}.py").write_text(MODULE.format(connections=declarations, query=query))
    assert main(["run", "things", "-m", name, "--no-run-log"]) == 0


def fields(connection: dict[str, str]) -> str:
    return "".join(f"    {name} = {value!r}\n" for name, value in connection.items())


def test_files_into_duckdb(depths: list[int]) -> None:
    Path("in").mkdir()
    Path("in/things.csv").write_text("id,name\n1,one\n")
    folder = {"kind": "object_store_local", "path": "in", "format": "csv"}
    run("into_duckdb", ".", origin=folder, target={"kind": "duckdb", "path": "t.duckdb"})
    assert 0 < depths[0] <= MOST_FRAMES


@pytest.mark.service
@pytest.mark.parametrize("kind", ["postgres", "delta_local"])
def test_postgres_into(kind: str, depths: list[int], postgres_server: PostgresServer, tmp_path: Path) -> None:
    url, other = postgres_server.create_database(), postgres_server.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE origin_things AS SELECT 1::bigint AS id, 'one' AS name")
    target = {"url": other} if kind == "postgres" else {"path": str(tmp_path / "lake")}
    query = "SELECT id, name FROM origin_things"
    run(f"into_{kind}", query, origin={"kind": "postgres", "url": url}, target={"kind": kind, **target})
    assert 0 < depths[0] <= MOST_FRAMES
    for address in (url, other):
        postgres_server.drop_database(address)
