"""Files that we write are read back exactly: by our own readers, by Arrow, by DuckDB and by Spark."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.formats import csv as csv_rows
from ematix_flow.connect.formats import json_lines as json_rows
from ematix_flow.connect.formats.writers import EXTENSIONS, writer
from ematix_flow.declare.pipeline.file_options import file_options
from ematix_flow.declare.table.types import BigInt, Boolean, Date, Double, Float, Numeric, Text, Timestamp, TimestampTZ
from ematix_flow.errors import DeclareError
from ematix_flow.run.stage.conform import Rules, conform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TEXTS = ["", " ", " a ", "a,b", 'say "yes"', "'", "two\nlines", "\r\n", "\r", "\t|;", "\\", '\\"', '"', '""', "NULL",
         "\\N", "nul\0l", "🎈 漢 ü", "\u2028", "#no comment", "=1+1", "007", "true", "\x1f", "\ufeff", None]  # fmt: skip
AT = datetime(2026, 2, 28, 1, 2, 3, 456789, UTC)
ROWS = [
    {"id": 0, "ratio": math.nan, "small": math.inf, "yes": True, "day": date(1, 1, 1), "at": datetime(1, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
     "seen": datetime(1, 1, 1, tzinfo=UTC), "money": Decimal("9" * 28 + "." + "9" * 10), "what": "x"},
    {"id": -(2**63), "ratio": 5e-324, "small": -math.inf, "yes": False, "day": date(9999, 12, 31), "at": None,
     "seen": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "money": Decimal("0.0000000001"), "what": "nan"},
    {"id": 2**63 - 1, "ratio": 0.1, "small": 0.25, "yes": None, "day": date(2026, 2, 28), "at": AT.replace(tzinfo=None),
     "seen": AT, "money": Decimal("-1.5000000000"), "what": "0"},
    {"id": 1, "ratio": -1.7976931348623157e308, "small": None, "yes": None, "day": None, "at": None, "seen": None,
     "money": None, "what": None},
]  # fmt: skip
TYPES = {"id": BigInt(), "ratio": Double(), "small": Float(), "yes": Boolean(), "day": Date(), "at": Timestamp(),
         "seen": TimestampTZ(), "money": Numeric(38, 10), "what": Text()}  # fmt: skip
COLUMNS = tuple(StageColumn(name, kind) for name, kind in TYPES.items())
ORC_COLUMNS = ("id", "ratio", "small", "yes", "day", "money", "what")

STYLES: list[dict[str, Any]] = [
    {},
    {"csv_delimiter": "\t", "csv_header": False},
    {"csv_delimiter": ";", "csv_quote": "'", "csv_null_value": "<none>"},
    {"csv_delimiter": "|", "csv_escape": "\\"},
    {"csv_quote": "'", "csv_escape": "\\", "csv_header": False},
    {"csv_delimiter": "-"},
    {"csv_delimiter": "1", "csv_quote": "5"},
    {"csv_delimiter": "e", "csv_escape": "."},
    {"csv_delimiter": " "},
]


def texts(values: list[str | None]) -> pa.Table:
    return pa.table({"id": list(range(len(values))), "what": pa.array(values, pa.string()), "x": ["end"] * len(values)})


def numbers(names: tuple[str, ...] = tuple(TYPES)) -> pa.Table:
    from ematix_flow.declare.table.schema import Column, Table
    from tests.contracts.loads import typed

    return typed(Table("s", "t", tuple(Column(TYPES[name], name=name) for name in names)), ROWS)


def written(folder: Path, file_format: str, table: pa.Table, options: dict[str, Any] | None = None) -> str:
    path = folder / f"file.{EXTENSIONS[file_format]}"
    with path.open("wb") as stream:
        writing = writer(file_format, stream, table.schema, file_options(**(options or {})).specified())
        for batch in table.to_batches(max_chunksize=3):
            writing.write(batch)
        writing.close()
    return str(path)


def reading(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options by which our reader reads what was written with these."""
    spelled = {name.removeprefix("csv_"): value for name, value in options.items()}
    same = {name: spelled[name] for name in ("delimiter", "quote", "escape") if name in spelled}
    if spelled.get("null_value"):
        same["null_regex"] = f"^{re.escape(spelled['null_value'])}$"
    return {**same, "has_header": spelled.get("header", True)}


