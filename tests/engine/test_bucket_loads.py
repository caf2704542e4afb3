from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from ematix_flow.connect.metadata.session import head_of, record_of
from ematix_flow.declare.masking import is_secret_field
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine.rejects import list_rejects, replay_rejects
from ematix_flow.errors import RunError
from tests.depth import deep, deep_but
from tests.engine.bucket_loads import TABLE, Bucket, load, pipeline_of, write_source
from tests.services.buckets import CLOUDS, SERVICES, bucket_fields

pytestmark = [pytest.mark.service, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
QUERY = "SELECT id, label FROM orders"


EVERYWHERE = pytest.mark.parametrize("bucket", SERVICES, indirect=True)


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """Return an empty bucket of S3, or of the service that a test names."""
    return Bucket(bucket_fields(request, getattr(request, "param", "s3"), prefix="lake"))


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Any]:
    path = write_source(tmp_path / "source.sqlite", [(n, f"order {n}") for n in range(3)])
    return {"kind": "sqlite", "path": path}


def warehouse(tmp_path: Path) -> dict[str, Any]:
    return {"kind": "duckdb", "path": str(tmp_path / "warehouse.duckdb")}


def loaded(tmp_path: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(tmp_path / "warehouse.duckdb")) as connection:
        return connection.sql("SELECT id, label FROM main.orders ORDER BY ALL").fetchall()


ORDERS = [(n, f"order {n}") for n in range(3)]


@EVERYWHERE
def test_append_then_replace(bucket: Bucket, source: dict[str, Any]) -> None:
    bucket = Bucket({**bucket.fields, "prefix": "my lake/ä+1%20"})
    assert load(source, bucket.fields, QUERY)["rows_inserted"] == 3
    assert load(source, bucket.fields, QUERY)["rows_inserted"] == 3
    assert bucket.rows() == sorted(ORDERS * 2)
    assert len(bucket.keys()) == 2
    bucket.put(f"{TABLE}foreign.parquet", b"not ours")
    load(source, bucket.fields, f"{QUERY} WHERE id = 1", mode="truncate", name="replacing")
    assert bucket.rows() == [(1, "order 1")]
    assert bucket.keys("_ematix_flow/stage/") == []


def test_only_newer_rows_are_brought(bucket: Bucket, source: dict[str, Any]) -> None:
    assert load(source, bucket.fields, QUERY, incremental_column="id")["rows_inserted"] == 3
    write_source(Path(source["path"]), [(7, "order 7")])
    assert load(source, bucket.fields, QUERY, incremental_column="id")["rows_inserted"] == 1
    before = bucket.keys()
    assert load(source, bucket.fields, QUERY, incremental_column="id")["rows_inserted"] == 0
    assert bucket.rows() == [*ORDERS, (7, "order 7")]
    assert bucket.keys() == before


def test_a_request_that_was_done_adds_no_object(bucket: Bucket, source: dict[str, Any]) -> None:
    pipeline = pipeline_of(source, bucket.fields, QUERY)
    first = run_pipeline(pipeline, Options(slot="2026-01-01"))
    before = bucket.keys()
    again = run_pipeline(pipeline, Options(slot="2026-01-01"))
    assert (first["rows_inserted"], bucket.rows(), bucket.keys()) == (3, ORDERS, before)
    assert again["run_id"] == first["run_id"]


@EVERYWHERE
def test_bad_rows_are_kept_and_brought_again(bucket: Bucket, tmp_path: Path) -> None:
    path = write_source(tmp_path / "bad.sqlite", [(1, "good"), (None, "no id")])
    pipeline = pipeline_of({"kind": "sqlite", "path": path}, bucket.fields, QUERY, on_bad_row="reject")
    result = run_pipeline(pipeline, Options())
    assert (result["rows_inserted"], result["rows_rejected"], bucket.rows()) == (1, 1, [(1, "good")])
    (reject,) = list_rejects(pipeline)
    assert reject.column_name == "id"
    assert replay_rejects(pipeline, [reject.reject_id])["rejected"] == 1
    assert bucket.rows() == [(1, "good")]


CSV = b"id,label\n1,one\n2,\n"
FRAME = pa.table({"id": pa.array([1, 2], pa.int64()), "label": ["one", None]})


def typed(write: Any) -> bytes:
    sink = io.BytesIO()
    write(FRAME, sink)
    return sink.getvalue()


LINES = b'{"id": 1, "label": "one"}\n{"id": 2}\n'
FILES = {
    "a.csv": CSV,
    "a.csv.gz": gzip.compress(CSV),
    "a.jsonl": LINES,
    "a.jsonl.gz": gzip.compress(LINES),
    "a.parquet": typed(pq.write_table),
    "a.orc": typed(orc.write_table),
}


@pytest.mark.parametrize(
    ("bucket", "name"),
    [
        *(("s3", name) for name in FILES),
        *(pytest.param(*cloud.values, "a.parquet", marks=cloud.marks) for cloud in CLOUDS),
    ],
    indirect=["bucket"],
)
def test_files_of_every_format_become_rows(bucket: Bucket, tmp_path: Path, name: str) -> None:
    data = FILES[name]
    bucket.put(f"in/2026/{name}", data)
    bucket.put("in/2026/_hidden.csv", b"rubbish")
    bucket.put(f"in-between/{name}", data)
    assert load(bucket.fields, warehouse(tmp_path), "in")["rows_inserted"] == 2
    assert loaded(tmp_path) == [(1, "one"), (2, None)]


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("in/a/1.csv", 1), ("in", 4), ("in/*.csv", 1), ("in/**/*.csv", 4), ("in/a/[12].csv", 2), ("in/?/1.csv", 2),
        ("in/**", 4), ("**", 5), ("in/**.csv", 1), ("in/**/**", 4), ("in/a**/1**", 1),
    ],
)  # fmt: skip
def test_paths_and_patterns(bucket: Bucket, tmp_path: Path, pattern: str, count: int) -> None:
    keys = ("in/0.csv", "in/a/1.csv", "in/a/2.csv", "in/b/1.csv", "in/a/_2.csv", "out/1.csv")
    folder = {"kind": "object_store_local", "path": str(tmp_path / "local"), "format": "csv"}
    for number, key in enumerate(keys):
        content = f"id,label\n{number},one\n".encode()
        bucket.put(key, content)
        file = tmp_path / "local" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    assert load(bucket.fields, warehouse(tmp_path), pattern)["rows_inserted"] == count
    local = {**warehouse(tmp_path), "path": str(tmp_path / "local.duckdb")}
    assert load(folder, local, pattern, name="local")["rows_inserted"] == count


