"""Names and values that try to be more than names and values: they work as they are, or are refused in clear words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.decorators import ematix
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.errors import DeclareError, PlanError
from tests.engine.conftest import SYSTEMS, create_warehouse

if TYPE_CHECKING:
    from tests.engine.conftest import Warehouse

pytestmark = pytest.mark.slow

SRC = str(Path(__file__).parents[2] / "src")

NAMES = (
    'a";drop table t;--', "a`;drop table t;--", "a]];drop table t", "a');--", "select", "Mixed", "\u0430dmin", "two\nlines",
    "%s", "%(x)s", "$1", "{}", ":name", "?", "back\\slash", "a.b", "/*", "--", "é" * 31, " padded", "\t", "'", '"', "`",
)  # fmt: skip
REFUSED = ("", "nul\0", "x" * 64, "é" * 32)
VALUES = (
    "'", "''", '"', "\\", "\\'", "\\\\", "%", "%s", "%(x)s", "?", "??", "$1", "{}", ":x", "--", "/*", "';drop table t;--",
    "\n\r\t", "\\N", "\\.", "NULL", "", " ", "é", "😀", "\u202e", "\x01\x7f", "a\x1fb", "line\u2028end", "x" * 100_000,
)  # fmt: skip


@pytest.fixture(params=SYSTEMS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Return a warehouse on each system in turn."""
    return create_warehouse(request.param, request, tmp_path)


def pipeline_into(warehouse: Warehouse, table: Table, query: str, name: str, **options: Any) -> Any:
    """Return a pipeline inside one database."""

    @ematix.pipeline(name=name, target=table, target_connection="warehouse", **{"mode": "merge", **options})
    def load(conn: Any) -> str:
        return query

    return load.pipeline


def quoted(warehouse: Warehouse, *names: str) -> str:
    quote_char = "`" if warehouse.kind == "mysql" else '"'
    return ".".join(quote_char + name.replace(quote_char, quote_char * 2) + quote_char for name in names)


@pytest.mark.in_turn
@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_only_a_name(warehouse: Warehouse, name: str) -> None:
    schema = warehouse.target.partition(".")[0] if warehouse.kind == "mysql" else name
    column = name if name.lower() != "id" else "other"
    table = Table(schema, name, (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name=column)))
    query = f"SELECT id, name AS {quoted(warehouse, column)} FROM {warehouse.orders}"
    hostile = pipeline_into(warehouse, table, query, name)
    if warehouse.kind == "mysql" and name != name.strip():
        # MariaDB cuts blanks off the names of a query's columns.
        with pytest.raises(PlanError, match="lacks"):
            run_pipeline(hostile, Options())
        return
    first = run_pipeline(hostile, Options())
    assert (first["path"], first["rows_inserted"]) == ("same_db", 2)
    stored = quoted(warehouse, f"{name}_{name}") if warehouse.kind == "sqlite" else quoted(warehouse, schema, name)
    assert warehouse.rows(f"SELECT id, {quoted(warehouse, column)} FROM {stored} ORDER BY id") == [(1, "a"), (2, "b")]
    assert warehouse.rows(f"SELECT COUNT(*) FROM {warehouse.orders}") == [(2,)]


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_no_database_keeps_is_refused_when_it_is_declared(name: str) -> None:
    for parts in ((name, "t", "c"), ("s", name, "c")):
        with pytest.raises(DeclareError, match="name"):
            Table(parts[0], parts[1], (Column(BigInt(), primary_key=True, name=parts[2]),))
    with pytest.raises(DeclareError, match="name"):
        Table("s", "t", (Column(BigInt(), primary_key=True, name=name or "\0"),))


def test_hostile_values_arrive_as_they_are(warehouse: Warehouse) -> None:
    warehouse.run(f"DELETE FROM {warehouse.orders}")
    wide = "LONGTEXT" if warehouse.kind == "mysql" else "TEXT"
    source = warehouse.orders + "_values"
    warehouse.run(f"CREATE TABLE {source} (id BIGINT, name {wide})")
    session = warehouse.database.session()
    for number, value in enumerate(VALUES):
        session.execute(f"INSERT INTO {source} VALUES (?, ?)", (number, value))
    session.close()
    schema = warehouse.target.partition(".")[0] if warehouse.kind == "mysql" else "mart"
    table = Table(schema, "loaded", (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="name")))
    done = run_pipeline(pipeline_into(warehouse, table, f"SELECT id, name FROM {source}", "values"), Options())
    again = run_pipeline(pipeline_into(warehouse, table, f"SELECT id, name FROM {source}", "again"), Options())
    assert (done["rows_inserted"], again["rows_unchanged"]) == (len(VALUES), len(VALUES))
    stored = "mart_loaded" if warehouse.kind == "sqlite" else f"{schema}.loaded"
    assert [name for _, name in warehouse.rows(f"SELECT id, name FROM {stored} ORDER BY id")] == list(VALUES)


def test_marks_of_parameters_in_the_users_sql_are_text(warehouse: Warehouse) -> None:
    text = 'why? %s %% $1 {} :x "q" -- no comment'
    query = f"SELECT id, '{text}' AS name FROM {warehouse.orders} /* what? %s */ WHERE name <> '?'"
    schema = warehouse.target.partition(".")[0] if warehouse.kind == "mysql" else "mart"
    table = Table(schema, "loaded", (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="name")))
    requesting = pipeline_into(warehouse, table, query, "asks", incremental_column="id")
    for _ in range(2):
        run_pipeline(requesting, Options())
    stored = "mart_loaded" if warehouse.kind == "sqlite" else f"{schema}.loaded"
    assert warehouse.rows(f"SELECT id, name FROM {stored} ORDER BY id") == [(1, text), (2, text)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_text_of_64_mib_passes(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    warehouse = create_warehouse(kind, request, tmp_path)
    size = 64 << 20
    big = f"replace(hex(zeroblob({size // 2})), '0', 'x')" if kind == "sqlite" else f"repeat('x', {size})"
    table = Table("mart", "loaded", (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="name")))
    run_pipeline(pipeline_into(warehouse, table, f"SELECT 1 AS id, {big} AS name", "big"), Options())
    stored = "mart_loaded" if kind == "sqlite" else "mart.loaded"
    assert warehouse.rows(f"SELECT length(name) FROM {stored}") == [(size,)]


def test_a_module_beside_the_project_does_not_stand_in_for_the_standard_library() -> None:
    for name in ("json", "logging", "tomllib", "sqlite3", "click"):
        Path(f"{name}.py").write_text("open('taken', 'w').close()\nraise SystemExit(99)\n", encoding="utf-8")
    Path("flows.py").write_text("from ematix_flow import ematix\n", encoding="utf-8")
    command = "import sys; from ematix_flow.serve.cli.main import main; sys.exit(main(['list', '-m', 'flows', '--format', 'json']))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", command], env={**os.environ, "PYTHONPATH": SRC}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (done.returncode, Path("taken").exists()) == (0, False), done.stderr
