"""Rows that came late are kept whatever becomes of rows that do not fit: those fail the load, are dropped or are kept, too."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt
from ematix_flow.engine import Options
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.stream.sinks.table import declaration_of, pipeline_of
from ematix_flow.errors import BadRowsError
from ematix_flow.plan.source import SourceValue

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.records import Counts

WINDOWS = Table("main", "windows", (Column(BigInt(), nullable=False, name="n"),))
LATE = pa.Table.from_pylist([{"reason": "late_data: window", "row_json": "{}"}], REJECTS)


def load(folder: Path, rows: list[str], on_error: str) -> Counts:
    """Load rows, next to one that came late, into a table of numbers."""
    files = connection_from_fields("files", {"kind": "object_store_local", "path": str(folder), "format": "csv"})
    there = connection_from_fields("there", {"kind": "sqlite", "path": str(folder / "there.db")})
    given = {"name": "s", "source": files, "source_query": "*", "target": there, "target_table": ("main", "windows")}
    stream = stream_from_keywords({**given, "transform_on_error": on_error}, None)
    declared = declaration_of(stream, stream.targets[0], WINDOWS)
    declared = replace(declared, write=replace(declared.write, keeps_known_rejects=True))
    source = OpenSource(SourceValue(files, frame=pa.table({"n": rows})), "files", rejects=LATE)
    return load_target(
        pipeline_of(stream, declared, "s"), declared, SourceRows(source, "1"), Options()
    ).committed.counts


def reasons(folder: Path) -> list[str]:
    """Return why rows were rejected."""
    with sqlite3.connect(folder / "there.db") as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%rejects'").fetchall()
        return sorted(row[0] for row in connection.execute(f'SELECT reason FROM "{names[0][0]}"'))


def test_a_row_that_does_not_fit_fails_the_load_although_late_rows_are_kept(tmp_path: Path) -> None:
    with pytest.raises(BadRowsError, match="1 of 2 rows do not fit the target") as caught:
        load(tmp_path, ["1", "many"], "fail")
    assert "late_data" not in str(caught.value)
    assert load(tmp_path, ["1", "2"], "fail").inserted == 2
    assert reasons(tmp_path) == ["late_data: window"]


@pytest.mark.parametrize(("on_error", "count"), [("drop", 1), ("dlq", 2)])
def test_other_rows_are_dropped_or_kept_as_the_stream_says(tmp_path: Path, on_error: str, count: int) -> None:
    assert load(tmp_path, ["1", "many"], on_error).inserted == 1
    stored = reasons(tmp_path)
    assert len(stored) == count
    assert "late_data: window" in stored
