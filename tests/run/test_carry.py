"""Parts that come to the driver with the results of tasks or through a store: whole, of winning attempts, and nothing left behind."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow.connect.base.stage import StageSpec
from ematix_flow.connect.staging.parquet import ParquetStager, check_parts
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.errors import RunError
from ematix_flow.records import TaskReport
from ematix_flow.run.stage.tasks import report_batch, stage_partitions
from ematix_flow.run.stage.transport import ROOT, Carrier, sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = 40_000


def _spec(folder: str) -> StageSpec:
    return StageSpec("stg_1", SCHEMA.serialize().to_pybytes(), folder=folder)


def _stage(position: tuple[int, int], **_: object) -> TaskReport:
    """Stage rows as a task of another machine does; they do not compress, so that a file has several pieces."""
    partition, attempt = position
    stager = ParquetStager(_spec(""), partition, attempt)
    for begin in range(0, ROWS, 10_000):
        ids = range(begin, begin + 10_000)
        texts = [os.urandom(20).hex() for _ in ids]
        stager.write(pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array(texts)], schema=SCHEMA))
    path, _ = stager.finish()
    return TaskReport(partition, attempt, ROWS, 0, path)


@pytest.mark.spark
@pytest.mark.parametrize("through", ["results", "store"])
def test_parts_arrive_whole(through: str, spark: SparkSession, tmp_path: Path) -> None:
    folder, between = tmp_path / "here", tmp_path / "between"
    folder.mkdir()
    store = LocalStore(str(between)) if through == "store" else None
    parts = stage_partitions(spark, (_stage, _stage, _stage), carrier=Carrier("stg_1", str(folder), store))
    check_parts(_spec(str(folder)), parts)
    assert sorted(Path(part.path).name for part in parts) == sorted(file.name for file in folder.iterdir())
    assert [part.partition for part in parts] == [0, 1, 2]
    assert all(pq.read_table(part.path).column("id").to_pylist() == list(range(ROWS)) for part in parts)
    assert not list(between.rglob("*.parquet"))
    assert not list(Path(tempfile.gettempdir()).glob("ematix-flow-stage-*"))


@pytest.mark.parametrize("ending", ["carried", "abandoned", "empty"])
def test_an_attempt_leaves_nothing_on_its_machine(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stager = ParquetStager(_spec(""), 0, 0)
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["a"])], schema=SCHEMA)
    if ending != "empty":
        stager.write(batch)
        stager.reject(pa.RecordBatch.from_pylist([{"reason": "bad"}], schema=REJECTS))
    if ending == "abandoned":
        stager.abandon()
    else:
        paths = stager.finish()
        report = report_batch(TaskReport(0, 0, 1, 1, *paths))
        assert len(list(Carrier("stg_1", str(tmp_path)).sending(lambda _: [report])(()))) == (3 if all(paths) else 1)
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_the_store_does_not_have_is_told(tmp_path: Path) -> None:
    class Row:
        def asDict(self) -> dict[str, object]:  # noqa: N802 - as Spark's rows
            batch = report_batch(TaskReport(0, 7, 1, 0, "/there/part-00000-7.parquet"))
            return batch.to_pylist()[0] | {"file": "", "chunk": None}

    carrier = Carrier("stg_1", str(tmp_path), LocalStore(str(tmp_path / "between")))
    with pytest.raises(RunError, match=r"does not have .*part-00000-7\.parquet"):
        carrier.receive([Row()])


def test_what_killed_drivers_left_in_a_store_is_removed_by_age(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    for name, days in (("old", 3), ("young", 1)):
        store.write(f"{ROOT}{name}/part.parquet", b"x")
        then = time.time() - days * 24 * 3600
        os.utime(tmp_path / ROOT / name / "part.parquet", (then, then))
    sweep(store)
    assert [entry.key for entry in store.listed(ROOT)] == [f"{ROOT}young/part.parquet"]
