"""Changes of keys in batches of any size: what a batch comes to is what its changes do one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse_one

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.lake.sql_session import POINTS_FOLDER
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.plan.columns import CHANGE_COLUMNS
from ematix_flow.plan.sql.modes import changes, lake_changes
from ematix_flow.plan.sql.program import ChangeRules, Load
from ematix_flow.plan.sql.render import STAGED
from tests.depth import quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.session import Statement

Staged = tuple[Any, ...]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = "00000000-0000-0000-0000-000000000000"
NAMES = ("id", "name", "amount")
COLUMNS = tuple(StageColumn(name, Text() if name == "name" else BigInt()) for name in NAMES)
KINDS = {"_flow_change_at": "TIMESTAMPTZ", "_flow_change_ms": "BIGINT"}
STAGED_COLUMNS = "id BIGINT, name TEXT, amount BIGINT, " + ", ".join(
    f"{name} {KINDS.get(name, 'TEXT')}" for name in CHANGE_COLUMNS
)


def change(op: str, version: int, key: int | None = None, **values: Any) -> Staged:
    """Return a staged change of a key that carries some columns."""
    carried = {"id": key, **values}
    carries = "".join(str(int(name in carried)) for name in NAMES)
    at = datetime.fromtimestamp(version, UTC)
    row = [carried.get(name) for name in NAMES]
    return (*row, op, f"{version:04d}", at, version * 1000, None if "0" not in carries else carries)


def whole(op: str, version: int, key: int) -> Staged:
    """Return a change that carries a whole row, whose values tell its version."""
    return change(op, version, key, name=f"n{version}", amount=version)


@dataclass
class Mirror:
    """A mirror whose programs run in memory."""

    inserts: bool = True
    connection: Any = field(default_factory=duckdb.connect)

    def __post_init__(self) -> None:
        self.run("CREATE TABLE things (id BIGINT, name TEXT, amount BIGINT, _cdc_version TEXT)")

    def run(self, sql: str) -> list[Staged]:
        """Return the rows of a statement."""
        result: list[Staged] = self.connection.execute(sql).fetchall()
        return result

    def stage(self, batch: Sequence[Staged]) -> None:
        """Write the changes of a batch into the staging table."""
        self.run(f'CREATE OR REPLACE TABLE "{STAGED}" ({STAGED_COLUMNS})')
        rows = ", ".join([f"({', '.join('?' * 8)})"] * len(batch))
        self.connection.execute(f'INSERT INTO "{STAGED}" VALUES {rows}', [value for row in batch for value in row])

    def rows(self) -> list[Staged]:
        """Return the rows of the table."""
        return self.run("SELECT id, name, amount FROM things ORDER BY id")


class Database(Mirror):
    """A mirror in a database, with the versions of keys in a table of their own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = "pipeline_name TEXT, pk_json TEXT, last_order TEXT, last_seen_ts_ms BIGINT, updated_at TIMESTAMPTZ"
        self.run(f"CREATE TABLE versions ({columns})")

    def apply(self, batch: Sequence[Staged]) -> None:
        """Apply the changes of a batch."""
        self.stage(batch)
        for table, more in ((changes.EVENTS, ""), (changes.FINAL, ", _flow_creates INTEGER")):
            self.run(f"CREATE OR REPLACE TABLE {table} ({STAGED_COLUMNS}, _flow_key TEXT{more})")
        for statement in in_database(inserts=self.inserts):
            if not statement.when or self.run(statement.when):
                self.run(statement.sql)


