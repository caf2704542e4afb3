"""A table with a column of every type under hostile names, and rows with the extremes that all systems must carry."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import (
    JSON,
    JSONB,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
)
from ematix_flow.plan.sql.render import native_column, native_name
from ematix_flow.run.stage.conform import Rules, conform

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session

TYPES = {
    "id": BigInt(),
    "select": SmallInt(),
    "Mixed Case": Integer(),
    'quo"te': Float(),
    "back`tick": Double(),
    "per%cent ?": Boolean(),
    "semi;colon--": Text(),
    "ünïcödé 漢": String(20),
    "b" * 63: Date(),
    "a'postrophe": Timestamp(),
    "dot.ted": TimestampTZ(),
    "order": JSON(),
    "group by": JSONB(),
    "{brace}": UUID(),
    "back\\slash": Bytes(),
    "short": Numeric(12, 2),
    "long": Numeric(38, 10),
}

EVERY_TYPE = Table(
    "analytics",
    "Every Type",
    tuple(Column(t, nullable=name != "id", primary_key=name == "id", name=name) for name, t in TYPES.items()),
)
COLUMNS = tuple(StageColumn(name, t, in_key=name == "id") for name, t in TYPES.items())


def _row(*values: Any) -> dict[str, Any]:
    return dict(zip(TYPES, values, strict=True))


ROWS = [
    _row(
        -(2**63), -(2**15), -(2**31), -1.5, -1.7976931348623157e308, True, "", "", date(1, 1, 1),
        datetime(1, 1, 1, 0, 0, 0, 1), datetime(1, 1, 1, tzinfo=UTC), '{"a": 1}', '{"a": 1}',  # noqa: DTZ001
        "00000000-0000-0000-0000-000000000000", b"", Decimal("-9999999999.99"), Decimal("-" + "9" * 28 + "." + "9" * 10),
    ),
    _row(
        2**63 - 1, 2**15 - 1, 2**31 - 1, 0.25, 5e-324, False, "emoji 🎈 'quote' \\ back\ttab\nline\r %s ? $1 end ",
        "ü" * 20, date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), '"x"', "[1, null]", "ffffffff-ffff-ffff-ffff-ffffffffffff",
        bytes(range(256)), Decimal("9999999999.99"), Decimal("0.0000000001"),
    ),
    _row(
        0, 0, 0, 0.0, 0.1, True, "1e5", "007", date(2026, 2, 28), datetime(2026, 10, 25, 2, 30),  # noqa: DTZ001
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "123", "null", "2b0e3c1a-7c55-4f0e-9c5e-00000000abcd", b"\x00",
        Decimal("12.30"), Decimal("123456789012345678.0000000000"),
    ),
    _row(7, *[None] * (len(TYPES) - 1)),
]  # fmt: skip


def read_back(database: Database, session: Session, table: Table) -> list[dict[str, Any]]:
    """Read a table as a source would, and return its rows in the declared types, in the order of the first column."""
    columns = tuple(StageColumn(column.name, column.type) for column in table.columns)
    names = ", ".join(native_column(column.name, database.dialect) for column in columns)
    table_name = native_name(database.table_name(table.schema, table.name), database.dialect)
    query = f"SELECT {names} FROM {table_name}"
    described = database.describe(session, query)
    assert [column.name for column in described] == [column.name for column in columns]
    read = [
        f"{database.interchange(column, native_column(column.name, database.dialect))} "
        f"AS {native_column(column.name, database.dialect)}"
        for column in described
    ]
    opened = database.open_read(session, f"SELECT {', '.join(read)} FROM ({query}) AS source_rows", 2)
    rows: list[dict[str, Any]] = []
    with opened.resources or nullcontext():
        for split in opened.splits:
            for batch in database.read(split):
                good, bad = conform(batch, Rules(columns, frozenset()))
                assert bad is None, bad.to_pylist()
                rows.extend(good.to_pylist())
    first = columns[0].name
    return sorted(rows, key=lambda row: row[first])
