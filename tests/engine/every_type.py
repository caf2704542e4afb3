"""One table with a column of every declared type, loads of it from anywhere to anywhere, and rows in one spelling."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from ematix_flow.connect.types.arrow import arrow_type
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import Numeric
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.run_log import SqliteRunLog
from tests.contracts import values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ematix_flow.declare.table.types import ColumnType

NAMES = (
    "id", "small", "whole", "single", "double", "flag", "words", "short", "day", "at", "instant", "doc", "docb", "uid",
    "raw", "money", "wide",
)  # fmt: skip
"""Names that every format takes, for the columns of `values`, which have hostile ones."""

TYPES: dict[str, ColumnType] = {
    **dict(zip(NAMES, values.TYPES.values(), strict=True)),
    "longest": Numeric(38, 0),
    "finest": Numeric(38, 30),
}

_LONGEST = (Decimal("-" + "9" * 38), Decimal("9" * 38), Decimal(0), None)
_FINEST = (Decimal("-99999999." + "9" * 30), Decimal("0." + "0" * 29 + "1"), Decimal("1." + "0" * 30), None)

ROWS: list[dict[str, Any]] = [
    {**dict(zip(NAMES, row.values(), strict=True)), "longest": longest, "finest": finest}
    for row, longest, finest in zip(values.ROWS, _LONGEST, _FINEST, strict=True)
]

ROWS.append({**dict.fromkeys(TYPES), "id": 8, "words": "long text \u2702 " * 20_000, "raw": bytes(range(256)) * 500})

ODD_FLOATS: list[dict[str, Any]] = [
    {**dict.fromkeys(TYPES), "id": 100 + number, "single": value, "double": value}
    for number, value in enumerate((math.nan, math.inf, -math.inf))
]

Fields = dict[str, Any]


def table_of(schema: str, name: str, types: Mapping[str, ColumnType] = TYPES) -> Table:
    """Declare a table of these columns; the first one is the key."""
    key = next(iter(types))
    columns = (Column(t, nullable=name != key, primary_key=name == key, name=name) for name, t in types.items())
    return Table(schema, name, tuple(columns))


def frame_of(rows: Sequence[Mapping[str, Any]], types: Mapping[str, ColumnType] = TYPES) -> pa.Table:
    """Return rows as a frame, in the types that carry the declared ones."""
    columns = {name: pa.array([row[name] for row in rows], arrow_type(kind)) for name, kind in types.items()}
    return pa.table(columns)


@dataclass(frozen=True)
class Journey:
    """Loads that share a run log."""

    folder: Path

    def load(
        self, what: Any, target: Fields, *others: Fields, source: Fields | None = None, **options: Any
    ) -> dict[str, Any]:
        """Load a frame, or what a query or a path of the source means, into a table of every type."""
        schema, types = options.pop("schema", "main"), options.pop("types", TYPES)
        mapped, going_on = options.pop("column_map", None), options.pop("continue_on_failure", False)
        name = options.pop("name", f"to {schema}")
        declared = write(**{"mode": "append", **options})
        targets = [connection_from_fields(f"target{n}", fields) for n, fields in enumerate((target, *others))]
        pipeline = Pipeline(
            name,
            lambda: what,
            tuple(
                TargetDeclaration(table_of(schema, f"every{n or ''}", types), declared, one, mapped)
                for n, one in enumerate(targets)
            ),
            fan_out=bool(others),
            source_connection=connection_from_fields("source", source) if source else targets[0],
            continue_on_failure=going_on,
        )
        return run_pipeline(pipeline, Options(run_log=SqliteRunLog(self.folder / "run_log.db")))  # type: ignore[no-any-return]

    def rows_in(self, source: Fields, what: Any, **options: Any) -> list[dict[str, Any]]:
        """Read a table of every type as a source and return its rows: they are loaded into DuckDB, which has all types."""
        database_file = self.folder / "found.duckdb"
        self.load(
            what,
            {"kind": "duckdb", "path": str(database_file)},
            source=source,
            name="reading",
            mode="truncate",
            **options,
        )
        with duckdb.connect(str(database_file)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            relation = connection.sql("SELECT * EXCLUDE (_loaded_at, _batch_id) FROM main.every")
            return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def plain(rows: Iterable[Mapping[str, Any]], types: Mapping[str, ColumnType] = TYPES) -> list[dict[str, str | None]]:
    """Return rows in the order of their keys, every value in one spelling whatever driver it came from."""
    shown = [{name: _plain(row[name], kind) for name, kind in types.items()} for row in rows]
    return sorted(shown, key=lambda row: int(str(row["id"])))


def _plain(value: Any, kind: ColumnType) -> str | None:  # noqa: PLR0911 - one line per kind
    if value is None:
        return None
    match kind.kind:
        case "json" | "jsonb":
            return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)
        case "timestamp_tz":
            instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
            return str(instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC))
        case "timestamp":
            return str(value if isinstance(value, datetime) else datetime.fromisoformat(value))
        case "boolean":
            return str(bool(value))
        case "numeric":
            return f"{Decimal(str(value)):f}"
        case "float" | "double":
            return repr(float(value))
        case "bytes":
            return bytes(value).hex()
    return str(value)
