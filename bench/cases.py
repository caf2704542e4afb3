"""What is measured: for each case its contenders, the state they start from and the command of each; nothing is timed here."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import environments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTENDERS = environments.BENCH / "contenders"
STAMPED = f"{environments.COLUMNS}, _loaded_at timestamptz not null, _batch_id uuid not null"
TIMED_POINTS = (
    "plan.after_bounds", "ddl.after_expand", "stage.task_start", "stage.collected", "commit.connected",
    "commit.verified", "commit.applied", "commit.after_commit", "runlog.after_success",
)  # fmt: skip


OURS: dict[str, dict[str, str]] = {
    "ours": {},
    "cold": {"EMATIX_FLOW_SPARK_WARM": "off"},
    "local": {"EMATIX_FLOW_ENGINE": "local"},
    "before": {},
    "database": {},
    "append": {},
}
"""This product as it comes, with a Spark that starts with the command, without Spark, in an earlier version, joining in a database,
and loading instead of following a log."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line with what it needs around it."""

    arguments: list[str | Path]
    env: dict[str, str]


@dataclass(slots=True)
class Bench:
    """What the cases share while the bench runs."""

    server: environments.Server
    rows: int
    folder: Path
    """A home for the commands, kept over the rounds."""
    heap: str = ""
    """The Java heap of this product, where it is not the one that it takes by itself."""
    known: set[str] = field(default_factory=set)

    def home(self, contender: str) -> Path:
        """Return the home folder of a contender."""
        home = self.folder / contender
        home.mkdir(parents=True, exist_ok=True)
        return home

    def env(self, contender: str, **more: object) -> dict[str, str]:
        """Return the environment of a contender: its own home and database."""
        source, target = self.server.url("src"), self.server.url(f"dst_{contender}")
        inherited = {
            key: os.environ[key] for key in ("PATH", "JAVA_HOME", "LANG", "XDG_CACHE_HOME") if key in os.environ
        }
        return {
            **inherited,
            "HOME": str(self.home(contender)),
            "PYTHONPATH": os.pathsep.join(str(one) for one in (CONTENDERS, *_source_tree(contender))),
            "BENCH_SRC_URL": source,
            "BENCH_DST_URL": target,
            "EMATIX_FLOW_DSN_SRC": source,
            "EMATIX_FLOW_DSN_DST": target,
            "BENCH_DUCKDB": str(self.home(contender) / "target.duckdb"),
            "BENCH_LAKE": str(self.home(contender) / "lake"),
            "NO_BANNER": "1",
            # The homes of contenders go after each case; the engine is ended by whoever measures.
            "EMATIX_FLOW_ENGINE_DIR": str(engines_of(contender)),
            **({"EMATIX_FLOW_SPARK_CONF_spark__driver__memory": self.heap} if self.heap else {}),
            **{key: str(value) for key, value in more.items()},
        }

    def notes(self, contender: str) -> Path | None:
        """Return the file in which our command notes its moments."""
        if contender.startswith("slots"):
            return self.home("ours") / "moments"
        return self.home(contender) / "moments" if contender in OURS and contender != "before" else None

    def source(self, table: str, changed: str = "false") -> None:
        """Make a source table, once."""
        if "src" not in self.known:
            self.server.recreate("src")
            self.known.add("src")
        if table not in self.known:
            self.server.fill("src", table, self.rows, changed)
            self.known.add(table)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the results."""

    name: str
    title: str
    rows: int
    contenders: tuple[str, ...]
    prepare: Callable[[Bench, str], None]
    """Bring a contender to the state before its first round."""
    command: Callable[[Bench, str, int], Command]
    """Bring it to the state before a round and give the command of that round."""
    rounds: int = 3
    watch: bool = False
    """Whether memory is looked at, that of the warm engine included."""
    heap: str = ""
    """The Java heap of this product, which then starts an engine of its own for the case."""
    figures: Callable[[Bench, str], dict[str, float]] | None = None
    """Returns what was measured beside the time of the command, after its end."""


def python_of(contender: str) -> str | Path:
    """Return the Python of this product, or of the checkout of an earlier version."""
    return environments.earlier() / ".venv/bin/python" if contender == "before" else sys.executable


def engines_of(contender: str) -> Path:
    """Return where the warm engine of a version is: two versions do not share one."""
    return environments.ENGINES_BEFORE if contender == "before" else environments.ENGINES


def _source_tree(contender: str) -> tuple[Path, ...]:
    root = environments.earlier() if contender == "before" else environments.ROOT
    return (root / "src",) if contender in OURS else ()


# Commands


def flow(bench: Bench, contender: str, pipeline: str, module: str = "flows", **env: object) -> Command:
    """Return `flow run` of ours or of 1.0.0."""
    more = dict(env) | OURS.get(contender, {})
    if contender in OURS:
        if (notes := bench.notes(contender)) is not None:  # an earlier version has other names for its moments
            more["FLOW_FAILPOINTS"] = ",".join(f"{name}=note:{notes}" for name in TIMED_POINTS)
        start: list[str | Path] = [python_of(contender), "-m", "ematix_flow"]
    else:
        start = [environments.python_of("ematix").with_name("flow")]
    return Command([*start, "run", pipeline, "--module", module], bench.env(contender, **more))


def script(bench: Bench, contender: str, name: str, *arguments: object, **env: object) -> Command:
    """Return a contender's script in its own environment."""
    python = environments.python_of(contender)
    return Command([python, CONTENDERS / name, *(str(a) for a in arguments)], bench.env(contender, **env))


