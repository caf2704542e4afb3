"""The load path uses only what Spark Connect has too: the same loads run over a classic and over a Connect session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.services.sail import sail_server

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("setting", [("MASTER", "local[2, 4]"), ("REMOTE", "local[2]")], ids=["classic", "connect"])
def test_loads_are_the_same_over_both_kinds_of_session(setting: tuple[str, str], tmp_path: Path) -> None:
    loads_are_as_everywhere(setting, tmp_path, slots=2)


@pytest.mark.slow
def test_loads_are_the_same_on_sail(tmp_path: Path) -> None:
    with sail_server() as address:
        loads_are_as_everywhere(("REMOTE", address), tmp_path, slots=1)


def loads_are_as_everywhere(setting: tuple[str, str], tmp_path: Path, *, slots: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), f"EMATIX_FLOW_SPARK_{setting[0]}": setting[1]}
    environment |= {"EMATIX_FLOW_ENGINE": "spark", "EMATIX_FLOW_SPARK_SHARED_PATHS": str(tmp_path)}
    script = str(Path(__file__).with_name("connect_flows.py"))
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert results.pop("slots") == {"slots": slots}
    assert {result["engine"] for result in results.values()} == {"spark"}
    counts = {name: (result["rows_inserted"], result["rows_rejected"]) for name, result in results.items()}
    assert counts == {"orders": (2, 1), "cities": (2, 0), "frames": (5, 0), "prices": (2, 0)}
    with duckdb.connect(str(tmp_path / "warehouse.duckdb")) as target:
        assert target.execute("SELECT customer, amount FROM shop.orders ORDER BY order_id").fetchall() == [
            ("ada", pytest.approx(1.5)), ("eve", pytest.approx(3))
        ]  # fmt: skip
        versions = target.execute(
            "SELECT CAST(price AS INT), is_current FROM shop.prices ORDER BY valid_from"
        ).fetchall()
        assert versions == [(1, False), (2, True)]
