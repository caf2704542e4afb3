"""Rows that get another key by changes which do not carry all of their columns: they have what the old ones had."""

from __future__ import annotations

import json
import random
import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from ematix_flow import CDC
from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.declare.table.types import BigInt, Boolean, Text
from ematix_flow.plan.sql.modes.changes import apply_changes
from ematix_flow.plan.sql.program import ChangeRules, Load
from ematix_flow.plan.sql.render import STAGED

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ABSENT = "__debezium_unavailable_value"
COLUMNS = (StageColumn("id", BigInt()), StageColumn("name", Text()), StageColumn("amount", BigInt()))
STAGED_AS = "id bigint, name text, amount bigint"
CHANGE_AS = (
    "_flow_change text, _flow_version text, _flow_change_at timestamp, _flow_change_ms bigint, _flow_carries text"
)
TABLES = (
    f"CREATE TABLE things ({STAGED_AS}, gone boolean)",
    "CREATE TABLE versions (pipeline_name text, pk_json text, last_order text, last_seen_ts_ms bigint, updated_at timestamp)",
    f'CREATE TABLE "{STAGED}" ({STAGED_AS}, gone boolean, {CHANGE_AS})',
    f"CREATE TABLE _flow_events ({STAGED_AS}, gone boolean, _flow_key text, {CHANGE_AS})",
    f"CREATE TABLE _flow_final ({STAGED_AS}, gone boolean, _flow_key text, {CHANGE_AS}, _flow_creates integer)",
)


class Mirror:
    """A table to which the changes of messages are applied, as commits do."""

    def __init__(self, dialect: str, cdc: CDC | None = None) -> None:
        self.dialect, self.cdc = dialect, cdc or CDC()
        self.connection: Any = duckdb.connect() if dialect == "duckdb" else sqlite3.connect(":memory:")
        self.offset = 0
        for sql in TABLES:
            self.connection.execute(sql)

    def apply(self, *events: dict[str, Any]) -> None:
        """Apply the changes of a batch."""
        for table in (STAGED, "_flow_events", "_flow_final"):
            self.connection.execute(f'DELETE FROM "{table}"')
        rows = self._decoded(events)
        self.connection.executemany(f'INSERT INTO "{STAGED}" VALUES ({", ".join("?" * len(rows[0]))})', rows)
        soft = self.cdc.soft_delete_column or ""
        rules = ChangeRules(
            "scope", TableName("", "versions"), soft, inserts=self.cdc.missing_rows == "insert", required=("id",)
        )
        columns = (*COLUMNS, StageColumn("gone", Boolean()))
        load = Load(self.dialect, TableName("", "things"), columns, NOW, "batch", ("id",), stamped=False, changes=rules)
        for statement in apply_changes(load).statements:
            if not statement.when or self.connection.execute(statement.when).fetchall():
                self.connection.execute(statement.sql)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows that are not marked."""
        stored_rows = self.connection.execute("SELECT id, name, amount FROM things WHERE gone IS NULL ORDER BY id")
        return list(stored_rows.fetchall())

    def _decoded(self, events: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
        kinds = (("id", "big_int"), ("name", "text"), ("amount", "big_int"), ("gone", "boolean"))
        payloads = [json.dumps(one).encode() for one in events]
        places = [json.dumps({"partition": 0, "offset": self.offset + number}) for number in range(len(events))]
        self.offset += len(events)
        messages = pa.table({VALUE: pa.array(payloads, pa.binary()), MESSAGE_OFFSET: pa.array(places)})
        result = ChangeDecoder(self.cdc, ChangeTable("things", kinds, ("id",), ("id",))).decode_messages(messages)
        assert not any(result.wrong)
        columns = [column.cast(pa.string()).to_pylist() for column in result.columns]
        return list(zip(*columns, strict=True))


def event(op: str, number: int, after: dict[str, Any] | None, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a change as Debezium writes it."""
    return {"op": op, "before": before, "after": after, "source": {"lsn": number, "ts_ms": 1_700_000_000_000 + number}}


def row(key: int, name: str | None, amount: int | None) -> dict[str, Any]:
    """Return a whole row."""
    return {"id": key, "name": name, "amount": amount}