def load(bench: Bench, contender: str, mode: str, table: str) -> Command:
    """Return the command that loads a table into a contender's database."""
    match contender:
        case "ours" | "cold" | "local" | "before" | "ematix":
            return flow(bench, contender, mode, BENCH_TABLE=f"raw.{table}")
        case "dlt":
            return script(bench, contender, "dlt_load.py", mode, f"raw.{table}", "postgres")
        case "spark":
            return script(bench, contender, "spark_jdbc.py", f"raw.{table}", bench.rows)
        case _:
            psql, url = environments.psql(), bench.server.url("src")
            pipe = (
                f"{psql} -X '{url}' -c 'COPY raw.{table} TO STDOUT (FORMAT binary)' | "
                f"{psql} -X '{bench.server.url(f'dst_{contender}')}' -c 'COPY bench.events FROM STDIN (FORMAT binary)'"
            )
            return Command(["bash", "-o", "pipefail", "-c", pipe], bench.env(contender))


# PostgreSQL -> PostgreSQL


def empty_target(bench: Bench, contender: str) -> None:
    """Make an empty database; scripts that create no table find one."""
    bench.server.recreate(f"dst_{contender}")
    if contender in ("spark", "copy"):
        bench.server.sql(
            f"dst_{contender}", "CREATE SCHEMA bench", f"CREATE TABLE bench.events ({environments.COLUMNS})"
        )


def append(bench: Bench, contender: str, number: int) -> Command:
    """Load everything into an empty table; dlt's own state goes with it."""
    del number
    bench.source("events_a")
    empty_target(bench, contender)
    bench.server.execute("CHECKPOINT")
    return load(bench, contender, "append", "events_a")


CHANGES = {"merge": ("events_b", "i % 2 = 0"), "scd2": ("events_c", "i % 10 = 0")}


def loaded_once(mode: str) -> Callable[[Bench, str], None]:
    """Return the preparation of a load of changes: the contender has loaded the rows before."""

    def prepare(bench: Bench, contender: str) -> None:
        import measure

        bench.source("events_a")
        bench.source(*CHANGES[mode])
        empty_target(bench, contender)
        first = load(bench, contender, mode, "events_a")
        measure.run(first.arguments, first.env)

    return prepare


def changes(mode: str) -> Callable[[Bench, str, int], Command]:
    """Return the command of a load of changes; rounds go to the changed rows and back."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        bench.server.sql(f"dst_{contender}", "VACUUM ANALYZE", "CHECKPOINT")
        return load(bench, contender, mode, "events_a" if number % 2 else CHANGES[mode][0])

    return command


# One database


def same_database(bench: Bench, contender: str) -> None:
    """Put the source beside the target."""
    bench.server.recreate(f"dst_{contender}")
    bench.server.fill(f"dst_{contender}", "events_a", bench.rows)
    bench.server.fill(f"dst_{contender}", "events_b", bench.rows, "i % 2 = 0")
    bench.server.sql(f"dst_{contender}", "CREATE SCHEMA bench", f"CREATE TABLE bench.events ({STAMPED})")


def same_append(bench: Bench, contender: str, number: int) -> Command:
    """Load everything by one statement."""
    del number
    bench.server.sql(f"dst_{contender}", "TRUNCATE bench.events", "CHECKPOINT")
    if contender == "ours":
        return flow(bench, "ours", "append", BENCH_SOURCE="dst")
    return by_hand(bench, contender, f"{insert('events_a')}")


def same_merge(bench: Bench, contender: str, number: int) -> Command:
    """Load changes by statements."""
    if number == 0:
        bench.server.sql(f"dst_{contender}", "TRUNCATE bench.events", insert("events_a"))
    bench.server.sql(f"dst_{contender}", "VACUUM ANALYZE", "CHECKPOINT")
    table = "events_a" if number % 2 else "events_b"
    if contender == "ours":
        return flow(bench, "ours", "merge", BENCH_SOURCE="dst", BENCH_TABLE=f"raw.{table}")
    names = [name for name in environments.NAMES.split(", ") if name != "id"]
    sets = ", ".join(f"{name} = excluded.{name}" for name in (*names, "_loaded_at", "_batch_id"))
    old, new = ", ".join(f"t.{name}" for name in names), ", ".join(f"excluded.{name}" for name in names)
    upsert = f"{insert(table)} ON CONFLICT (id) DO UPDATE SET {sets} WHERE ({old}) IS DISTINCT FROM ({new})"
    return by_hand(bench, contender, upsert)


def insert(table: str) -> str:
    """Return the statement that somebody would write by hand."""
    return (
        f"INSERT INTO bench.events AS t ({environments.NAMES}, _loaded_at, _batch_id) "
        f"SELECT {environments.NAMES}, now(), '00000000-0000-0000-0000-000000000000' FROM raw.{table}"
    )


def by_hand(bench: Bench, contender: str, statement: str) -> Command:
    """Return a psql command."""
    return Command(
        [environments.psql(), "-X", bench.server.url(f"dst_{contender}"), "-c", statement], bench.env(contender)
    )


# Files


def no_preparation(bench: Bench, contender: str) -> None:
    """Nothing is needed before the first round."""
    del bench, contender


def from_files(kind: str, target: str) -> Callable[[Bench, str, int], Command]:
    """Return the command that loads a folder of files."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        empty_target(bench, contender)
        (bench.home(contender) / "target.duckdb").unlink(missing_ok=True)
        shutil.rmtree(bench.home(contender) / "lake", ignore_errors=True)
        env = {"BENCH_FILES": environments.export(bench.server, bench.rows, kind), "BENCH_FORMAT": kind}
        if contender in OURS:
            return flow(bench, contender, f"into_{target}", "files", **env)
        name, arguments = (
            ("dlt_load.py", ("append", kind, target)) if contender == "dlt" else ("spark_files.py", (kind, target))
        )
        return script(bench, contender, name, *arguments, **env)

    return command


