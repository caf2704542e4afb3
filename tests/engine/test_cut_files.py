"""A large file is read by several tasks, and what comes of it is what comes of it when one reads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pytest

from ematix_flow import BigInt, Numeric, Text, pk
from ematix_flow.connect.files.source import Files
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.errors import RunError
from ematix_flow.plan.columns import ORDER
from ematix_flow.run.local import threads
from ematix_flow.run.read import file_partitions
from ematix_flow.run.read.arrival import numbered_partitions
from ematix_flow.run.read.file_frames import file_frame
from ematix_flow.run.stage import file_tasks as file_task
from ematix_flow.run.stage import tasks
from tests.engine.files import load

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = {"id": Annotated[BigInt, pk()], "name": Text | None, "amount": Numeric[10, 2]}
ROWS = 400


def as_csv() -> bytes:
    """Return rows with line ends inside of quotes, and some that are wrong."""
    names = ['"two\r\nlines, one ""row"""', "plain", "", '"5,6"', '5" pipe']
    lines = [f"{number},{names[number % 5]},{'oops' if number % 50 == 7 else number / 4}" for number in range(ROWS)]
    lines[100:100] = ["only one", "1,2,3,4"]
    return b"\xef\xbb\xbfid,name,amount\r\n" + "\r\n".join(lines).encode()


def as_json() -> bytes:
    """Return rows as lines of JSON, and some that are wrong."""
    lines = [json.dumps({"id": number, "name": "two\nlines", "amount": number / 4}) for number in range(ROWS)]
    lines[100:100] = ["", "{oops", "[]"]
    return "\n".join(lines).encode()


@pytest.fixture
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let files of a few hundred bytes be large, and note how many pieces are staged."""
    for module, name in ((file_partitions, "PARTITION_BYTES"), (file_partitions, "SMALLEST"), (file_task, "TOGETHER")):
        monkeypatch.setattr(module, name, 700)
    counts: list[int] = []
    in_threads, in_tasks = threads.stage_in_threads, tasks.stage_partitions

    def counted(partitions: Any, at_once: int | None = None) -> Any:
        counts.append(len(partitions))
        return in_threads(partitions, at_once)

    def counted_on_spark(spark: Any, partitions: Any, *more: Any) -> Any:
        counts.append(len(partitions))
        return in_tasks(spark, partitions, *more)

    monkeypatch.setattr(threads, "stage_in_threads", counted)
    monkeypatch.setattr(tasks, "stage_partitions", counted_on_spark)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize(("form", "data"), [("csv", as_csv()), ("json_lines", as_json())], ids=["csv", "json"])
def test_a_cut_file_is_loaded_as_a_whole_one(
    tmp_path: Path, form: str, data: bytes, engine: str, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "raw").mkdir()
    whole = load(tmp_path / "raw", {"a": data}, COLUMNS, format=form, query="a")
    assert len(whole.rows) > ROWS * 0.9
    assert whole.rejects
    (tmp_path / "raw.duckdb").unlink()
    counts = request.getfixturevalue("small_partitions")
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    cut = load(tmp_path / "raw", {"a": data}, COLUMNS, format=form, query="a", spark=spark)
    assert counts == [pytest.approx(len(data) / 700, rel=0.3)]
    assert (cut.rows, sorted(cut.rejects), cut.sources) == (whole.rows, sorted(whole.rejects), whole.sources)


def files_of(path: Path, data: bytes, name: str = "a.csv") -> Any:
    (path / name).write_bytes(data)
    form = "csv" if name.endswith("csv") else "json_lines"
    fields = {"kind": "object_store_local", "path": str(path), "format": form}
    return Files(connection_from_fields("in", fields)).file_set("", {})  # type: ignore[arg-type]


@pytest.mark.usefixtures("small_partitions")
def test_rows_of_a_cut_file_keep_their_order(tmp_path: Path) -> None:
    files = files_of(tmp_path, b"id\n" + b"".join(b"%d\n" % number for number in range(3_000)))
    partitions = numbered_partitions(file_partitions.split_files(files, slots=lambda: 2), files.paths)
    assert len(partitions) > 10
    rows = pa.concat_tables([table for partition in reversed(partitions) for table in partition.read()]).sort_by(ORDER)
    assert rows.column("id").to_pylist() == [str(number) for number in range(3_000)]


def test_pieces_are_as_large_as_the_slots_make_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_of(tmp_path, b"id\n" + b"1234567\n" * 10_000)
    monkeypatch.setattr(file_partitions, "PARTITION_BYTES", 40_000)
    monkeypatch.setattr(file_partitions, "SMALLEST", 5_000)
    counts = [len(file_partitions.split_files(files, slots=lambda slots=slots: slots)) for slots in (1, 2, 8, 1_000)]
    assert len(file_partitions.split_files(files)) == 1, (
        "whoever reads one after the other need not look for places to cut"
    )
    assert counts == [2, 2, 8, 16]


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_pieces_of_two_files_under_one_name_are_never_mixed(tmp_path: Path, name: str) -> None:
    data = {"a.csv": as_csv, "a.jsonl": as_json}[name]()
    files = files_of(tmp_path, data, name)
    first, second, *_ = file_partitions.split_files(files, slots=lambda: 2)
    reading = first.read()
    next(reading)
    (tmp_path / "new").write_bytes(data[:3] + data)
    (tmp_path / "new").replace(tmp_path / name)
    list(reading)  # who has opened the file reads on in it
    for partition in (first, second):
        with pytest.raises(RunError, match="replaced while it was read"):
            list(partition.read())


@pytest.mark.spark
@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_spark_reads_a_cut_file(spark: SparkSession, tmp_path: Path, name: str) -> None:
    files = files_of(tmp_path, {"a.csv": as_csv, "a.jsonl": as_json}[name](), name)
    frame = file_frame(spark, files)
    parts = frame.rdd.getNumPartitions()
    rows = [row.id for row in frame.collect() if row.id is not None]
    assert parts > 5
    assert [int(row) for row in rows] == list(range(ROWS))