@pytest.fixture(params=["duckdb", "sqlite"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Return the dialect of a database within this process."""
    return str(request.param)


@pytest.mark.parametrize("missing_rows", ["insert", "ignore"])
@pytest.mark.parametrize("after", [{"id": 2, "amount": 5}, {"id": 2, "name": ABSENT, "amount": 5}])
def test_a_moved_row_takes_what_its_change_does_not_carry(
    dialect: str, after: dict[str, Any], missing_rows: str
) -> None:
    mirror = Mirror(dialect, CDC(missing_rows=missing_rows))
    mirror.apply(event("c", 1, row(1, "a", 1)), event("c", 2, row(3, "c", 3)))
    mirror.apply(event("u", 3, after, {"id": 1, "name": None, "amount": None}))
    assert mirror.rows() == [(2, "a", 5), (3, "c", 3)]


def test_what_was_written_in_the_same_batch_moves_too(dialect: str) -> None:
    mirror = Mirror(dialect)
    mirror.apply(event("c", 1, row(1, "a", 1)), event("c", 2, row(2, "b", 2)))
    mirror.apply(
        event("u", 3, {"id": 1, "name": "aa"}),
        event("d", 4, None, {"id": 2}),
        event("u", 5, {"id": 2}, {"id": 1}),
        event("u", 6, {"id": 3}, {"id": 2}),
        event("c", 7, {"id": 1, "name": "other"}),
        event("u", 8, {"id": 4}, {"id": 3}),
        event("u", 9, {"id": 5}, {"id": 1}),
    )
    assert mirror.rows() == [(4, "aa", 1), (5, "other", None)]


def test_nothing_of_a_row_that_was_deleted_before_moves(dialect: str) -> None:
    mirror = Mirror(dialect)
    mirror.apply(event("c", 1, row(1, "a", 1)))
    mirror.apply(
        event("d", 2, None, {"id": 1}), event("c", 3, {"id": 1, "amount": 7}), event("u", 4, {"id": 2}, {"id": 1})
    )
    assert mirror.rows() == [(2, None, 7)]
    mirror.apply(event("t", 5, None), event("c", 6, {"id": 2, "name": "n"}), event("u", 7, {"id": 3}, {"id": 2}))
    assert mirror.rows() == [(3, "n", None)]


def test_marked_rows_stay_and_others_have_their_values(dialect: str) -> None:
    mirror = Mirror(dialect, CDC(delete_mode="soft", soft_delete_column="gone"))
    mirror.apply(event("c", 1, row(1, "a", 1)))
    mirror.apply(event("u", 2, {"id": 2, "amount": 2}, {"id": 1}))
    assert mirror.rows() == [(2, "a", 2)]
    marked = mirror.connection.execute("SELECT id, name, amount FROM things WHERE gone IS NOT NULL").fetchall()
    assert list(marked) == [(1, "a", 1)]


def test_columns_may_become_null_instead(dialect: str) -> None:
    mirror = Mirror(dialect, CDC(missing_columns="null"))
    mirror.apply(event("c", 1, row(1, "a", 1)))
    mirror.apply(event("u", 2, {"id": 2, "amount": 2}, {"id": 1}))
    assert mirror.rows() == [(2, None, 2)]


@pytest.mark.parametrize("numbered", [True, False])
def test_however_changes_fall_into_batches_rows_keep_their_values(dialect: str, numbered: bool) -> None:
    for seed in range(2):
        chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        table: dict[int, dict[str, Any]] = {}
        mirror, batch = Mirror(dialect), []
        for number in range(1, 25):
            one = _next(chance, number, table)
            batch.append(one if numbered else one | {"source": {"ts_ms": 1_700_000_000_000 + number}})
            if chance.random() < 0.4 or sum(1 for each in batch if each["after"] and each["before"]) > 2:
                mirror.apply(*batch)
                batch = []
                assert mirror.rows() == [tuple(table[key].values()) for key in sorted(table)], seed


def _next(chance: random.Random, number: int, table: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Return a change of a table, and change that."""
    key, free = chance.randint(1, 4), [one for one in range(1, 6) if one not in table]
    if key not in table:
        table[key] = row(key, f"n{number}", number)
        return event("c", number, dict(table[key]))
    part = chance.choice([{}, {"name": f"n{number}"}, {"amount": number}, {"name": None, "amount": number}])
    kind = chance.choice("udmm")
    if kind == "d":
        del table[key]
        return event("d", number, None, {"id": key})
    if kind == "u" or not free:
        table[key] |= part
        return event("u", number, {"id": key} | part)
    new = chance.choice(free)
    table[new] = table.pop(key) | part | {"id": new}
    return event("u", number, {"id": new} | part, {"id": key})
