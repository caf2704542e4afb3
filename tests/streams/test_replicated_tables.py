"""Tables that a replication derives from those of its source."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from ematix_flow import CDC, ematix
from ematix_flow.connect.base.columns import ColumnSchema, TableSchema
from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.declare.connection.databases import PostgresConnection, SQLiteConnection
from ematix_flow.declare.table.schema import Column
from ematix_flow.declare.table.types import BigInt, Integer, Numeric, String, Text, TimestampTZ
from ematix_flow.engine.stream import replication
from ematix_flow.engine.stream.sinks.mirror_schema import holds
from ematix_flow.errors import PlanError
from ematix_flow.plan.keys import check_soft

if TYPE_CHECKING:
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.declare.table.types import ColumnType

SOURCE = PostgresConnection("pg", url="postgresql://h/d")
THERE = SQLiteConnection("there", path="t.db")
NUMBER, TIME = ColumnSchema("id", "bigint", nullable=False), ColumnSchema("gone_at", "timestamp", nullable=True)


def mirror(
    monkeypatch: pytest.MonkeyPatch,
    cdc: CDC,
    *columns: ColumnSchema,
    unlogged: tuple[str, ...] = (),
    name: str | None = None,
) -> Table:
    """Return the table that mirrors one with some columns."""
    monkeypatch.setattr(replication, "_schema", lambda *_: TableSchema(columns, ("id",), ()))
    declared = ematix.replicate(SOURCE, tables="shop.*", into=THERE, cdc=cdc, name=name or f"m{len(columns)}")
    stream = replication._stream(declared, *replication._sides(declared), TableId("shop", "orders"), unlogged)
    table = stream.targets[0].declared_table
    assert table is not None
    return table


def test_a_mirror_has_a_column_for_deleted_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    soft = CDC(delete_mode="soft", soft_delete_column="gone_at")
    table = mirror(monkeypatch, soft, NUMBER)
    assert table.columns[-1] == Column(TimestampTZ(), nullable=True, name="gone_at")
    check_soft(table, "gone_at")
    assert mirror(monkeypatch, soft, NUMBER, TIME).column_names == ("id", "gone_at")
    hard = CDC(soft_delete_column="gone_at")
    assert mirror(monkeypatch, hard, NUMBER, name="hard").column_names == ("id",), "nothing would fill the column"


def test_a_mirror_lacks_columns_that_the_log_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mirror(monkeypatch, CDC(), NUMBER, TIME, unlogged=("gone_at",)).column_names == ("id",)


def test_a_key_that_the_log_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match=r"the log of shop\.orders does not have id of its primary key"):
        mirror(monkeypatch, CDC(), NUMBER, TIME, unlogged=("id", "gone_at"))


def test_names_that_differ_in_case_are_one_mirror_where_the_target_takes_them_for_one() -> None:
    tables = (TableId("shop", "Orders"), TableId("shop", "orders"))
    for into, name in ((THERE, "one"), (PostgresConnection("pg2", url="postgresql://h/e"), "two")):
        declared = ematix.replicate(SOURCE, tables="shop.*", into=into, name=name)
        with (
            nullcontext()
            if name == "two"
            else pytest.raises(PlanError, match=r"shop\.Orders and shop\.orders would both")
        ):
            replication._refuse_shared(declared, tables)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (BigInt(), Integer(), True),
        (Integer(), BigInt(), False),
        (Numeric(10, 2), Numeric(8, 2), True),
        (Numeric(10, 2), Numeric(10, 4), False),
        (Numeric(10, 4), Numeric(10, 2), False),
        (Text(), String(5), True),
        (String(5), String(9), False),
        (String(5), Text(), False),
        (Text(), BigInt(), False),
    ],
)
def test_a_column_that_is_wide_enough_is_not_widened(wide: ColumnType, narrow: ColumnType, expected: bool) -> None:
    assert holds(wide, narrow) is expected
