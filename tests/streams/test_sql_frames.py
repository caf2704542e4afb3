"""SQL of a stream on Spark: tasks read, decode, transform and stage; the result is the same as where this process reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ematix_flow import Target, ematix, pk
from ematix_flow.connect.kafka import reader as kafka_reader
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.stream.options import Lookup
from ematix_flow.declare.stream.udf import udf
from ematix_flow.engine.stream import transform as stream_rows
from ematix_flow.engine.stream.transform import StreamRows
from ematix_flow.run.transform import frame_sql
from ematix_flow.types import BigInt, Double, Text  # noqa: TC001 - read from the annotations
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group("streams"),
    pytest.mark.usefixtures("spark"),
]

SQL = """
    WITH a AS (SELECT id, doubled(CAST(n AS BIGINT)) AS n, size, doc.name AS name, CAST(mixed AS STRING) AS mixed FROM source)
    SELECT a.id, a.n, a.size, coalesce(a.name, k.word) AS word, a.mixed FROM a LEFT JOIN kinds k ON k.id = a.id
"""


@ematix.table(schema="shop", name="sql_frames")
class Rows:
    """What the SQL gives."""

    id: Annotated[BigInt, pk()]
    n: BigInt | None
    size: Double | None
    word: Text | None
    mixed: Text | None


@udf(args=("Int64",), returns="Int64", name="doubled")
def doubled(numbers: pa.Array) -> pa.Array:
    """Double numbers, and refuse 13."""
    if 13 in numbers.to_pylist():
        raise ValueError("thirteen is refused")
    return pc.multiply(numbers, 2)


def fill(topic: Topic) -> None:
    """Write messages whose fields have other types in each partition, some of which are none or cannot be taken."""
    topic.write([{"id": n, "n": str(n), "size": n, "mixed": n} for n in range(1, 41)], partition=0)
    topic.write([{"id": n, "n": str(n), "size": n / 4, "mixed": f"m{n}"} for n in range(41, 61)], partition=1)
    topic.write([{"id": 60, "n": "1300", "doc": {"name": "last"}}, {"id": 61, "n": "x"}, b"{torn"], partition=1)
    topic.write([{"id": 62, "n": "13"}, {"id": 63, "n": None, "mixed": {"a": 1}}, None, b"[]"], partition=2)


def run(topic: Topic, warehouse: Path, engine: str, monkeypatch: pytest.MonkeyPatch, **given: Any) -> dict[str, Any]:
    """Run the stream on an engine into a database of its own."""
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", engine)
    rows_in(warehouse, "CREATE TABLE kinds AS SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS t(id, word)")
    lookups = {"kinds": Lookup(connection=duckdb_at(warehouse), table="kinds", schema="main")}
    keywords: dict[str, Any] = {"target_table": Rows, "mode": "merge", "lookups": lookups, "udfs": [doubled]}
    keywords |= {"transform_sql": SQL, "dialect": "spark", "transform_on_error": "dlq", **given}
    return drain(topic.stream(duckdb_at(warehouse), **keywords))


def stored(warehouse: Path) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the rows of the table and the rejects."""
    rows = rows_in(warehouse, "SELECT id, n, size, word, mixed FROM shop.sql_frames ORDER BY id")
    rejects = rows_in(warehouse, "SELECT source_position, reason, column_name, row_json FROM ematix_flow.rejects")
    return rows, sorted(rejects, key=str)


@pytest.mark.deep
def test_both_engines_load_the_same_rows_and_reject_the_same_messages(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topic)
    local, there = (tmp_path / f"{engine}.duckdb" for engine in ("local", "spark"))
    assert run(topic, local, "local", monkeypatch) == run(topic, there, "spark", monkeypatch)
    assert stored(local) == stored(there)
    rows, rejects = stored(there)
    assert (1, 2, 1.0, "one", "1") in rows
    assert (60, 2600, None, "last", None) in rows  # the last message of its key
    assert (63, None, None, None, '{"a": 1}') in rows
    assert len(rows) == 60
    assert [json.loads(offset)["partition"] for offset, *_ in rejects] == [0, 1, 1, 2, 2]


