"""Commands that only declare, plan or read history must not pay for what running needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ematix_flow.declare.project import PROJECT, load_module
from ematix_flow.serve.cli.common.spark import requires_spark

pytestmark = pytest.mark.slow

SRC = str(Path(__file__).parents[3] / "src")
HEAVY = {
    "pyspark",
    "pyarrow",
    "pandas",
    "sqlglot",
    "duckdb",
    "psycopg",
    "pymysql",
    "rich",
    "adbc_driver_postgresql",
} | {"apprise", "grpc", "opentelemetry", "prometheus_client", "requests", "fastapi", "starlette", "uvicorn", "jinja2"}

IMPORTING = """
from flows import Copies
from ematix_flow import ematix
from ematix_flow.transforms import filter_where

@ematix.connection
class raw:
    kind = "files"
    path = "raw"
    format = "csv"

@ematix.connection
class twin:
    kind = "sqlite"
    path = "./lite.db"

@ematix.connection
class other:
    kind = "sqlite"
    path = "other.db"

def declare(name, **options):
    ematix.pipeline(name=name, target=Copies, mode="append", target_connection="lite", **options)(lambda conn: "x.csv")

declare("from_files", source_connection="raw")
declare("from_filtered_files", source_connection="raw", transforms_pre=[filter_where("id > 1")])
declare("from_itself")
declare("from_its_twin", source_connection="twin")
declare("from_another", source_connection="other")
declare("from_nowhere_known", source_connection="lite")
declare("told_to", force_path="cross_db")
"""


def loaded_by(*arguments: str) -> set[str]:
    code = (
        "import sys; from ematix_flow.serve.cli.main import main; main(sys.argv[1:]); "
        "sys.stderr.write('\\nLOADED ' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": SRC},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stderr.rpartition("LOADED ")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("run", "--help"),
        ("list", "-m", "flows"),
        ("runs", "list"),
        ("connections", "list"),
        ("status", "-m", "flows"),
        ("next", "-m", "flows"),
        ("dag", "-m", "flows"),
        ("logs", "nothing"),
        ("web", "--help"),
    ],
)
def test_quick_commands_load_nothing_heavy(project: Path, arguments: tuple[str, ...]) -> None:
    assert not loaded_by(*arguments) & HEAVY


def test_planning_and_running_inside_one_database_loads_no_spark(project: Path) -> None:
    run = loaded_by("run", "copy", "-m", "flows")
    assert not run & {"pyspark", "apprise", "grpc", "opentelemetry", "prometheus_client"}
    assert "pyspark" not in loaded_by("preview", "copy", "-m", "flows")


def test_spark_starts_early_only_where_it_is_needed_for_certain(project: Path) -> None:
    (project / "needs.py").write_text(IMPORTING, encoding="utf-8")
    load_module("needs")

    def needed(*, moves_rows: bool) -> set[str]:
        return {name for name, pipeline in PROJECT.pipelines.items() if requires_spark(pipeline, moves_rows=moves_rows)}

    assert needed(moves_rows=False) == {"from_filtered_files"}
    assert needed(moves_rows=True) == {"from_files", "from_filtered_files", "from_another", "told_to"}