class Lake(Mirror):
    """A mirror in a lake, whose statements for Spark another engine runs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.run("CREATE TABLE known (_flow_key TEXT, _flow_version TEXT, _flow_loaded_at TIMESTAMPTZ)")

    def apply(self, batch: Sequence[Staged]) -> None:
        """Apply the changes of a batch."""
        self.stage(batch)
        for statement in in_lake(inserts=self.inserts):
            name = "known_then" if statement.fills_points else statement.cache_as
            self.run(f"CREATE OR REPLACE TABLE {name} AS {statement.sql}" if name else statement.sql)
        self.run("CREATE OR REPLACE TABLE known AS FROM known_then")


@cache
def in_database(*, inserts: bool) -> tuple[Statement, ...]:
    """Return the statements that apply the changes of a batch in a database."""
    rules = ChangeRules("scope", TableName("", "versions"), inserts=inserts)
    return changes.apply_changes(load_of("duckdb", rules)).statements


@cache
def in_lake(*, inserts: bool) -> tuple[Statement, ...]:
    """Return the statements that apply the changes of a batch in a lake, as DuckDB has them."""
    load = load_of("spark", ChangeRules("scope", inserts=inserts), TableName("", "known"))
    prefix = f"INSERT OVERWRITE DIRECTORY '{POINTS_FOLDER}' USING parquet "
    statements = lake_changes.apply_changes(load).statements
    return tuple(replace(one, sql=translated(one.sql.removeprefix(prefix))) for one in statements)


def load_of(dialect: str, rules: ChangeRules, points: TableName | None = None) -> Load:
    """Return a load of changes."""
    things = TableName("", "things")
    return Load(dialect, things, COLUMNS, NOW, BATCH, ("id",), stamped=False, changes=rules, points=points)


def translated(sql: str) -> str:
    """Return a statement for Spark as DuckDB has it, which does not name the table of columns that are set."""
    tree = parse_one(sql, read="spark")
    for update in tree.find_all(exp.Update):
        for one in update.expressions:
            one.this.set("table", None)
    return tree.sql(dialect="duckdb")


def one_by_one(events: Sequence[Staged], *, inserts: bool) -> list[Staged]:
    """Return the rows that changes lead to, one after the other."""
    rows: dict[int, dict[str, Any]] = {}
    for *values, op, _, _, _, carries in events:
        row = {name: value for name, value, one in zip(NAMES, values, carries or "111", strict=True) if one == "1"}
        if op == "t":
            rows.clear()
        elif op == "d":
            rows.pop(row["id"], None)
        elif row["id"] in rows or op == "c" or inserts:
            rows[row["id"]] = rows.get(row["id"], dict.fromkeys(NAMES)) | row
    return sorted(tuple(row.values()) for row in rows.values())


def event_of(op: str, version: int, key: int) -> Staged:
    """Return an event: a change of a whole row, of a part of it (p), or none of a row."""
    match op:
        case "t":
            return change("t", version)
        case "d":
            return change("d", version, key)
        case "p":
            return change("u", version, key, name=f"n{version}")
    return whole(op, version, key)


@st.composite
def batches(draw: st.DrawFn) -> list[list[Staged]]:
    """Return the changes of few keys in their order, in batches."""
    operations = draw(st.lists(st.tuples(st.sampled_from("ccuuppddt"), st.integers(1, 2)), min_size=1, max_size=8))
    return in_batches(operations, draw(st.integers(1, 8)), draw(st.integers(0, 7)))


def in_batches(operations: Sequence[tuple[str, int]], size: int, first: int = 0) -> list[list[Staged]]:
    """Return events in batches of a size, of which the first may be another one."""
    events = [event_of(op, version, key) for version, (op, key) in enumerate(operations, 1)]
    rest = events[first:]
    parts = [events[:first], *(rest[begin : begin + size] for begin in range(0, len(rest), size))]
    return [part for part in parts if part]


@pytest.mark.parametrize("kind", [Database, Lake])
@pytest.mark.parametrize("inserts", [True, False])
def test_any_batches_come_to_the_same_rows(kind: type[Database | Lake], inserts: bool) -> None:
    @settings(max_examples=quick_or_deep(10, 100), deadline=None, derandomize=True)
    @given(batches())
    @example(in_batches([("c", 1), ("d", 1), ("u", 1)], 3))
    @example(in_batches([("c", 1), ("d", 1), ("u", 1)], 3, 1))
    @example(in_batches([("c", 1), ("d", 1), ("p", 1), ("c", 1), ("p", 1)], 4, 1))
    @example(in_batches([("c", 1), ("t", 1), ("u", 1)], 3, 1))
    def attempt(parts: list[list[Staged]]) -> None:
        mirror = kind(inserts)
        for part in parts:
            mirror.apply(part)
        assert mirror.rows() == one_by_one([one for part in parts for one in part], inserts=inserts)

    attempt()


@pytest.mark.parametrize("kind", [Database, Lake])
def test_a_row_that_is_newer_than_a_late_truncate_keeps_what_a_part_of_it_does_not_carry(
    kind: type[Database | Lake],
) -> None:
    mirror = kind()
    mirror.apply([whole("c", 1, 1), whole("c", 9, 2)])
    mirror.apply([change("t", 5), change("u", 10, 2, name="renamed"), change("u", 11, 1, name="again")])
    assert mirror.rows() == [(1, "again", None), (2, "renamed", 9)]


@pytest.mark.parametrize("kind", [Database, Lake])
def test_an_ignored_update_does_not_let_a_deleted_row_come_again(kind: type[Database | Lake]) -> None:
    mirror = kind(inserts=False)
    for part in ([whole("c", 1, 1)], [change("d", 2, 1)], [whole("u", 3, 1)], [whole("c", 1, 1)]):
        mirror.apply(part)
    assert mirror.rows() == []
