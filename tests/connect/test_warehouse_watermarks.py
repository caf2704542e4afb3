"""The file with the watermarks of pipelines between warehouses has what each of them has stored last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ematix_flow.connect.warehouse.watermarks import FileWatermarkStore

if TYPE_CHECKING:
    from pathlib import Path

PIPELINES = [f"pipeline {number}" for number in range(4)]
TIMES = 20


def test_pipelines_that_store_at_the_same_time_lose_no_watermark(tmp_path: Path) -> None:
    path = tmp_path / "state" / "watermarks.json"

    def store(pipeline: str) -> None:
        for value in range(TIMES):
            FileWatermarkStore(path).set(pipeline, str(value))

    with ThreadPoolExecutor(len(PIPELINES)) as pool:
        list(pool.map(store, PIPELINES))
    read = FileWatermarkStore(path)
    assert {pipeline: read.get(pipeline) for pipeline in PIPELINES} == dict.fromkeys(PIPELINES, str(TIMES - 1))
    assert {file.name for file in path.parent.iterdir()} == {"watermarks.json", "watermarks.json.lock"}
