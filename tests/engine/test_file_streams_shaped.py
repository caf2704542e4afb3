"""Streams of files into tables that nobody declared: every file once, in the types that its values show or exactly as written."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.run import StreamOptions, run_stream
from ematix_flow.engine.stream.sinks import shaped_files
from ematix_flow.errors import FlowError
from ematix_flow.run.read.infer_files import valued


def _run(target: dict[str, Any], form: str = "csv", **keywords: Any) -> dict[str, Any]:
    source = connection_from_fields("inbox", {"kind": "object_store_local", "path": "inbox", "format": form})
    connection = connection_from_fields("place", target)
    settings = {"name": "inbox", "source": source, "source_query": "in", "target": connection, **keywords}
    return run_stream(stream_from_keywords(settings, None), StreamOptions(available_now=True))


def _write(name: str, text: str) -> None:
    (Path("inbox") / "in").mkdir(parents=True, exist_ok=True)
    (Path("inbox") / "in" / name).write_text(text, "utf-8")


@pytest.fixture
def table() -> dict[str, Any]:
    """Return the connection of a database that has a table of parts."""
    with closing(duckdb.connect("place.duckdb")) as connection:
        connection.execute("CREATE TABLE parts (id BIGINT, code VARCHAR, price DECIMAL(30,10))")
    return {"kind": "duckdb", "path": "place.duckdb"}


def _parts() -> list[tuple[Any, ...]]:
    with closing(duckdb.connect("place.duckdb")) as connection:
        return connection.execute("SELECT id, code, price::VARCHAR FROM parts ORDER BY id, code").fetchall()


@pytest.mark.slow
def test_a_table_that_is_there_gets_every_file_once_and_exactly(table: dict[str, Any]) -> None:
    _write("b.csv", "id,code,price\n2,007,12345678901234567890.1234567891\n")
    for expected in (1, 0):
        assert _run(table, target_table=("main", "parts"))["total_rows"] == expected
    _write("a.csv", "id,code,price\n1,x,1\n")
    assert _run(table, target_table=("main", "parts"))["total_rows"] == 1
    assert _parts() == [(1, "x", "1.0000000000"), (2, "007", "12345678901234567890.1234567891")]


@pytest.mark.slow
def test_some_files_at_a_time_are_all_files_in_the_end(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaped_files, "BYTES", 40)
    for number in range(5):
        _write(f"{number}.csv", f"id,code,price\n{number},c,{number}\n")
    counts = _run(table, target_table=("main", "parts"))
    assert (counts["total_rows"], counts["iterations"] > 1) == (5, True)
    assert [row[0] for row in _parts()] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_bad_line_fails_the_batch_or_is_set_aside(table: dict[str, Any]) -> None:
    _write("a.csv", "id,code,price\n1,x,1\n2,y\n3,z,3\n")
    with pytest.raises(FlowError, match="2,y"):
        _run(table, target_table=("main", "parts"))
    assert _parts() == []
    counts = _run(table, target_table=("main", "parts"), transform_on_error="dlq")
    assert counts["total_rows"] == 3
    assert [row[0] for row in _parts()] == [1, 3]


@pytest.mark.slow
def test_a_file_that_changed_under_its_name_is_refused(table: dict[str, Any]) -> None:
    _write("a.csv", "id,code,price\n1,x,1\n")
    _run(table, target_table=("main", "parts"))
    _write("a.csv", "id,code,price\n1,x,22\n")
    with pytest.raises(FlowError, match="has changed since it was loaded"):
        _run(table, target_table=("main", "parts"))


def test_a_folder_gets_files_in_the_types_that_values_show() -> None:
    lines = [{"id": 1, "code": "007", "on": True}, {"id": 2, "code": "12", "on": None}]
    _write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    target = {"kind": "object_store_local", "path": "outbox", "format": "json_lines"}
    assert _run(target, "json_lines", target_prefix="copies")["total_rows"] == 2
    (file,) = Path("outbox/copies").glob("*.jsonl")
    documents = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert documents == [{"id": 1, "code": "007", "on": True}, {"id": 2, "code": "12"}]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", None, "-20"], pa.array([1, None, -20])),
        (["1", "1.50", "2e3"], pa.array([1.0, 1.5, 2000.0])),
        (["007", "8"], pa.array(["007", "8"])),
        (["+1"], pa.array(["+1"])),
        (["true", "false"], pa.array([True, False])),
        (["1", "true"], pa.array(["1", "true"])),
        ([None], pa.array([None], pa.string())),
        (["1234567890123456789", "-9223372036854775808"], pa.array([1234567890123456789, -(2**63)])),
        (["9223372036854775807", "1"], pa.array([2**63 - 1, 1])),
        (["9223372036854775808", "1"], pa.array([2**63, 1], pa.decimal128(38, 0))),
        (["9" * 38, None], pa.array([10**38 - 1, None], pa.decimal128(38, 0))),
        (["12345678901234567890", "0.5"], pa.array([12345678901234567890.0, 0.5])),
    ],
)
def test_texts_are_numbers_where_all_of_them_are_written_as_such(texts: list[str | None], expected: pa.Array) -> None:
    valued_texts = valued(pa.chunked_array([pa.array(texts, pa.string())]))
    assert valued_texts.combine_chunks().equals(expected)
