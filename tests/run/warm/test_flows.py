"""Pipelines of every kind give on the warm engine what they give on a session of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.services.engines import engines_in, surroundings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SOURCE = Path(__file__).parents[3] / "src"

MODULE = """
from typing import Annotated

from ematix_flow import BigInt, Source, Text, ematix, pk
from ematix_flow.normalize import trim


@ematix.connection
class texts:
    kind = "files"
    path = "texts"
    format = "csv"


@ematix.connection
class parquets:
    kind = "files"
    path = "parquets"
    format = "parquet"


@ematix.connection
class lake:
    kind = "delta_local"
    path = "lake"


@ematix.connection
class shop:
    kind = "duckdb"
    path = "shop.duckdb"


@ematix.table(schema="s", name="totals")
class Totals:
    name: Annotated[Text, pk()]
    items: BigInt


@ematix.table(schema="s", name="items")
class Items:
    id: Annotated[BigInt, pk()]
    name: Annotated[Text, trim()]


@ematix.pipeline(target=Totals, source_connection="texts", target_connection="shop", mode="merge")
def by_query(files):
    return "SELECT name, count(*) AS items FROM items GROUP BY name"


@ematix.pipeline(
    target=Items, source_connection="parquets", target_connection="shop", mode="merge", column_map={"name": "upper(word)"}
)
def by_expression(files):
    return "items"


@ematix.pipeline(target=Items, source_connection="texts", target_connection="lake", mode="merge", on_bad_row="reject")
def into_lake(files):
    return "items"


@ematix.pipeline(target=Items, source_connection="lake", target_connection="shop", mode="truncate")
def from_lake(tables):
    return "SELECT id, name FROM s.items"


@ematix.pipeline(target=Items, target_connection="shop", mode="merge", incremental_column="id")
def by_join(conn):
    query = (
        "SELECT p.id, t.name || '/' || d.remark AS name FROM parquets.items p "
        "JOIN texts.items t ON t.id = CAST(p.id AS STRING) JOIN shop.remarks d ON d.id = p.id WHERE d.id > 1"
    )
    return Source.sql(query, connections={"parquets": parquets, "texts": "texts", "shop": "shop"})
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with a module and files of two kinds."""
    (tmp_path / "flows.py").write_text(MODULE)
    (tmp_path / "texts" / "items").mkdir(parents=True)
    (tmp_path / "texts" / "items" / "a.csv").write_text("id,name\n1, tea\n2,salt\n3,tea \nx,none\n")
    (tmp_path / "parquets" / "items").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2], "word": ["tea", "salt"]}), tmp_path / "parquets" / "items" / "a.parquet")
    return tmp_path


def run(project: Path, engines: Path, *names: str) -> list[dict[str, Any]]:
    """Return the results of pipelines, each run by a command of its own."""
    environment = {**surroundings(engines), "PYTHONPATH": str(SOURCE)}
    results = []
    for name in names:
        done = subprocess.run(
            [sys.executable, "-m", "ematix_flow", "run", name, "--module", "flows"],
            cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    return results


def rows(project: Path, table: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(project / "shop.duckdb"), read_only=True) as connection:
        return connection.execute(f"SELECT * EXCLUDE (_loaded_at, _batch_id) FROM s.{table} ORDER BY 1").fetchall()


def test_a_query_over_files(project: Path, engines: Path) -> None:
    (result,) = run(project, engines, "by_query")
    assert (result["engine"], result["rows_inserted"]) == ("spark", 4)
    assert rows(project, "totals") == [(" tea", 1), ("none", 1), ("salt", 1), ("tea ", 1)]


@pytest.mark.deep
def test_an_expression_of_the_user(project: Path, engines: Path) -> None:
    run(project, engines, "by_expression")
    assert rows(project, "items") == [(1, "TEA"), (2, "SALT")]


@pytest.mark.deep
def test_a_join_across_connections(project: Path, engines: Path) -> None:
    with duckdb.connect(str(project / "shop.duckdb")) as connection:
        connection.execute("CREATE TABLE remarks AS SELECT * FROM (VALUES (1, 'old'), (2, 'new')) AS t (id, remark)")
    first, again = run(project, engines, "by_join", "by_join")
    assert (first["engine"], first["rows_inserted"]) == ("spark", 1)
    assert (again["rows_inserted"], again["rows_unchanged"]) == (0, 0)
    assert rows(project, "items") == [(2, "salt/new")]


@pytest.mark.deep
def test_into_a_lake_and_back(project: Path, engines: Path) -> None:
    into, again, back = run(project, engines, "into_lake", "into_lake", "from_lake")
    assert (into["rows_inserted"], into["rows_rejected"]) == (3, 1)
    assert (again["rows_inserted"], again["rows_unchanged"]) == (0, 3)
    assert back["rows_inserted"] == 3
    assert rows(project, "items") == [(1, "tea"), (2, "salt"), (3, "tea")]
    assert any("delta" in package for state in engines_in(engines) for package in state.offer.packages)