def read(path: str, options: dict[str, Any], names: list[str]) -> Iterator[dict[str, Any]]:
    """Return the rows as our own reader of text formats has them."""
    if path.endswith(".csv"):
        read_back = csv_rows.read_rows(path, csv_rows.dialect_of(path, reading(options)))
    else:
        read_back = json_rows.read_rows(path, (0, -1), names)
    for rows in read_back:
        assert rows.bad == ()
        for batch in rows.good.rename_columns(names).to_batches():
            yield from batch.to_pylist()


def fitted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of texts in the declared types, as a load makes them."""
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([(name, pa.string()) for name in TYPES]))
    good, bad = conform(batch, Rules(COLUMNS, frozenset()))
    assert bad is None
    return good.to_pylist()


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in the order of their ids, with a NaN that equals itself."""
    shown = [{name: "NaN" if value != value else value for name, value in row.items()} for row in rows]  # noqa: PLR0124
    return sorted(shown, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("style", STYLES, ids=repr)
def test_csv_in_every_style_is_read_back_exactly(tmp_path: Path, style: dict[str, Any]) -> None:
    path = written(tmp_path, "csv", texts(TEXTS), style)
    assert [row["what"] for row in read(path, style, ["id", "what", "x"])] == TEXTS
    path = written(tmp_path, "csv", numbers(), style)
    assert comparable(fitted(list(read(path, style, list(TYPES))))) == comparable(ROWS)


@pytest.mark.parametrize("null", ["\\N", "\\N\\A"])
def test_a_spelling_of_null_may_have_the_escape_in_it(tmp_path: Path, null: str) -> None:
    style = {"csv_delimiter": ";", "csv_quote": "'", "csv_escape": "\\", "csv_null_value": null}
    values = [None, "N", "", "a\\;'N", "\\", None]
    path = written(tmp_path, "csv", texts(values), style)
    assert [row["what"] for row in read(path, style, ["id", "what", "x"])] == values


@pytest.mark.slow
@settings(max_examples=60)
@given(
    values=st.lists(st.none() | st.text(st.sampled_from("\"'\\,;\n\r\t a0é"), max_size=6), min_size=1, max_size=8),
    style=st.sampled_from(STYLES),
)
def test_any_text_survives_any_style(
    tmp_path_factory: pytest.TempPathFactory, values: list[str | None], style: dict[str, Any]
) -> None:
    path = written(tmp_path_factory.getbasetemp(), "csv", texts(values), style)
    assert [row["what"] for row in read(path, style, ["id", "what", "x"])] == values


@pytest.mark.parametrize("style", STYLES[:5], ids=repr)
def test_duckdb_reads_our_csv(tmp_path: Path, style: dict[str, Any]) -> None:
    chosen = [text for text in TEXTS if text is None or "\0" not in text]
    path = written(tmp_path, "csv", texts(chosen), style)
    quote = style.get("csv_quote", '"')
    rows = duckdb.execute(
        "SELECT what FROM read_csv(?, columns={'id': 'BIGINT', 'what': 'VARCHAR', 'x': 'VARCHAR'}, delim=?, quote=?,"
        " escape=?, header=?, nullstr=?, allow_quoted_nulls=false, auto_detect=false, new_line='\\n') ORDER BY id",
        [path, style.get("csv_delimiter", ","), quote, style.get("csv_escape", quote), style.get("csv_header", True),
         style.get("csv_null_value", "")],
    ).fetchall()  # fmt: skip
    assert [value for (value,) in rows] == chosen


@pytest.mark.parametrize("null", ["NULL", "0", "nan", "-1.5000000000", "\\N"])
def test_what_is_spelled_like_null_is_told_apart_by_quotes(tmp_path: Path, null: str) -> None:
    style = {"csv_null_value": null}
    path = written(tmp_path, "csv", numbers(("id", "ratio", "money", "what")), style)
    kinds = "{'id': 'BIGINT', 'ratio': 'DOUBLE', 'money': 'DECIMAL(38,10)', 'what': 'VARCHAR'}"
    rows = duckdb.execute(
        f"SELECT * FROM read_csv(?, columns={kinds}, nullstr=?, allow_quoted_nulls=false, auto_detect=false,"
        " header=true, delim=',', quote='\"', escape='\"')",
        [path, null],
    ).fetchall()
    expected = [tuple(row[name] for name in ("id", "ratio", "money", "what")) for row in ROWS]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))


