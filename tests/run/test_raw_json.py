"""Documents and rejects of rows that this process moves: written as Spark writes them."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from ematix_flow.run.stage.raw_json import json_rows, loadable_table


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (timedelta(microseconds=5), "INTERVAL '0 00:00:00.000005' DAY TO SECOND"),
        (timedelta(days=400, hours=26, seconds=1.5), "INTERVAL '401 02:00:01.5' DAY TO SECOND"),
        (-timedelta(minutes=1), "INTERVAL '-0 00:01:00' DAY TO SECOND"),
    ],
)
def test_durations_are_written(value: timedelta, written: str) -> None:
    table = pa.table({"took": pa.array([value], pa.duration("us")), "all": pa.array([[value]])})
    assert json_rows(table, ["took"]) == [f'{{"took":"{written}"}}']
    assert loadable_table(table).column("all").to_pylist() == [f'["{written}"]']
