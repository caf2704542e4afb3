from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ematix_flow.engine.spark.pack import pack_environment
from ematix_flow.errors import RunError
from tests.services.standalone import executor_python

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.slow
def test_a_packed_python_runs_elsewhere_with_its_packages_and_without_the_product(tmp_path: Path) -> None:
    python = executor_python(tmp_path / "small", only=("click", "py4j", "rich", "pygments", "markdown_it", "mdurl"))
    command = [str(python), "-m", "ematix_flow", "engine", "pack", "--output", "made/env.tar.gz"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    completed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    archive = tmp_path / "made" / "env.tar.gz"
    assert f'"spark.archives" = "{archive}#environment"' in completed.stdout
    assert '"spark.pyspark.python" = "./environment/bin/python"' in completed.stdout
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "elsewhere", filter="tar")
    program = "import click, sys, ssl, decimal, importlib.util as u; print(sys.prefix, u.find_spec('ematix_flow'), sys.version_info[:2])"
    moved = subprocess.run(
        ["elsewhere/bin/python", "-c", program], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert moved.stdout.strip() == f"{tmp_path / 'elsewhere'} None {sys.version_info[:2]}", moved.stderr


def test_a_name_that_spark_would_not_unpack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"end it with \.tar\.gz"):
        pack_environment(tmp_path / "environment.rar")
    assert not list(tmp_path.iterdir())
