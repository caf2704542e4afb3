"""The example of features goes from files to a model whose coefficients are those that the data was made with, on every database."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.depth import deep

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "features"
WRITTEN = """    kind = "duckdb"
    path = "shop.duckdb"
"""
"""The target of the example, as it is written there."""


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.service), deep("sqlite"), deep("mysql")])
def target(request: pytest.FixtureRequest) -> str:
    """Return the fields of a target in place of those of the example."""
    match request.param:
        case "duckdb":
            return WRITTEN
        case "sqlite":
            return '    kind = "sqlite"\n    path = "shop.db"\n'
        case kind:
            return f'    kind = "{kind}"\n    url = "{request.getfixturevalue(f"{kind}_url")}"\n'


@pytest.mark.slow
def test_the_model_of_the_example_is_exact_because_nothing_leaks(target: str, tmp_path: Path) -> None:
    written = (EXAMPLE / "pipelines.py").read_text(encoding="utf-8")
    assert WRITTEN in written
    (tmp_path / "pipelines.py").write_text(written.replace(WRITTEN, target), encoding="utf-8")
    shutil.copy(EXAMPLE / "train.py", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "EMATIX_FLOW_ENGINE": "local", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    first, second = done.stdout.decode().splitlines()
    assert first == "model: visits 3.00, basket 0.50, price_level 10.00"
    assert second.startswith("customer 0 is expected to spend ")
    assert (tmp_path / "training.json").exists()
