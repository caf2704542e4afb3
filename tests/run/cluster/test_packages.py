"""Executors whose Python is not that of the driver: what is missing is named, and a packed environment mends it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.services.standalone import executor_python

if TYPE_CHECKING:
    from tests.run.cluster.conftest import Project
    from tests.services.standalone import Standalone

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(600),
]

DRIVERS = ("psycopg", "adbc_driver")
LARGE = (
    "deltalake",
    "polars",
    "_polars",
    "mypy",
    "moto",
    "ruff",
    "opentelemetry",
    "6ec5",
    "azure",
    "google",
    "hypothesis",
)


def test_a_package_that_executors_lack_is_named_with_both_ways_out(cluster: Standalone, project: Project) -> None:
    bare = cluster.home / "bare"
    if not bare.exists():
        executor_python(bare, DRIVERS)
    done = project.drive(cluster.settings() | {"PYSPARK_PYTHON": str(bare / "bin/python")}, "database")["database"]
    assert done["error"] == "MissingExtraError"
    assert "a task needs the Python package" in done["text"]
    assert any(f"'{name}" in done["text"] for name in DRIVERS)
    assert "the image or environment of executors" in done["text"]
    assert "flow engine pack" in done["text"]
    assert project.rows("SELECT count(*) FROM orders") == [(0,)]


def test_a_packed_environment_gives_executors_what_they_lack(
    cluster: Standalone, project: Project, tmp_path: Path
) -> None:
    python = executor_python(tmp_path / "driver", LARGE)
    archive = tmp_path / "environment.tar.gz"
    settings = cluster.settings() | {"PYSPARK_PYTHON": "./environment/bin/python"}
    settings["EMATIX_FLOW_SPARK_CONF_spark__archives"] = f"{archive}#environment"
    packed = project.command(["-m", "ematix_flow", "engine", "pack", "--output", str(archive)], {}, python=str(python))
    assert packed.returncode == 0, packed.stderr
    done = project.drive(settings, "database")["database"]
    assert done.get("rows_inserted") == 1000, done


def test_another_version_of_python_is_told_as_one(cluster: Standalone, project: Project) -> None:
    other = _another_python()
    if other is None:
        pytest.skip("this machine has one version of Python")
    python = cluster.home / "other" / "bin" / "python"
    if not python.exists():
        executor_python(cluster.home / "other", only=("pyspark", "py4j"), base=other)
    done = project.drive(cluster.settings() | {"PYSPARK_PYTHON": str(python)}, "database")["database"]
    assert f"and this command runs {sys.version_info.major}.{sys.version_info.minor}" in done["text"]
    assert "spark.pyspark.python" in done["text"]


def _another_python() -> str | None:
    """Return a Python of another minor version that pyspark can run on."""
    own_minor = sys.version_info.minor
    named = [shutil.which(f"python3.{minor}") for minor in (12, 13, 11, 10) if minor != own_minor]
    pythons = sorted(Path(sys.base_prefix).parent.glob("3.1[0-3]*/bin/python3"))
    return next((str(p) for p in (*named, *pythons) if p and _minor(str(p)) not in (None, own_minor)), None)


def _minor(python: str) -> int | None:
    command = [python, "-c", "import sys; print(sys.version_info.minor)"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(completed.stdout) if completed.returncode == 0 else None
