"""Between the command and the COMMIT of a load stand few calls of ours, so that its order can be followed."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import ematix_flow
from ematix_flow import failpoints
from ematix_flow.serve.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.slow

MOST_FRAMES = 15
OURS = str(Path(ematix_flow.__file__).parent)
AT_COMMIT = ("commit.before_commit", "store.before_change")
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


@pytest.fixture
def depths(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Give how many frames of ours there are at each failpoint that a load passes right before its commit."""
    seen: dict[str, int] = {}

    def note(name: str, armed: object) -> None:
        del armed
        frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(OURS)]
        seen[name] = sum(not frame.filename.endswith("failpoints.py") for frame in frames)

    monkeypatch.setattr(failpoints, "_act", note)
    failpoints.arm(",".join(f"{name}=raise" for name in AT_COMMIT))
    yield seen
    failpoints.arm("")


def run(name: str, query: str, **connections: dict[str, str]) -> None:
    made = "".join(f"@ematix.connection\nclass {key}:\n{fields(value)}\n" for key, value in connections.items())
    Path(f"{name}.py").write_text(MODULE.format(connections=made, query=query))
    assert main(["run", "things", "-m", name, "--no-run-log"]) == 0


def fields(connection: dict[str, str]) -> str:
    return "".join(f"    {name} = {value!r}\n" for name, value in connection.items())


def test_files_into_duckdb(depths: dict[str, int]) -> None:
    Path("in").mkdir()
    Path("in/things.csv").write_text("id,name\n1,one\n")
    folder = {"kind": "object_store_local", "path": "in", "format": "csv"}
    run("into_duckdb", ".", origin=folder, target={"kind": "duckdb", "path": "t.duckdb"})
    assert 0 < depths["commit.before_commit"] <= MOST_FRAMES


@pytest.mark.service
@pytest.mark.parametrize(
    ("kind", "point"), [("postgres", "commit.before_commit"), ("delta_local", "store.before_change")]
)
def test_postgres_into(
    kind: str, point: str, depths: dict[str, int], postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url, other = postgres_server.create_database(), postgres_server.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE origin_things AS SELECT 1::bigint AS id, 'one' AS name")
    target = {"url": other} if kind == "postgres" else {"path": str(tmp_path / "lake")}
    query = "SELECT id, name FROM origin_things"
    run(f"into_{kind}", query, origin={"kind": "postgres", "url": url}, target={"kind": kind, **target})
    assert 0 < depths[point] <= MOST_FRAMES
    for made in (url, other):
        postgres_server.drop_database(made)
