"""Rows of files that were rejected are replayed as they would have been loaded, whoever reads and shapes them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow import (
    JSON,
    BigInt,
    Bytes,
    Date,
    Double,
    Float,
    Numeric,
    String,
    Text,
    Timestamp,
    TimestampTZ,
    ematix,
    pk,
    register_connection,
)
from ematix_flow import normalize as n
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine.rejects import list_rejects, replay_rejects

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.slow

NESTED = pa.struct([("a", pa.decimal128(4, 2)), ("raw", pa.binary()), ("listed", pa.list_(pa.float64()))])
VALUES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "raw": (pa.binary(), b"\x00\xffA", Bytes),
    "fixed": (pa.binary(3), b"\x00\xffA", Bytes),
    "text": (pa.string(), "AP9B", Bytes),
    "amount": (pa.decimal128(38, 10), Decimal("1234567890123456789.0123456789"), Numeric(38, 10)),
    "share": (pa.float64(), 0.1 + 0.2, Double),
    "small": (pa.float32(), 0.1, Float),
    "huge": (pa.uint64(), 2**64 - 1, Numeric(20, 0)),
    "at": (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, 0, 0, 0, 123456, UTC), TimestampTZ),
    "wall": (pa.timestamp("us"), datetime(2026, 1, 1, 12, 30), Timestamp),  # noqa: DTZ001
    "day": (pa.date32(), date(1, 1, 1), Date),
    "listed": (pa.list_(pa.int64()), [1, None, 2], JSON),
    "nested": (NESTED, {"a": Decimal("1.50"), "raw": b"\x00\xff", "listed": [0.1, 1e22]}, JSON),
    "document": (pa.string(), '{"a":  1.50, "a": [1e2, 12345678901234567890.123]}', JSON),
}


def declared(inbox: Path, format: str, code: Any, columns: dict[str, Any], **options: Any) -> Pipeline:  # noqa: A002
    PROJECT.clear()
    folder = {"kind": "object_store_local", "path": str(inbox / "in"), "format": format}
    register_connection(connection_from_fields("raw", folder))
    kind = options.pop("target", "duckdb")
    register_connection(connection_from_fields("warehouse", {"kind": kind, "path": str(inbox / f"w.{kind}")}))
    columns = {"nr": Annotated[BigInt, pk()], **columns, "code": code}
    table = ematix.table(schema="main", name="loaded")(type("Loaded", (), {"__annotations__": columns}))
    options = {"mode": "append", "on_bad_row": "reject", **options}

    @ematix.pipeline(name="load", target=table, source_connection="raw", target_connection="warehouse", **options)
    def load(conn: Any) -> str:
        return ""

    return load.pipeline


def rows_of(inbox: Path) -> dict[int, tuple[Any, ...]]:
    with duckdb.connect(str(inbox / "w.duckdb")) as connection:
        rows = connection.sql("SELECT * EXCLUDE (_loaded_at, _batch_id) FROM main.loaded").fetchall()
    return {row[0]: row[1:] for row in rows}


def check_replay(inbox: Path, options: Options, wide: bool = False) -> list[str]:
    """Load a row and its twin whose code is too long, replay the twin, and return the rejects as they were."""
    columns = {name: kind | None for name, (_, _, kind) in VALUES.items()}
    lower = (n.lower(), *((n.sql("substring(col, 1, 4)"),) if wide else ()))
    first = declared(inbox, "parquet", Annotated[String(3), *lower], columns)
    result = run_pipeline(first, options)
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 1)
    rejects = [reject.row_json for reject in list_rejects(first)]
    again = declared(inbox, "parquet", Annotated[String(3), *lower, n.truncate(3)], columns)
    done = replay_rejects(again, options=options)
    assert (done["replayed"], done["rejected"]) == (1, 0)
    rows = rows_of(inbox)
    assert rows[2] == rows[1]
    assert rows[1][:2] == (b"\x00\xffA", b"\x00\xffA")
    return rejects


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    columns = {name: pa.array([value, value], kind) for name, (kind, value, _) in VALUES.items()}
    pq.write_table(pa.table({"nr": [1, 2], **columns, "code": ["ABC", "ABCD"]}), folder / "a.parquet")
    return tmp_path


@pytest.mark.deep
def test_every_value_of_a_file_is_replayed_as_it_would_have_been_loaded(inbox: Path) -> None:
    [row] = check_replay(inbox, Options())
    stored = json.loads(row)
    assert (stored["raw"], stored["text"]) == ({"_flow_bytes": "00FF41"}, "AP9B")


@pytest.mark.spark
def test_every_value_that_spark_shapes_is_replayed_as_it_would_have_been_loaded(
    inbox: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    [row] = check_replay(inbox, Options(spark=spark), wide=True)
    assert json.loads(row)["raw"] == {"_flow_bytes": "00FF41"}


def test_a_row_without_a_value_that_it_needs_is_kept_as_the_file_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("nr,label,code\n1,x,a\n,x,b\n")
    name = {"name": Annotated[Text, n.replace("x", "xx")]}
    first = declared(tmp_path, "csv", Text | None, name, column_map={"name": "label"})
    assert run_pipeline(first)["rows_rejected"] == 1
    [reject] = list_rejects(first)
    assert json.loads(reject.row_json) == {"label": "x", "code": "b"}
    assert not reject.is_shaped


def test_a_row_that_only_the_target_cannot_hold_is_known_to_be_shaped(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = {"nr": [1, 2], "share": [0.5, float("nan")], "raw": [b"\x00", b"\xff"], "code": ["ABC", "ABC"]}
    pq.write_table(pa.table(rows), folder / "a.parquet")
    code = Annotated[Text, n.replace("A", "AA")]
    first = declared(tmp_path, "parquet", code, {"share": Double, "raw": Bytes}, target="sqlite")
    assert run_pipeline(first)["rows_rejected"] == 1
    for _ in range(2):
        [reject] = list_rejects(first)
        assert reject.is_shaped
        assert reject.to_dict()["row"] == {"nr": 2, "share": "NaN", "raw": {"_flow_bytes": "FF"}, "code": "AABC"}
        assert replay_rejects(first)["rejected"] == 1


def test_dates_that_python_does_not_know_are_shown_in_a_reject(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    far = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    later = pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"nr": [1], "day": far, "wall": later, "code": ["abcd"]}), folder / "a.parquet")
    first = declared(tmp_path, "parquet", String(3), {"day": Date, "wall": Timestamp})
    assert run_pipeline(first)["rows_rejected"] == 1
    [reject] = list_rejects(first)
    stored = json.loads(reject.row_json)
    assert (stored["day"], stored["wall"]) == ("5881580-07-11", "294247-01-10T04:00:54.775807")