def test_the_process_of_the_stream_reads_and_receives_no_rows(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("rows came to the driver")

    fill(topic)
    monkeypatch.setattr(kafka_reader, "_open_reader", refuse)
    monkeypatch.setattr(stream_rows, "typed_rows", refuse)
    monkeypatch.setattr(DataFrame, "toArrow", refuse)
    monkeypatch.setattr(DataFrame, "toPandas", refuse)
    result = run(topic, warehouse, "spark", monkeypatch)
    assert result["total_rows"] == 66
    assert len(stored(warehouse)[0]) == 60


@pytest.mark.deep
def test_targets_of_one_stream_share_what_the_sql_made(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    engines_requested: list[object] = []
    transformed = frame_sql.transformed
    monkeypatch.setattr(frame_sql, "transformed", lambda *a, **k: engines_requested.append(a) or transformed(*a, **k))
    topic.write([{"id": 1, "n": "1"}, {"id": 2, "n": "two"}])
    rows_in(warehouse, "CREATE TABLE a (id BIGINT, n BIGINT); CREATE TABLE b AS FROM a")
    targets = [Target(connection=duckdb_at(warehouse), table=("main", name)) for name in ("a", "b")]
    sql = "SELECT id, CAST(n AS BIGINT) AS n FROM source"
    drain(topic.stream(None, targets=targets, transform_sql=sql, transform_on_error="dlq"))
    assert len(engines_requested) == 1
    assert rows_in(warehouse, "FROM a UNION ALL FROM b") == [(1, 1), (1, 1)]
    assert rows_in(warehouse, "SELECT COUNT(*), COUNT(DISTINCT source_position) FROM ematix_flow.rejects") == [(2, 1)]


@pytest.mark.deep
def test_a_large_batch_takes_no_memory_of_the_process_of_the_stream(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, filler = 60_000, "x" * 4_000
    for start in range(0, many, 5_000):
        topic.write([{"id": n, "n": str(n), "size": 1, "mixed": filler} for n in range(start, start + 5_000)])
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    sql = SQL.replace("CAST(mixed AS STRING)", "md5(mixed)").replace("doc.name", "CAST(NULL AS STRING)")
    run(topic, warehouse, "spark", monkeypatch, transform_sql=sql)
    assert len(stored(warehouse)[0]) == many - 1
    assert memory("VmHWM") - before < 100 << 20


def memory(name: str) -> int:
    """Return a number of bytes that Linux tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def write_lines(folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"id": 1, "n": "1", "size": 1}\n{"id": 2, "n": "x"}\n{torn\n')
    (folder / "b.jsonl").write_text('{"id": 1, "n": "2", "size": 2.5}\n')


def write_csv(folder: Path) -> None:
    (folder / "a.csv").write_text("id,n,size\n1,1,1\n2,x,\n3\n")
    (folder / "b.csv").write_text("id,n,size\n1,2,2.5\n")


def write_parquet(folder: Path) -> None:
    tables = {"a": {"id": [1, 2], "n": ["1", "x"], "size": [1.0, None]}, "b": {"id": [1], "n": ["2"], "size": [2.5]}}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("form", "write", "bad"),
    [
        pytest.param("json_lines", write_lines, 2, marks=pytest.mark.deep),
        ("csv", write_csv, 2),
        pytest.param("parquet", write_parquet, 1, marks=pytest.mark.deep),
    ],
    ids=["json_lines", "csv", "parquet"],
)
def test_files_are_transformed_alike_by_both_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, write: Callable[[Path], None], bad: int
) -> None:
    folder = Path("inbox") / "in"
    folder.mkdir(parents=True)
    write(folder)
    source = connection_from_fields("inbox", {"kind": "object_store_local", "path": "inbox", "format": form})
    sql = "SELECT id, CAST(n AS BIGINT) AS n, size FROM source"
    given = {"name": "inbox", "source": source, "source_query": "in", "mode": "merge", "target_table": Rows}
    given |= {"transform_sql": sql, "transform_on_error": "dlq"}
    for engine in ("local", "spark"):
        monkeypatch.setenv("EMATIX_FLOW_ENGINE", engine)
        if engine == "spark":
            monkeypatch.setattr(StreamRows, "transformed", None)
        target = duckdb_at(tmp_path / f"{engine}.duckdb")
        assert drain(stream_from_keywords({**given, "target": target}, None))["total_rows"] == 2 + bad
    local, there = (stored(tmp_path / f"{engine}.duckdb") for engine in ("local", "spark"))
    assert local == there
    rows, rejects = there
    assert rows == [(1, 2, 2.5, None, None)]
    assert {Path(source_file).stem for source_file, *_ in rejects} == {"a"}
    assert len(rejects) == bad
    assert any("CAST_INVALID_INPUT" in reason for _, reason, *_ in rejects)
