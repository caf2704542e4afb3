"""Frames of pandas, polars and pyarrow are loaded by this process; nothing asks for Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import pyarrow as pa
import pytest

from ematix_flow import BigInt, Double, Numeric, Text, TimestampTZ, ematix, pk, register_connection
from ematix_flow import normalize as n
from ematix_flow.declare.connection.registry import DuckDBConnection
from ematix_flow.engine import Options, dry_run_pipeline, run_pipeline
from ematix_flow.engine.rejects import list_rejects
from ematix_flow.run.spark import session

if TYPE_CHECKING:
    from pathlib import Path

AT = datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)
ROWS = {
    "id": [1, 2, 3],
    "name": [" ada ", "", None],
    "amount": ["1.50", "2", "many"],
    "score": [0.5, float("nan"), 2.0],
    "at": [AT, AT, AT],
}


COLUMNS = {
    "id": Annotated[BigInt, pk()],
    "name": Annotated[Text | None, n.trim(), n.empty_to_null()],
    "amount": Numeric[10, 2],  # type: ignore[misc]
    "score": Double | None,
    "at": TimestampTZ,
}


def frame(kind: str) -> Any:
    if kind == "pyarrow":
        return pa.table(ROWS)
    module = pytest.importorskip(kind)
    return module.DataFrame(ROWS)


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(session, "spark_session", refused)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars"])
@pytest.mark.parametrize("options", [{}, {"incremental_column": "at"}], ids=["all", "incremental"])
def test_a_frame_is_loaded_here(kind: str, options: dict[str, Any], duckdb_path: Path) -> None:
    register_connection(DuckDBConnection(name="w", path=str(duckdb_path)))
    register_connection(DuckDBConnection(name="default", path=":memory:"))

    table = ematix.table(schema="s", name="t")(type("Loaded", (), {"__annotations__": COLUMNS}))

    @ematix.pipeline(target=table, target_connection="w", mode="append", on_bad_row="reject", **options)
    def load(conn: Any) -> Any:
        return frame(kind)

    counted = dry_run_pipeline(load.pipeline)
    assert counted.ok, counted.errors
    assert (counted.targets[0].dry_run_rows_affected or {})["rows_inserted"] == 2
    result = run_pipeline(load.pipeline, Options())
    assert (result["rows_inserted"], result["rows_rejected"]) == (2, 1)
    with duckdb.connect(str(duckdb_path)) as connection:
        rows = connection.sql('SELECT id, name, amount, "at" FROM s.t ORDER BY id').fetchall()
        watermarks = connection.sql("SELECT last_value FROM ematix_flow.watermarks").fetchall()
    assert rows == [(1, "ada", Decimal("1.50"), AT), (2, None, Decimal(2), AT)]
    assert watermarks == ([("2024-01-02 03:04:05.123456",)] if options else [])
    (reject,) = list_rejects(load.pipeline)
    assert reject.row_json == '{"id":3,"amount":"many","score":2.0,"at":"2024-01-02T03:04:05.123456Z"}'
