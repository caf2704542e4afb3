"""Measures this product against others on this machine: `make bench`, or `python bench/run.py --case append --rows 200000`.

Contenders take turns, round by round. Every command is timed as a whole, its start included. Results are appended to
bench/results.jsonl and bench/RESULTS.md is written from it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH), str(BENCH.parent), str(BENCH.parent / "src")]

import cases  # noqa: E402
import environments  # noqa: E402
import measure  # noqa: E402 - found by the line above
import report  # noqa: E402
from cases import Bench  # noqa: E402
from change_cases import CHANGE_CASES  # noqa: E402
from feature_cases import FEATURE_CASES  # noqa: E402
from frame_cases import FRAME_CASES  # noqa: E402
from lake_cases import LAKE_CASES  # noqa: E402
from slot_cases import SLOT_CASES  # noqa: E402
from stream_cases import SOAK_RATE, STREAM_CASES  # noqa: E402
from tpch_cases import TPCH_CASES  # noqa: E402
from window_cases import WINDOW_CASES  # noqa: E402

from ematix_flow.run.spark.java_process import memory_bytes  # noqa: E402
from tests.services.engines import end_engines, engines_in  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases import Case

RESULTS = BENCH / "results.jsonl"
CASES = cases.CASES | {
    case.name: case
    for case in (
        *LAKE_CASES,
        *STREAM_CASES,
        *CHANGE_CASES,
        *WINDOW_CASES,
        *SLOT_CASES,
        *TPCH_CASES,
        *FRAME_CASES,
        *FEATURE_CASES,
    )
}


def main() -> int:
    """Run the cases that were asked for and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--case", action="append", choices=[*CASES, "none"], help="what to measure (all; `none` only writes the report)"
    )
    parser.add_argument("--rows", type=int, help="rows, instead of the case's own number")
    parser.add_argument("--rounds", type=int, help="rounds, instead of the case's own number")
    parser.add_argument("--minutes", type=float, help="how long the soak of a stream lasts, instead of 15")
    parser.add_argument("--only", action="append", help="contenders, instead of all")
    parser.add_argument(
        "--before", type=Path, help="a checkout of an earlier version with its own .venv, to take turns with this one"
    )
    parser.add_argument("--label", default="", help="a word that marks these results")
    parser.add_argument("--anew", action="store_true", help="forget earlier results of these cases")
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    if options.before:
        os.environ[environments.BEFORE] = str(options.before.resolve())
    names = [name for name in options.case or CASES if name != "none"]
    if options.anew and not options.dry:
        forget(names)
    if names:
        measure_all([CASES[name] for name in names], options)
    if not options.dry:
        (BENCH / "RESULTS.md").write_text(report.render(RESULTS))
    return 0


def forget(names: list[str]) -> None:
    """Remove the kept results of cases, because what they measured is not what there is now."""
    other_lines = [
        line for line in RESULTS.read_text().splitlines(keepends=True) if json.loads(line)["case"] not in names
    ]
    RESULTS.write_text("".join(other_lines))


def measure_all(cases: list[Case], options: argparse.Namespace) -> None:
    """Measure every case on one server."""
    server = environments.Server()
    server.start()
    try:
        for case in cases:
            measure_case(case, server, options)
    finally:
        server.close()
        end_all_engines()


def measure_case(case: Case, server: environments.Server, options: argparse.Namespace) -> None:
    """Measure one case: all contenders in every round, beginning with another one each time."""
    folder = environments.WORK / "homes" / case.name
    shutil.rmtree(folder, ignore_errors=True)
    bench = Bench(server, rows_of(case, options), folder, case.heap)
    if case.heap:
        end_engines(environments.ENGINES)
    entered = (*case.contenders, "before") if options.before else case.contenders
    contenders = [name for name in entered if not options.only or name in options.only]
    # Without its preparation a contender would be timed at another load than the others.
    contenders = [c for c in contenders if attempt(lambda c=c: case.prepare(bench, c), f"{case.name} {c} preparation")]
    for contender in ("ours", "before"):
        if contender in contenders:
            warm_up(bench, contender)
    if "ours" in contenders:
        check_heap(case)
    for number in range(options.rounds or case.rounds):
        turn = number % len(contenders)
        for contender in contenders[turn:] + contenders[:turn]:
            attempt(lambda c=contender, n=number: one(case, bench, c, n, options), f"{case.name} {contender}")
    for contender in {*entered, "ours"}:
        server.execute(f"DROP DATABASE IF EXISTS dst_{contender} WITH (FORCE)")
    shutil.rmtree(folder, ignore_errors=True)
    if case.heap:
        end_engines(environments.ENGINES)


def warm_up(bench: Bench, contender: str) -> None:
    """Start the warm engine, as commands before this one would have done."""
    measure.run([cases.python_of(contender), "-m", "ematix_flow", "engine", "start"], bench.env(contender))


def end_all_engines() -> None:
    """End the warm engines of this version and of an earlier one."""
    for folder in (environments.ENGINES, environments.ENGINES_BEFORE):
        end_engines(folder)


def check_heap(case: Case) -> None:
    """Refuse to measure a case whose engine has another heap than its title says."""
    heaps = [state.heap_bytes for state in engines_in(environments.ENGINES)]
    if case.heap and heaps != [memory_bytes(case.heap)]:
        raise measure.CommandError(f"{case.name}: the engine has a heap of {heaps} bytes, not of {case.heap}")


def engine_processes() -> list[int]:
    """Return the processes of warm engines, below which Java and its Python workers are."""
    return [state.pid for state in engines_in(environments.ENGINES)]


def rows_of(case: Case, options: argparse.Namespace) -> int:
    """Return how many rows a case has."""
    if case.name == "stream-soak" and options.minutes:
        return int(SOAK_RATE * 60 * options.minutes)
    return case.rows if options.rows is None else int(options.rows)


def attempt(work: Callable[[], None], name: str) -> bool:
    """Do something and say whether it worked; a failure is told and the others go on."""
    try:
        work()
    except measure.CommandError as error:
        print(f"{name} FAILED: {error}", file=sys.stderr)
        return False
    return True


def one(case: Case, bench: Bench, contender: str, number: int, options: argparse.Namespace) -> None:
    """Measure one contender once and keep the result."""
    command = case.command(bench, contender, number)
    watch = engine_processes if case.watch else None
    sample = measure.run(command.arguments, command.env, bench.notes(contender), watch=watch)
    figures = case.figures(bench, contender) if case.figures else {}
    record = {
        "case": case.name, "title": case.title, "rows": bench.rows, "contender": contender, "label": options.label,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **asdict(sample),
        "figures": figures,
    }  # fmt: skip
    memory = {"python": sample.python_mib, "java": sample.java_mib, "MiB": sample.total_mib} if case.watch else {}
    times = " ".join(f"{name}={at:.2f}" for name, at in (sample.moments | figures | memory).items())
    print(
        f"{case.name:<16} {contender:<7} {sample.seconds:7.2f} s  cpu {sample.cpu:6.2f}  load {sample.load:4.1f}  {times}",
        flush=True,
    )
    if not options.dry:
        with RESULTS.open("a") as out:
            out.write(json.dumps(record | {"machine": environments.machine()}) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
