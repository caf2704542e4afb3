"""Transforms over rows that Spark shapes: rows and lines that cannot be read go round them, whole."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow import BigInt, Integer, Text, ematix, pk, register_connection
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine.rejects import list_rejects
from ematix_flow.errors import BadRowsError, PlanError
from ematix_flow.normalize import regex_replace
from ematix_flow.transforms import filter_where
from tests.contracts.test_wraps import LARGE, SUMS, Wrap
from tests.engine.files import load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession


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
    inbox = tmp_path / "in"
    inbox.mkdir()
    return inbox


@pytest.mark.in_turn
@pytest.mark.spark
@pytest.mark.parametrize("name", WRAPS)
@pytest.mark.parametrize("form", ["csv", "json_lines"])
def test_broken_lines_and_values_are_rejects_whatever_the_transforms_keep(
    spark: Any, tmp_path: Path, name: str, form: str
) -> None:
    transform, expected = WRAPS[name]
    files = CSV if form == "csv" else JSON_LINES
    outcome = load(folder(tmp_path), files, COLUMNS, format=form, transforms_pre=[transform], spark=spark)
    assert outcome.rows == expected
    assert sorted(column for _, column, _ in outcome.rejects) == ["line", "number"]
    assert all(position for position, _ in outcome.sources), "each reject says where its row stands"
    [value] = [json.loads(row) for _, row in outcome.sources if "oops" in row]
    assert value["number"] == "oops"


@pytest.mark.spark
def test_a_wrapped_load_of_files_fails_with_the_row_that_does_not_fit(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(BadRowsError, match="oops"):
        load(folder(tmp_path), CSV, COLUMNS, transforms_pre=[SUMS, LARGE], on_bad_row="fail", spark=spark)


@pytest.mark.spark
def test_a_column_may_be_called_like_the_view_of_the_rows(spark: Any, tmp_path: Path) -> None:
    columns = {"id": Annotated[BigInt, pk()], "doc_src_raw": Text | None}
    files = {"a.csv": b"id,doc_src_raw\n1,a\n2,b\n"}
    outcome = load(folder(tmp_path), files, columns, transforms_pre=[filter_where("doc_src_raw = 'b'")], spark=spark)
    assert outcome.rows == {2: ("b",)}


@pytest.mark.slow
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
    outcome = load(folder(tmp_path), files, columns, format=form, query=query, spark=spark)
    assert outcome.rows == {1: ("a",), 2: ("b",)}


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_over_files_reads_each_file_by_its_name(spark: Any, tmp_path: Path) -> None:
    names = [
        "report[1]",
        "report1",
        "a{b,c}",
        "star*x",
        "starsx",
        "q?x",
        "back\\slash",
        "2024-01-01T00:00:00",
        "pl+us %20",
    ]

    def write(path: Path) -> None:
        pq.write_table(pa.table({"name": [path.stem], "number": [names.index(path.stem)]}), path)

    columns = {"name": Annotated[Text, pk()], "number": Integer}
    inbox = tmp_path / "in [x]"
    inbox.mkdir()
    files: Any = dict.fromkeys((f"{name}.parquet" for name in names), write)
    query = "SELECT name, number FROM source"
    outcome = load(inbox, files, columns, format="parquet", query=query, spark=spark)
    assert outcome.rows == {name: (number,) for number, name in enumerate(names)}


@pytest.mark.spark
def test_rows_that_are_others_when_they_are_read_again_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    def chance(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            texts = ["x" if byte % 2 else "1" for byte in os.urandom(batch.num_rows)]
            yield pa.RecordBatch.from_arrays(
                [batch.column(0), pa.array(texts), pa.array(texts)], ["id", "number", "note"]
            )

    frame = spark.range(0, 400, 1, 2).mapInArrow(chance, "id bigint, number string, note string")
    register_connection(connection_from_fields("warehouse", {"kind": "duckdb", "path": str(tmp_path / "w.duckdb")}))
    table = ematix.table(schema="main", name="loaded")(type("Loaded", (), {"__annotations__": COLUMNS}))
    options = {"target_connection": "warehouse", "mode": "append", "on_bad_row": "reject", "transforms_pre": [SUMS]}

    @ematix.pipeline(name="load", target=table, **options)
    def source(conn: Any) -> Any:
        return frame

    context: Any = spark.sparkContext._jsc
    before = len(context.getPersistentRDDs())
    result = run_pipeline(source.pipeline, Options(spark=spark))
    assert result["rows_rejected"] > 0
    assert result["rows_inserted"] + result["rows_rejected"] == 400
    assert len(context.getPersistentRDDs()) == before, "nothing is kept after the load"


@pytest.mark.spark
def test_a_database_whose_rows_spark_shapes_has_its_bad_rows_beside_the_wrap(spark: Any, tmp_path: Path) -> None:
    database_file = tmp_path / "w.duckdb"
    with duckdb.connect(str(database_file)) as connection:
        connection.execute(
            "CREATE TABLE given AS SELECT * FROM (VALUES (1, '2', 'a'), (1, '3', 'b'), (2, 'x', 'c')) t(id, number, note)"
        )
    register_connection(connection_from_fields("warehouse", {"kind": "duckdb", "path": str(database_file)}))
    replaced = Annotated[Text, regex_replace("(?=a)", "-")]
    columns = {**COLUMNS, "note": replaced}
    table = ematix.table(schema="main", name="loaded")(type("Loaded", (), {"__annotations__": columns}))

    @ematix.pipeline(
        name="load", target=table, target_connection="warehouse", source_connection="warehouse", mode="append",
        on_bad_row="reject", transforms_pre=[SUMS],
    )  # fmt: skip
    def source(conn: Any) -> str:
        return "SELECT * FROM given"

    result = run_pipeline(source.pipeline, Options(spark=spark))
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 1)
    with duckdb.connect(str(database_file)) as connection:
        assert connection.execute("SELECT id, number, note FROM main.loaded").fetchall() == [(1, 5, "-a")]
    [reject] = list_rejects(source.pipeline)
    assert json.loads(reject.row_json) == {"id": 2, "number": "x", "note": "c"}


@pytest.mark.spark
def test_source_is_every_file_also_where_a_folder_is_called_so(spark: Any, tmp_path: Path) -> None:
    path = folder(tmp_path)
    for name in ("source", "other"):
        (path / name).mkdir()
    files = {"source/a.csv": b"id,note\n1,a\n", "other/b.csv": b"id,note\n2,b\n"}
    columns = {"id": Annotated[BigInt, pk()], "note": Text | None}
    outcome = load(path, files, columns, query="SELECT id, note FROM source", spark=spark)
    assert outcome.rows == {1: ("a",), 2: ("b",)}
