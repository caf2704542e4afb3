"""What is measured of task slots: the same load on a Spark with one, two and four of them; nobody else takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import environments
from cases import Case, empty_target, flow, no_preparation

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases import Bench, Command

SLOTS = {"slots1": 1, "slots2": 2, "slots4": 4}


def load(prepare: Callable[[Bench], dict[str, object]], pipeline: str, module: str) -> Callable[..., Command]:
    """Return the command of a load into an empty target; Spark starts with it, so that each has slots of its own."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        empty_target(bench, "ours")
        (bench.home("ours") / "target.duckdb").unlink(missing_ok=True)
        env = prepare(bench)
        bench.server.execute("CHECKPOINT")
        master = f"local[{SLOTS[contender]}, 4]"
        return flow(
            bench, "ours", pipeline, module, EMATIX_FLOW_SPARK_MASTER=master, EMATIX_FLOW_SPARK_WARM="off", **env
        )

    return command


def one_file(bench: Bench) -> dict[str, object]:
    """Write the rows as one CSV file and return how the pipeline finds it."""
    return {"BENCH_FILES": environments.export(bench.server, bench.rows, "csv", files=1), "BENCH_FORMAT": "csv"}


def one_table(bench: Bench) -> dict[str, object]:
    """Fill the table that is read."""
    bench.source("events_a")
    return {"BENCH_TABLE": "raw.events_a"}


SLOT_CASES = (
    Case("slots-csv", "one CSV file into DuckDB", 5_000_000, tuple(SLOTS), no_preparation,
         load(one_file, "into_duckdb", "files")),
    Case("slots-postgres", "append, PostgreSQL to PostgreSQL", 5_000_000, tuple(SLOTS), no_preparation,
         load(one_table, "append", "flows")),
)  # fmt: skip
