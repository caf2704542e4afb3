"""The loads of the crash tests: numbered batches from an SQLite file into one table per mode, and what they must give.

The expectation is a plain model in Python, so that it shares no code with what it judges.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import Clock
from ematix_flow.commit.ledger import parse_instant
from ematix_flow.connect.lake.table import LakeTable
from ematix_flow.connect.registry import open_target
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import engine_on
from ematix_flow.failpoints import NAMES
from ematix_flow.plan.sql.ddl import create_table_sql, table_definition
from ematix_flow.plan.sql.render import native_name
from ematix_flow.run_log import SqliteRunLog
from tests.crash.folders import FOLDER, FOLDER_POINTS, in_files
from tests.crash.lakes import LAKE_KINDS, LAKE_POINTS, reader, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ematix_flow.connect.base.database import Database

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = 7
BIG = 599
"""A load whose values are long."""
ROWS = 5
"""Good rows of each load; one more has no value and is rejected."""

MODES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append", "incremental_column": "seq", "on_drift": "warn"},
    "truncate": {"mode": "truncate"},
    "merge": {"mode": "merge", "incremental_column": "seq"},
    "scd2_load": {"mode": "scd2", "compare_columns": ["value"]},
    "scd2_event": {"mode": "scd2", "compare_columns": ["value"], "event_timestamp_column": "seen_at"},
}

Row = tuple[int, int, str, datetime]
"""id, seq, value, at."""


@dataclass(frozen=True)
class CrashTarget:
    """A target database, with the source file and the run log beside it, as plain text that a child can be sent."""

    kind: str
    fields: dict[str, str]
    source: str
    run_log: str
    schema: str
    remote: str = ""
    """The Spark server that changes the rows of a lake table."""

    @property
    def database(self) -> Database:
        return self.opened("")

    def opened(self, table: str) -> Database:
        """Open the target of a table; a lake table has books of its own."""
        connection = connection_from_fields("target", {"kind": self.kind, **self.fields})
        database = open_target(connection, (self.schema, table))
        if isinstance(database, LakeTable):
            database.use(lambda: engine_on(lambda: reader(self.remote)))
        return database

    @property
    def is_folder(self) -> bool:
        return self.kind == FOLDER

    @property
    def is_lake(self) -> bool:
        return self.kind in LAKE_KINDS

    @property
    def has_posts(self) -> bool:
        """Return whether post steps can run here."""
        return not self.is_folder and not self.is_lake

    @property
    def points(self) -> tuple[str, ...]:
        """Return the failpoints that a load here passes."""
        return FOLDER_POINTS if self.is_folder else LAKE_POINTS if self.is_lake else NAMES

    def modes(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of some modes that there are here."""
        return tuple(name for name in names if not self.is_folder or name in ("append", "truncate"))


@dataclass(frozen=True)
class Load:
    """One numbered load of one mode into a table that is named after it."""

    mode: str
    number: int
    table: str
    slot: str | None = None
    """None asks for the load as a person would, who then resumes what was interrupted."""
    options: dict[str, Any] = field(default_factory=dict)
    pipeline: str = ""
    """Named like the table unless two pipelines share it."""


