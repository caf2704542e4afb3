"""What is measured of SQL: the 22 queries of TPC-H in one process, once to warm up and then again, on several engines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import places
import tpch
from cases import CONTENDERS, Case, Command, no_preparation

if TYPE_CHECKING:
    from cases import Bench

ENGINES = ("ours", "spark", "sail", "duckdb")


def command(bench: Bench, contender: str, number: int) -> Command:
    """Return the command that runs all queries with an engine; `rows` is the scale factor in thousandths."""
    del number
    data = tpch.generate(places.WORK, bench.rows / 1000)
    python = places.python_of("spark") if contender == "spark" else sys.executable
    words = [python, CONTENDERS / "tpch_queries.py", contender, data, bench.home(contender) / "figures.json"]
    env = bench.env(contender)
    env["PYTHONPATH"] = ":".join([env["PYTHONPATH"], str(places.HERE)])
    return Command([str(word) for word in words], env)


def figures(bench: Bench, contender: str) -> dict[str, float]:
    """Return the seconds of the first pass and of the warm one."""
    found: dict[str, float] = json.loads((bench.home(contender) / "figures.json").read_text())
    return found


TPCH_CASES = (Case("tpch", "TPC-H over Parquet, 22 queries", 1000, ENGINES, no_preparation, command, figures=figures),)
