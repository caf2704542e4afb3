"""Each option of files, on the way out and on the way in: a test here fails when its option is ignored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow import Source, Target, ematix, pk
from ematix_flow.connect.files.source import Files
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.errors import DeclareError, FlowError, RunError
from ematix_flow.run.read.file_partitions import split_files
from ematix_flow.types import BigInt, Text
from tests.engine.files import load

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection

COLUMNS = {"id": Annotated[BigInt, pk()], "what": Text | None}
ROWS = pa.table({"id": [1, 2, 3], "what": ['a;b\'s "c"\\d', None, ""]})


def folder(path: Path, file_format: str) -> Connection:
    return connection_from_fields("lake", {"kind": "object_store_local", "path": str(path), "format": file_format})


def written(path: Path, file_format: str, **options: Any) -> list[Path]:
    """Load the rows with options of a target, and return the files."""
    table = ematix.table(schema="main", name="things")(type("Things", (), {"__annotations__": dict(COLUMNS)}))
    chosen = Target(table=table, connection=folder(path, file_format), **options)

    @ematix.pipeline(name="things", targets=[chosen], source_connection=folder(path, file_format), mode="append")
    def things(conn: Any) -> Any:
        return ROWS

    run_pipeline(things.pipeline, Options())
    return [file for file in path.rglob("*") if file.suffix in (".csv", ".parquet")]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, ["id,what", '1,"a;b\'s ""c""\\d"', "2,", '3,""']),
        ({"csv_delimiter": ";"}, ["id;what", '1;"a;b\'s ""c""\\d"', "2;", '3;""']),
        ({"csv_header": False}, ['1,"a;b\'s ""c""\\d"', "2,", '3,""']),
        ({"csv_quote": "'"}, ["id,what", "1,'a;b''s \"c\"\\d'", "2,", "3,''"]),
        ({"csv_escape": "\\"}, ["id,what", '1,"a;b\'s \\"c\\"\\\\d"', "2,", '3,""']),
        ({"csv_null_value": "\\N"}, ["id,what", '1,"a;b\'s ""c""\\d"', "2,\\N", '3,""']),
    ],
)
def test_csv_is_written_as_the_target_says(options: dict[str, Any], lines: list[str], tmp_path: Path) -> None:
    (file,) = written(tmp_path, "csv", **options)
    shown = [line.rsplit(options.get("csv_delimiter", ","), 2)[0] for line in file.read_text().splitlines()]
    assert shown == lines


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "zstd"])
def test_parquet_is_compressed_as_the_target_says(compression: str, tmp_path: Path) -> None:
    (file,) = written(tmp_path, "parquet", parquet_compression=compression, prefix="raw/events")
    assert file.parent == tmp_path / "raw" / "events"
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == compression.upper()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "content", "rows"),
    [
        ({"delimiter": ";"}, b"id;what\n1;a,b\n", {1: ("a,b",)}),
        ({"quote": "'"}, b"id,what\n1,'a,\"b'\n", {1: ('a,"b',)}),
        ({"escape": "\\"}, b'id,what\n1,"a\\"b"\n', {1: ('a"b',)}),
        ({"comment": "#"}, b"# made by hand\nid,what\n1,a\n# the end\n", {1: ("a",)}),
        ({"null_regex": r"^(NA|NULL|\\N)$"}, b"id,what\n1,NA\n2,\\N\n3,NAN\n", {1: (None,), 2: (None,), 3: ("NAN",)}),
        (
            {"null_regex": r"^(NA|NULL|\\N)$", "escape": "\\"},
            b'id,what\n1,\\N\n2,"\\"N"\n3,\\Nx\n4,a\\,b\n5,NA',
            {1: (None,), 2: ('"N',), 3: ("Nx",), 4: ("a,b",), 5: (None,)},
        ),
        ({"truncated_rows_ok": True}, b"id,what\n1\n2,b\n", {1: (None,), 2: ("b",)}),
        ({"terminator": "\r"}, b"id,what\r1,a\r", {1: ("a",)}),
        ({"terminator": "|"}, b"id,what|1,a|2,|3,b", {1: ("a",), 2: (None,), 3: ("b",)}),
        ({"terminator": "|"}, b"id,what|1,a|\r\n", {1: ("a",)}),
        ({"terminator": "|", "comment": "#"}, b'id,what|# no\nrow|1,"a|b"|', {1: ("a|b",)}),
        (
            {"terminator": "\x1e"},
            b'id,what\x1e1,two\nlines\x1e2,"a ""b""\r\n"\x1e',
            {1: ("two\nlines",), 2: ('a "b"\r\n',)},
        ),
        ({"terminator": "|", "escape": "\\"}, b'id,what|1,x\ny "z"|2,"a\\"b|"|', {1: ('x\ny "z"',), 2: ('a"b|',)}),
        ({"terminator": "|", "truncated_rows_ok": True}, b"id,what|1|2,b|", {1: (None,), 2: ("b",)}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) and isinstance(next(iter(value)), str) else "",
)
def test_csv_is_read_as_the_connection_says(
    options: dict[str, Any], content: bytes, rows: dict[int, tuple[Any, ...]], tmp_path: Path
) -> None:
    path = tmp_path / "in"
    path.mkdir()
    outcome = load(path, {"a.csv": content}, COLUMNS, settings={"csv_read_options": options})
    assert (outcome.rows, outcome.rejects) == (rows, [])


@pytest.mark.slow
def test_a_file_without_names_gets_some(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.mkdir()
    settings = {"csv_read_options": {"has_header": False}}
    mapped = {"id": "_c0", "what": "_c1"}
    assert load(path, {"a.csv": b"1,a\n"}, COLUMNS, settings=settings, column_map=mapped).rows == {1: ("a",)}


@pytest.mark.parametrize(
    ("terminator", "message"), [("||", "is not one ASCII character"), (",", "are the same character")]
)
def test_a_terminator_is_one_character_of_its_own(tmp_path: Path, terminator: str, message: str) -> None:
    path = tmp_path / "in"
    path.mkdir()
    with pytest.raises(DeclareError, match=message):
        load(path, {"a.csv": b"id,what|1,a|"}, COLUMNS, settings={"csv_read_options": {"terminator": terminator}})


@pytest.mark.slow
def test_quotes_that_do_not_match_are_told_with_the_record(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.mkdir()
    with pytest.raises(RunError, match="the quotes of the record at line 3 do not match"):
        load(path, {"a.csv": b'id,what|1,a|2,"b|'}, COLUMNS, settings={"csv_read_options": {"terminator": "|"}})


@pytest.mark.slow
def test_what_was_written_in_a_dialect_is_read_in_it(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "csv", csv_delimiter=";", csv_quote="'", csv_escape="\\", csv_null_value="~")
    options = {"delimiter": ";", "quote": "'", "escape": "\\", "null_regex": "^~$"}
    path = tmp_path / "in"
    path.mkdir()
    outcome = load(path, {"a.csv": file.read_bytes()}, COLUMNS, settings={"csv_read_options": options})
    assert outcome.rows == {1: ('a;b\'s "c"\\d',), 2: (None,), 3: ("",)}


def lines(path: Path, **options: Any) -> Any:
    """Return the files of a folder with thirteen lines of JSON, the last of which has a key of its own."""
    rows = [*({"id": number} for number in range(12)), {"id": 12, "what": "late"}]
    (path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    fields = {"kind": "object_store_local", "path": str(path), "format": "json_lines", "json_read_options": options}
    return Files(connection_from_fields("in", fields))  # type: ignore[arg-type]


def test_keys_are_looked_for_in_as_many_lines_as_the_connection_says(tmp_path: Path) -> None:
    assert [column.name for column in lines(tmp_path).file_set("", {}).columns] == ["id", "what"]
    few = lines(tmp_path, schema_infer_max_records=12).file_set("", {})
    assert [column.name for column in few.columns] == ["id"]


def test_lines_are_read_as_many_at_a_time_as_the_connection_says(tmp_path: Path) -> None:
    def batches(**options: Any) -> list[int]:
        (partition,) = split_files(lines(tmp_path, **options).file_set("", {}))
        return [table.num_rows for table in partition.read() if table.num_rows]

    assert (batches(), batches(batch_size=5)) == ([13], [5, 5, 3])


def test_a_source_may_say_how_its_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id;what\n1;a\n")
    source = Source.files(folder(tmp_path, "csv"), "a.csv", csv_read_options={"delimiter": ";"})
    file_set = Files(source.connection).file_set(str(source.path), source.options)
    assert [column.name for column in file_set.columns] == ["id", "what"]
    for wrong in (
        {"csv_read_option": {}},
        {"csv_read_options": {"delim": ";"}},
        {"format": "orc", "csv_read_options": {}},
    ):
        with pytest.raises(FlowError, match=r"has no csv_read_option=|unknown key 'delim'|for csv files"):
            Source.files("lake", "a.csv", **wrong)