def create_source(path: Path, loads: int) -> None:
    """Write the batches of all loads into an SQLite file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE events (load INTEGER, id INTEGER, seq INTEGER, value TEXT, seen_at TIMESTAMPTZ)"
        )
        rows: list[tuple[Any, ...]] = []
        for number in range(loads):
            rows += [(number, *row[:3], row[3].isoformat(" ")) for row in rows_of(number)]
            rows.append((number, 99, number * 10 + 9, None, EPOCH.isoformat(" ")))
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("CREATE INDEX events_load ON events (load)")


def rows_of(number: int) -> list[Row]:
    """Return the good rows of a load; event times of neighbouring loads are out of order, values repeat."""
    late = number ^ 1
    return [
        (
            (number * 2 + i) % KEYS,
            number * 10 + i + 1,
            f"v{(number + i * i) % 3}" if number != BIG else _long(i),
            EPOCH + timedelta(seconds=late * 10 + i),
        )
        for i in range(ROWS)
    ]


def _long(seed: int) -> str:
    """Return half a megabyte that does not compress well."""
    return Random(seed).randbytes(1 << 18).hex()  # noqa: S311 - the same in every process


def instant_of(number: int) -> datetime:
    """Return the instant at which a load runs."""
    return EPOCH + timedelta(days=1, hours=number)


def pipeline_of(crash_target: CrashTarget, load: Load) -> Pipeline:
    """Declare the pipeline of a load; the same name for every number of one table."""
    target = connection_from_fields("target", {"kind": crash_target.kind, **crash_target.fields})
    source = connection_from_fields("events", {"kind": "sqlite", "path": crash_target.source})
    chosen = write(**{"on_bad_row": "reject", **MODES[load.mode], **load.options})
    listed = ", ".join(column.name for column in table_of(crash_target, load).columns)
    query = f"SELECT {listed} FROM events WHERE load = {load.number}"
    return Pipeline(
        name=load.pipeline or load.table,
        function=lambda: query,
        targets=(TargetDeclaration(table_of(crash_target, load), chosen, target),),
        source_connection=source,
        transforms_post=(f"INSERT INTO crash_posts VALUES ('{load.table}', {load.number})",)
        if crash_target.has_posts
        else (),
    )


def table_of(target: CrashTarget, load: Load) -> Table:
    """Declare the table of a load."""
    keyed = MODES[load.mode]["mode"] in ("merge", "scd2")
    columns = (
        Column(BigInt(), nullable=False, primary_key=keyed, name="id"),
        Column(BigInt(), nullable=False, primary_key=not keyed, name="seq"),
        Column(Text(), nullable=False, name="value"),
    )
    if load.mode == "scd2_event":
        columns = (*columns, Column(TimestampTZ(), nullable=False, name="seen_at"))
    return Table(target.schema, load.table, columns)


def run(target: CrashTarget, load: Load) -> dict[str, Any]:
    """Run one load through the engine and return its result."""
    from ematix_flow.engine.batch.run import run_pipeline

    return run_pipeline(pipeline_of(target, load), options_of(target, load))  # type: ignore[no-any-return]


def options_of(target: CrashTarget, load: Load) -> Options:
    """Return the options of a load: its slot, its run log and its instant."""
    return Options(slot=load.slot, run_log=SqliteRunLog(target.run_log), clock=Clock(lambda: instant_of(load.number)))


def prepare(target: CrashTarget, *appended: str) -> None:
    """Create the table that the post steps write to, and tables to append to that no key protects from doubling."""
    if not target.has_posts:
        return
    database = target.database
    with closing(database.session()) as session:
        session.execute("CREATE TABLE crash_posts (pipeline VARCHAR(100), load_number INTEGER)")
        database.create_schema(session, database.table_name(target.schema, "any").schema)
        for name in appended:
            definition = table_definition(table_of(target, Load("append", 0, name)), "append", database)
            session.execute(create_table_sql(replace(definition, primary_key=()), database))


# What must be there


def expected(mode: str, numbers: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return what the table must show after these loads."""
    loads = [(number, rows_of(number)) for number in numbers]
    if mode == "append":
        return sorted(row[:3] for _, rows in loads for row in rows)
    if mode == "truncate":
        return sorted(row[:3] for row in loads[-1][1]) if loads else []
    if mode == "merge":
        return sorted({row[0]: row[:3] for _, rows in loads for row in rows}.values())
    by_event = mode == "scd2_event"
    events = [(row[0], row[3] if by_event else instant_of(n), row[2]) for n, rows in loads for row in rows]
    return sorted(_versions(events), key=str)


def _versions(events: Sequence[tuple[int, datetime, str]]) -> list[tuple[Any, ...]]:
    """Return id, value, begin, end and currency of every version, whatever the order of the events."""
    versions: list[tuple[Any, ...]] = []
    for key in {event[0] for event in events}:
        steps: list[tuple[datetime, str]] = []
        for _, at, value in sorted(event for event in events if event[0] == key):
            if not steps or steps[-1][1] != value:
                steps.append((at, value))
        ends = [*(at for at, _ in steps[1:]), None]
        versions += [(key, value, at, end, end is None) for (at, value), end in zip(steps, ends, strict=True)]
    return versions


# What is there


def table_rows(target: CrashTarget, load: Load) -> list[tuple[Any, ...]]:
    """Return what the table shows: rows, or versions for scd2; nothing when there is no table."""
    if target.is_folder:
        return sorted(row[:3] for row in in_files(target.database, table_of(target, load)))
    if load.mode.startswith("scd2"):
        rows = _selected(target, load, "id", "value", "valid_from", "valid_to", "is_current")
        return sorted(((int(k), v, _instant(a), _instant(b), bool(now)) for k, v, a, b, now in rows), key=str)
    return sorted((int(k), int(seq), v) for k, seq, v in _selected(target, load, "id", "seq", "value"))


def _selected(target: CrashTarget, load: Load, *columns: str) -> Sequence[tuple[Any, ...]]:
    database = target.opened(load.table)
    if target.is_lake:
        return shown(database, columns)
    table = database.table_name(target.schema, load.table)
    with closing(database.session()) as session:
        if database.find_table(session, table) is None:
            return []
        return session.query(f"SELECT {', '.join(columns)} FROM {native_name(table, database.dialect)}")


def batch_rows(target: CrashTarget, load: Load, run_id: str) -> int:
    """Return how many rows of a load there are, where one statement cannot see the books and the rows."""
    if target.is_lake:
        return sum(row[0] == run_id for row in _selected(target, load, "_batch_id"))
    return sum(row[3] == run_id for row in in_files(target.database, table_of(target, load)))


def _instant(value: Any) -> datetime | None:
    return None if value is None else parse_instant(value)


def difference(there: Sequence[tuple[Any, ...]], right: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return what is lost and what is there too often."""
    have, want = Counter(there), Counter(right)
    lost, extra = want - have, have - want
    complaints = [f"lost {sum(lost.values())} rows, such as {next(iter(lost))}"] if lost else []
    return complaints + ([f"{sum(extra.values())} rows too many, such as {next(iter(extra))}"] if extra else [])