def postgres_into_duckdb(bench: Bench, contender: str, number: int) -> Command:
    """Return the command that loads a table into a DuckDB file."""
    del number
    bench.source("events_a")
    (bench.home(contender) / "target.duckdb").unlink(missing_ok=True)
    return flow(bench, contender, "postgres_into_duckdb", "files")


# Commands without rows


def only_flow(*arguments: str) -> Callable[[Bench, str, int], Command]:
    """Return a command of `flow` that loads nothing."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        built = flow(bench, contender, "append")
        built.env.pop("FLOW_FAILPOINTS", None)
        program = built.arguments[:3] if contender == "ours" else built.arguments[:1]
        return Command([*program, *arguments], built.env)

    return command


PAIR = ("ours", "ematix")
CASES = {
    case.name: case
    for case in (
        Case("append", "append", 2_000_000, ("ours", "local", "ematix", "spark", "dlt", "copy"), no_preparation, append),
        Case("append20", "append", 20_000_000, ("ours", "ematix", "copy"), no_preparation, append, rounds=1),
        Case("merge", "merge, half changed", 2_000_000, ("ours", "ematix", "dlt"), loaded_once("merge"), changes("merge")),
        Case("scd2", "scd2, a tenth changed", 2_000_000, ("ours", "ematix", "dlt"), loaded_once("scd2"), changes("scd2")),
        Case("same-append", "append, same database", 2_000_000, ("ours", "psql"), same_database, same_append),
        Case("same-merge", "merge, same database", 2_000_000, ("ours", "psql"), same_database, same_merge),
        *(
            Case(f"{kind}-{target}", f"{kind} files into {target}", 5_000_000, ("ours", "spark", "dlt"), no_preparation,
                 from_files(kind, target), rounds=1)
            for kind in ("csv", "parquet") for target in ("duckdb", "postgres")
        ),
        *(
            Case(f"{kind}-delta", f"{kind} files into delta", 5_000_000, ("ours", "spark", "dlt"), no_preparation,
                 from_files(kind, "delta"), rounds=1)
            for kind in ("csv", "parquet")
        ),
        Case("tiny", "ten rows of CSV into DuckDB", 10, ("ours", "local", "cold", "spark"), no_preparation,
             from_files("csv", "duckdb"), rounds=5),
        Case("help", "flow --help", 0, PAIR, no_preparation, only_flow("--help"), rounds=7),
        Case("list", "flow list", 0, PAIR, no_preparation, only_flow("list", "--module", "flows"), rounds=7),
        Case("memory-files", "Parquet files into PostgreSQL, 1 GiB of Java heap", 20_000_000, ("ours",), no_preparation,
             from_files("parquet", "postgres"), rounds=1, watch=True, heap="1g"),
        Case("memory-duckdb", "PostgreSQL into DuckDB, 1 GiB of Java heap", 20_000_000, ("ours",), no_preparation,
             postgres_into_duckdb, rounds=1, watch=True, heap="1g"),
    )
}  # fmt: skip
