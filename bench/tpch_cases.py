"""What is measured of SQL: the 22 queries of TPC-H in one process, once to warm up and then again, on several engines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import places
import tpch
from cases import CONTENDERS, Case, Command, no_preparation

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases import Bench

ENGINES = ("ours", "spark", "sail", "duckdb")


def command(layout: str) -> Callable[[Bench, str, int], Command]:
    """Return what gives the command that runs all queries with an engine; `rows` is the scale factor in thousandths."""
    make = tpch.generate if layout == "parquet" else tpch.as_delta

    def run(bench: Bench, contender: str, number: int) -> Command:
        del number
        data = make(places.WORK, bench.rows / 1000)
        python = places.python_of("spark") if contender == "spark" else sys.executable
        figures = bench.home(contender) / "figures.json"
        words = [python, CONTENDERS / "tpch_queries.py", contender, data, figures, layout]
        env = bench.env(contender)
        env["PYTHONPATH"] = ":".join([env["PYTHONPATH"], str(places.HERE)])
        return Command([str(word) for word in words], env)

    return run


def figures(bench: Bench, contender: str) -> dict[str, float]:
    """Return the seconds of the first pass and of the warm one."""
    found: dict[str, float] = json.loads((bench.home(contender) / "figures.json").read_text())
    return found


TPCH_CASES = tuple(
    Case(name, f"TPC-H over {layout}, 22 queries", 1000, engines, no_preparation, command(layout), figures=figures)
    for name, layout, engines in (("tpch", "parquet", ENGINES), ("tpch-delta", "delta", ("ours", "spark")))
)