@pytest.mark.parametrize("pattern", ["", "**", "/nowhere/*.csv", "/nowhere"])
def test_a_pattern_of_a_folder_that_means_nothing_says_so(tmp_path: Path, pattern: str) -> None:
    folder = {"kind": "object_store_local", "path": str(tmp_path / "gone"), "format": "csv"}
    with pytest.raises(RunError, match=r"no files match .* below|is not below"):
        load(folder, warehouse(tmp_path), pattern)


def test_a_path_that_means_no_file(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no files match 'nothing' below s3://t-\w+/lake"):
        load(bucket.fields, warehouse(tmp_path), "nothing")


def test_from_one_folder_of_a_bucket_to_another(bucket: Bucket, source: dict[str, Any]) -> None:
    load(source, bucket.fields, QUERY)
    other = {**bucket.fields, "prefix": "refined", "format": "json_lines"}
    assert load(bucket.fields, other, "sales/orders", name="copying")["rows_inserted"] == 3
    (key,) = Bucket(other).keys()
    rows = [json.loads(line) for line in (Bucket(other).tables.store.read(key) or b"").splitlines()]
    assert sorted((row["id"], row["label"]) for row in rows) == ORDERS


@EVERYWHERE
def test_loads_at_the_same_time_lose_nothing(bucket: Bucket, source: dict[str, Any]) -> None:
    with ThreadPoolExecutor(3) as pool:
        loads = [pool.submit(load, source, bucket.fields, QUERY, name=f"writer {n}") for n in range(3)]
        assert [one.result()["rows_inserted"] for one in loads] == [3, 3, 3]
    assert bucket.rows() == sorted(ORDERS * 3)
    assert len(bucket.keys()) == 3


@pytest.mark.parametrize("bucket", deep_but(SERVICES, "s3"), indirect=True)
@pytest.mark.crash
def test_whatever_moment_a_load_is_killed_at_the_next_run_repairs_it(bucket: Bucket, source: dict[str, Any]) -> None:
    arguments = {"source": source, "target": bucket.fields, "returned": QUERY}
    command = [sys.executable, "-m", "tests.engine.bucket_loads", json.dumps(arguments)]
    load(**arguments)
    # The first record of a load opens the run, the second one holds the files.
    for number, (point, recorded) in enumerate((("before_record=kill@2", False), ("after_record=kill@2", True)), 2):
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "FLOW_FAILPOINTS": f"store.{point}"}
        assert subprocess.run(command, check=False, env=environment).returncode == -signal.SIGKILL
        store = bucket.tables.store
        assert ("added" in record_of(store, head_of(store).number)) == recorded
        assert bucket.rows() == sorted(ORDERS * (number - 1)), f"{point}: a file is seen under its name only"
        load(**arguments)
        assert bucket.rows() == sorted(ORDERS * number), f"{point}: the next run ends it, and adds nothing"
    assert len(bucket.keys()) == 3


def test_a_reader_finishes_what_a_killed_writer_left(
    bucket: Bucket, source: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = type(bucket.tables.store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "move", lambda *_: (_ for _ in ()).throw(OSError("the network is gone")))
        load(source, bucket.fields, QUERY)
        assert bucket.keys() == []
    assert load(bucket.fields, warehouse(tmp_path), "sales/orders", name="reading")["rows_inserted"] == 3
    assert (loaded(tmp_path), bucket.rows()) == (ORDERS, ORDERS)


@pytest.mark.parametrize("bucket", ["s3", deep("gcs"), deep("azure")], indirect=True)
@pytest.mark.spark
def test_a_query_over_files_of_a_bucket_is_evaluated_by_spark(bucket: Bucket, tmp_path: Path, spark: Any) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.uint32()),
            "label": pa.array(["one", "two", None]).dictionary_encode(),
            "at": pa.array([0, 1, 2], pa.timestamp("ns")),
            "more": pa.array([{"x": 1}, None, {"x": 3}]),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    bucket.put("in/a.parquet", sink.getvalue())
    bucket.put("names/a.csv", b"id,name\n1,eins\n2,zwei\n")
    fields = {**bucket.fields, "prefix": "lake/in"}
    query = "SELECT id, concat(label, more, date_format(at, ' yyyy')) AS label FROM source WHERE id < 3"
    assert load(fields, warehouse(tmp_path), query)["rows_inserted"] == 2
    assert loaded(tmp_path) == [(1, 'one{"x":1} 1970'), (2, None)]
    refined = Bucket({**bucket.fields, "prefix": "refined"})
    assert load(fields, refined.fields, query, name="refining")["rows_inserted"] == 2
    assert refined.rows() == [(1, 'one{"x":1} 1970'), (2, None)]
    settings = str(spark.sparkContext.getConf().getAll()) if hasattr(spark, "sparkContext") else ""
    assert not [key for name, key in bucket.fields.items() if is_secret_field(name) and key in settings]