def test_json_lines_are_read_back_exactly(tmp_path: Path) -> None:
    path = written(tmp_path, "json_lines", texts(TEXTS))
    assert [row["what"] for row in read(path, {}, ["id", "what", "x"])] == TEXTS
    path = written(tmp_path, "json_lines", numbers())
    assert comparable(fitted(list(read(path, {}, list(TYPES))))) == comparable(ROWS)


def test_a_row_of_nulls_is_a_json_line_too(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array(["x", None, None]), "b": pa.array([None, None, 1])})
    assert Path(written(tmp_path, "json_lines", rows)).read_text() == '{"a":"x"}\n{}\n{"b":1}\n'


def test_duckdb_reads_our_json_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "json_lines", texts(TEXTS))
    kinds = "{'id': 'BIGINT', 'what': 'VARCHAR'}"
    rows = duckdb.execute(
        f"SELECT what FROM read_json(?, format='newline_delimited', columns={kinds}) ORDER BY id", [path]
    ).fetchall()
    assert [value for (value,) in rows] == TEXTS


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "zstd", None])
def test_parquet_of_every_compression_is_read_back_exactly(tmp_path: Path, compression: str | None) -> None:
    options = {} if compression is None else {"parquet_compression": compression}
    path = written(tmp_path, "parquet", numbers(), options)
    file = pq.ParquetFile(path)
    assert file.metadata.row_group(0).column(0).compression.lower() == (compression or "snappy")
    assert comparable(file.read().to_pylist()) == comparable(ROWS)
    assert pq.read_table(written(tmp_path, "parquet", texts(TEXTS), options)).column("what").to_pylist() == TEXTS
    shown = duckdb.execute("SELECT what FROM read_parquet(?) ORDER BY id", [path]).fetchall()
    assert [value for (value,) in shown] == TEXTS


def test_orc_is_read_back_exactly(tmp_path: Path) -> None:
    path = written(tmp_path, "orc", numbers(ORC_COLUMNS))
    assert comparable(orc.read_table(path).to_pylist()) == comparable(
        [{name: row[name] for name in ORC_COLUMNS} for row in ROWS]
    )
    assert orc.read_table(written(tmp_path, "orc", texts(TEXTS))).column("what").to_pylist() == TEXTS


@pytest.mark.parametrize("file_format", ["csv", "json_lines"])
def test_bytes_are_hexadecimal_digits_in_text_formats(tmp_path: Path, file_format: str) -> None:
    path = written(tmp_path, file_format, pa.table({"id": [1, 2, 3], "raw": [bytes(range(256)), b"", None]}))
    assert [row["raw"] for row in read(path, {}, ["id", "raw"])] == [bytes(range(256)).hex(), "", None]


@pytest.mark.spark
def test_spark_reads_every_format(tmp_path: Path, spark: SparkSession) -> None:
    names = ("id", "what")
    expected = [tuple(row[name] for name in names) for row in ROWS]
    readers = {
        "csv": spark.read.option("header", True),
        "json_lines": spark.read,
        "parquet": spark.read,
        "orc": spark.read,
    }
    for file_format, reader in readers.items():
        path = written(tmp_path, file_format, numbers(names).append_column("_loaded_at", pa.array([AT] * len(ROWS))))
        frame = reader.format(file_format.removesuffix("_lines")).load(path)
        rows = frame.selectExpr("CAST(id AS BIGINT)", "what").collect()
        assert sorted(map(tuple, rows), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"csv_delimiter": ";;"}, "one ASCII character"),
        ({"csv_delimiter": '"'}, "same character"),
        ({"csv_quote": ","}, "same character"),
        ({"csv_delimiter": "\\", "csv_escape": "\\"}, "same character"),
        ({"csv_null_value": 'a"b'}, "without line ends"),
        ({"csv_null_value": "a,b"}, "without line ends"),
        ({"csv_null_value": "a\\", "csv_escape": "\\"}, "ends with csv_escape"),
        ({"parquet_compression": "snapy"}, "snappy"),
        ({"prefix": "../up"}, "readers shall see"),
        ({"prefix": "a//b"}, "readers shall see"),
    ],
)
def test_options_that_could_not_be_read_back_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclareError, match=message):
        file_options(**options)
