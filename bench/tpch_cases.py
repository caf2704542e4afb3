"""What is measured of SQL: the 22 queries of TPC-H in one process, once to warm up and then again, on several engines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import environments
import tpch
from cases import CONTENDERS, Case, Command, no_preparation

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases import Bench

ENGINES = ("ours", "spark", "sail", "duckdb")


def command(layout: str) -> Callable[[Bench, str, int], Command]:
    """Return what gives the command that runs all queries with an engine; `rows` is the scale factor in thousandths."""
    generate = tpch.generate if layout == "parquet" else tpch.as_delta

    def run(bench: Bench, contender: str, number: int) -> Command:
        del number
        data = generate(environments.WORK, bench.rows / 1000)
        python = environments.python_of("spark") if contender == "spark" else sys.executable
        figures = bench.home(contender) / "figures.json"
        arguments = [python, CONTENDERS / "tpch_queries.py", contender, data, figures, layout]
        env = bench.env(contender)
        env["PYTHONPATH"] = ":".join([env["PYTHONPATH"], str(environments.BENCH)])
        return Command([str(argument) for argument in arguments], env)

    return run


def figures(bench: Bench, contender: str) -> dict[str, float]:
    """Return the seconds of the first pass and of the warm one."""
    measured: dict[str, float] = json.loads((bench.home(contender) / "figures.json").read_text())
    return measured


TPCH_CASES = tuple(
    Case(name, f"TPC-H over {layout}, 22 queries", 1000, engines, no_preparation, command(layout), figures=figures)
    for name, layout, engines in (("tpch", "parquet", ENGINES), ("tpch-delta", "delta", ("ours", "spark")))
)
