"""Every command that needs Spark uses the warm engine: it could not start a Java of its own here."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.services.engines import engines_in, surroundings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SOURCE = Path(__file__).parents[3] / "src"
WAIT = 120
AN_HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)
NO_JAVA = {"SPARK_HOME": "/nowhere"}
"""What a Java of one's own is started from, and what the warm engine is not asked for."""

MODULE = """
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk


@ematix.connection
class texts:
    kind = "files"
    path = "texts"
    format = "csv"


@ematix.connection
class shop:
    kind = "sqlite"
    path = "shop.db"


@ematix.table(schema="main", name="totals")
class Totals:
    name: Annotated[Text, pk()]
    items: BigInt


@ematix.pipeline(
    target=Totals, source_connection="texts", target_connection="shop", mode="merge", schedule="* * * * *"
)
def count_items(files):
    return "SELECT name, count(*) AS items FROM items GROUP BY name"
"""


@pytest.fixture
def project(tmp_path: Path, engines: Path) -> Path:
    """Return a folder with a module and a file, while an engine runs."""
    (tmp_path / "flows.py").write_text(MODULE)
    (tmp_path / "texts" / "items").mkdir(parents=True)
    (tmp_path / "texts" / "items" / "a.csv").write_text("id,name\n1,tea\n2,salt\n3,tea\n")
    if not engines_in(engines):
        assert flow(tmp_path, engines, "engine", "start").returncode == 0
    return tmp_path


def flow(project: Path, engines: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {**surroundings(engines), "PYTHONPATH": str(SOURCE), "HOME": str(project), **extra}
    return subprocess.run(
        [sys.executable, "-m", "ematix_flow", *arguments],
        cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=WAIT,
    )  # fmt: skip


def engines_of_runs(project: Path, engines: Path) -> list[str]:
    """Return the engines that the run log names, of runs that have ended well."""
    listed = flow(project, engines, "runs", "list", "-m", "flows", "--format", "json")
    runs: list[dict[str, Any]] = json.loads(listed.stdout)["runs"]
    return [run["extras"].get("engine_id", "") for run in runs if run["status"] == "succeeded"]


@pytest.mark.deep
def test_without_the_warm_engine_nothing_would_run_here(project: Path, engines: Path) -> None:
    done = flow(project, engines, "run", "count_items", "-m", "flows", EMATIX_FLOW_SPARK_WARM="off", **NO_JAVA)
    assert done.returncode == 1
    assert "/nowhere" in done.stderr


ONCE = ("--max-iterations", "1", "--poll-interval", "0.1")
PAST = ("--from", f"{AN_HOUR_AGO:%Y-%m-%dT%H:00:00}Z", "--to", f"{AN_HOUR_AGO:%Y-%m-%dT%H:01:00}Z")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "count_items"),
        pytest.param(("run-due",), marks=pytest.mark.deep),
        pytest.param(("scheduler", *ONCE), marks=pytest.mark.deep),
        pytest.param(("scheduler", "--executor", "subprocess://", *ONCE), marks=pytest.mark.deep),
        pytest.param(("backfill", "count_items", *PAST), marks=pytest.mark.deep),
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_runs_name_the_warm_engine(arguments: tuple[str, ...], project: Path, engines: Path) -> None:
    done = flow(project, engines, *arguments, "-m", "flows", **NO_JAVA)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + WAIT
    while not (named := engines_of_runs(project, engines)):  # a scheduler does not wait for processes it has started
        assert time.monotonic() < deadline
    (state,) = engines_in(engines)
    assert named == [state.id]


@pytest.mark.deep
@pytest.mark.parametrize("arguments", [("plan", "--diff"), ("dry-run",)], ids=" ".join)
def test_commands_that_load_nothing_use_it_too(arguments: tuple[str, ...], project: Path, engines: Path) -> None:
    command, *options = arguments
    done = flow(project, engines, command, "count_items", "-m", "flows", *options, **NO_JAVA)
    assert done.returncode == 0, done.stderr
