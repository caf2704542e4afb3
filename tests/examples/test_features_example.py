"""The example of features goes from files to a model whose coefficients are those that the data was made with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_model_of_the_example_is_exact_because_nothing_leaks(tmp_path: Path) -> None:
    example = ROOT / "examples" / "features"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{example}", "EMATIX_FLOW_ENGINE": "local"}
    environment["HOME"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, str(example / "train.py")], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    first, second = done.stdout.decode().splitlines()
    assert first == "model: visits 3.00, basket 0.50, price_level 10.00"
    assert second.startswith("customer 0 is expected to spend ")
    assert (tmp_path / "training.json").exists()
