"""Transforms over rows that Spark shapes: rows and lines that cannot be read go round them, whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow import BigInt, Integer, Text, pk
from ematix_flow.errors import BadRowsError, PlanError
from ematix_flow.transforms import filter_where
from tests.contracts.test_wraps import LARGE, SUMS, Wrap
from tests.engine.files import load

if TYPE_CHECKING:
    from pathlib import Path


COLUMNS = {"id": Annotated[BigInt, pk()], "number": Integer | None, "note": Text | None}
CSV = {"a.csv": b"id,number,note\n1,2,a\n1,3,b\n2,1,c\nragged\n4,oops,d\n"}
JSON_LINES = {
    "a.jsonl": b'{"id": 1, "number": 2, "note": "a"}\n{"id": 1, "number": 3, "note": "b"}\n'
    b'{"id": 2, "number": 1, "note": "c"}\n{"id": 3,\n{"id": 4, "number": "oops", "note": "d"}\n'
}
WRAPS: dict[str, tuple[Any, dict[int, tuple[Any, ...]]]] = {
    "aggregates": (SUMS, {1: (5, "a"), 2: (1, "c")}),
    "filters": (Wrap("SELECT id, number, note FROM INNER_ROWS WHERE note = 'c'"), {2: (1, "c")}),
    "own filter": (filter_where("number < 2"), {2: (1, "c")}),
    "star": (Wrap("SELECT * FROM INNER_ROWS WHERE note = 'c'"), {2: (1, "c")}),
}


def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


@pytest.mark.spark
@pytest.mark.parametrize("name", WRAPS)
@pytest.mark.parametrize("form", ["csv", "json_lines"])
def test_broken_lines_and_values_are_rejects_whatever_the_transforms_keep(
    spark: Any, tmp_path: Path, name: str, form: str
) -> None:
    transform, expected = WRAPS[name]
    files = CSV if form == "csv" else JSON_LINES
    found = load(folder(tmp_path), files, COLUMNS, format=form, transforms_pre=[transform], spark=spark)
    assert found.rows == expected
    assert sorted(column for _, column, _ in found.rejects) == ["line", "number"]
    assert all(position for position, _ in found.sources), "each reject says where its row stands"
    [value] = [json.loads(row) for _, row in found.sources if "oops" in row]
    assert value["number"] == "oops"


@pytest.mark.spark
def test_a_wrapped_load_of_files_fails_with_the_row_that_does_not_fit(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(BadRowsError, match="oops"):
        load(folder(tmp_path), CSV, COLUMNS, transforms_pre=[SUMS, LARGE], on_bad_row="fail", spark=spark)


@pytest.mark.spark
def test_a_column_may_be_called_like_the_view_of_the_rows(spark: Any, tmp_path: Path) -> None:
    columns = {"id": Annotated[BigInt, pk()], "doc_src_raw": Text | None}
    files = {"a.csv": b"id,doc_src_raw\n1,a\n2,b\n"}
    found = load(folder(tmp_path), files, columns, transforms_pre=[filter_where("doc_src_raw = 'b'")], spark=spark)
    assert found.rows == {2: ("b",)}


@pytest.mark.parametrize("name", ["_flow_raw", "_flow_corrupt", "_FLOW_failed", "_flow_position"])
def test_a_column_of_a_file_that_is_called_like_one_of_ours_is_refused(tmp_path: Path, name: str) -> None:
    columns = {"id": Annotated[BigInt, pk()]}
    with pytest.raises(PlanError, match=name):
        load(folder(tmp_path), {"a.csv": f"id,{name}\n1,a\n".encode()}, columns)


@pytest.mark.spark
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_query_over_files_sees_the_columns_of_the_files_alone(spark: Any, tmp_path: Path, form: str) -> None:
    table = pa.table({"id": ["1", "2"], "note": ["a", "b"]})
    text = b"id,note\n1,a\n2,b\n"
    content: Any = text if form == "csv" else lambda path: pq.write_table(table, path)
    files = {f"one.{form}": content, f"two.{form}": content}
    columns = {"id": Annotated[BigInt, pk()], "note": Text | None}
    query = "SELECT DISTINCT * FROM source"
    found = load(folder(tmp_path), files, columns, format=form, query=query, spark=spark)
    assert found.rows == {1: ("a",), 2: ("b",)}
