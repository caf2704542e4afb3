"""The bench measures what the titles of its cases say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

LARGE = 200 << 20
HELD = f"held = bytes(range(256)) * {LARGE >> 8}; print(flush=True); input()"


def imported(text: str) -> str:
    """Run Python as programs of the bench do, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "bench", ROOT, ROOT / "src")))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_case_about_a_heap_sets_it_and_looks_at_memory() -> None:
    text = """
import cases, environments
for case in cases.CASES.values():
    if "heap" in case.title:
        bench = cases.Bench(environments.Server(), 1, environments.Path.cwd(), case.heap)
        print(case.title, case.watch, cases.flow(bench, "ours", "x").env["EMATIX_FLOW_SPARK_CONF_spark__driver__memory"])
"""
    assert imported(text).splitlines() == [
        "Parquet files into PostgreSQL, 1 GiB of Java heap True 1g",
        "PostgreSQL into DuckDB, 1 GiB of Java heap True 1g",
    ]


def test_the_memory_of_a_command_has_that_of_the_engine_which_works_for_it(tmp_path: Path) -> None:
    engine = subprocess.Popen(["bash", "-c", f'{sys.executable} -c "{HELD}"; true'], stdin=PIPE, stdout=PIPE)
    assert engine.stdout is not None
    engine.stdout.readline()
    text = f"""
import os, sys, measure
command, env = [sys.executable, "-c", "import time; time.sleep(1)"], {{**os.environ, "HOME": {str(tmp_path)!r}}}
for others in ([], [{engine.pid}]):
    print(measure.run(command, env, watch=lambda: others).total_mib)
"""
    alone, together = map(int, imported(text).split())
    engine.communicate(b"\n")
    assert 0 < alone < LARGE >> 20 <= together


@pytest.mark.deep
@pytest.mark.service
@pytest.mark.xdist_group("browser")
def test_every_page_of_the_web_bench_is_measured() -> None:
    command = [sys.executable, str(ROOT / "bench" / "web.py"), "--pipelines", "20", "--runs", "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "first page", "pipelines", "runs", "runs that failed", "one pipeline", "workflows",
    ]  # fmt: skip
