"""Malformed files: loaded plus rejected is what the file has, or the file is refused by its name; nothing is bent."""

from __future__ import annotations

import bz2
import gzip
import io
import os
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from ematix_flow import JSON, BigInt, Boolean, Numeric, Text, Timestamp, pk
from ematix_flow.declare.pipeline.normalize import Default
from ematix_flow.errors import FlowError
from ematix_flow.transforms import filter_where
from tests.engine.files import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

WIDE: Any = Numeric[38, 3]  # type: ignore[misc]
KEYED = {"id": Annotated[Text, pk()]}
PLAIN = {**KEYED, "name": Text | None, "n": BigInt | None}
TYPED = {**KEYED, "v": Text | None}
H = b"id,name,n\n"
LONG = "x" * (1 << 20)
ROW = '{"id":"%s","name":"x","n":1,"doc":{"a":[1,2.50,{"b":null}]},"ok":true}'

CSV = {
    "bom.csv": b"\xef\xbb\xbf" + H + b"bom,x,1\n",
    "crlf.csv": b'id,name,n\r\ncrlf1,z,3\r\ncrlf2,"q\r\nr",4\r\n',
    "mixed.csv": b"id,n,name\nm1,1,x\r\nm2,2,y\nm3,3,z\rm4,4,w",
    "empties.csv": H + b'e1,"",5\ne2,,6\ne3,  pad ,7\ne4,"a""b",8\ne5,x"y,9\n',
    "nul.csv": H + b"n1,nu\0l,1\n\0n2,x,2\n",
    "ragged.csv": H + b"r1,short\nr2,long,1,9\n\nr3,ok,3\n,,\n",
    "latin.csv": H + b"l1,caf\xe9,1\nl2,caf\xc3\xa9,2\nl3,\xff\n",
    "numbers.csv": H + b"i1,x,9223372036854775808\ni2,x,1.5\ni3,x,-9223372036854775808\n",
    "header_only.csv": H,
    "nothing.csv": b"",
    "order.csv": b"n,id,name\n2,o1,y\n",
    "field.csv": H + b'f1,"' + LONG.encode() + b'",1\n',
    "packed.csv.gz": gzip.compress(H + b"g1,x,1\n") + gzip.compress(b"g2,x,2\n"),
    "packed.csv.bz2": bz2.compress(H + b"b1,y,2\n"),
}


@pytest.fixture(params=["here", pytest.param("spark", marks=pytest.mark.spark)])
def shaping(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what makes this process or Spark shape the rows."""
    if request.param == "here":
        return {}
    request.getfixturevalue("spark")
    return {"transforms_pre": [filter_where("1 = 1")]}


@pytest.mark.slow
def test_every_csv_row_is_loaded_as_it_is_or_rejected(shaping: dict[str, Any], tmp_path: Path) -> None:
    outcome = load(_folder(tmp_path), CSV, PLAIN, **shaping)
    assert outcome.rows == {
        "bom": ("x", 1), "crlf1": ("z", 3), "crlf2": ("q\r\nr", 4),
        "m1": ("x", 1), "m2": ("y", 2), "m3": ("z", 3), "m4": ("w", 4),
        "e1": ("", 5), "e2": (None, 6), "e3": ("  pad ", 7), "e4": ('a"b', 8), "e5": ('x"y', 9),
        "n1": ("nu\0l", 1), "\0n2": ("x", 2), "r3": ("ok", 3), "l2": ("café", 2),
        "i3": ("x", -(2**63)), "o1": ("y", 2), "f1": (LONG, 1), "g1": ("x", 1), "g2": ("x", 2), "b1": ("y", 2),
    }  # fmt: skip
    assert outcome.reasons("ragged.csv") == [
        "is NULL but the column is NOT NULL",
        "malformed line r1,short",
        "malformed line r2,long,1,9",
    ]
    assert outcome.reasons("latin.csv") == [
        "malformed line l3,\\xff",
        "malformed line with bytes that are not UTF-8: l1,caf\\xe9,1",
    ]
    assert [column for file, column, _ in outcome.rejects if file == "numbers.csv"] == ["n", "n"]
    assert len(outcome.rejects) == 7


JSON_LINES = {
    "good.jsonl": "\n".join(
        [
            ROW % "a1", '{"id":"a2","n":12345678901234567890.123}', "", "   ",
            '{"id":"a3","doc":[1.10,1e400,12345678901234567890123],"name":12345678901234567890123}',
            '{"id":"a4","name":null,"doc":null,"extra":5}', '{"id":"a5","name":"\\u00e9\\ud83d\\ude00"}',
            '{"id":"a6","name":{"k":1.50}}', '{"ok":"no","id":"a7","name":""}', '{"id":"a8","doc":' + "[" * 200 + "]" * 200 + "}",
        ]
    ).encode(),
    "bom.jsonl.gz": gzip.compress(b"\xef\xbb\xbf" + (ROW % "b1").encode() + b"\r\n"),
    "empty.jsonl": b"",
    "bad.jsonl": "\n".join(
        [
            "[1,2]", "5", "null", '"text"', '[{"id":"x"}]', '{"id":"x"} trailing', '{"id":"x"}{"id":"y"}', "{'id':'x'}",
            '{"id":"x","n":NaN}', '{"id":"x","n":007}', '{"id":"x","name":"a\tb"}', '{"id":"x","name":"\\ud800"}',
            '{"id":"x","id":"y"}', '{"id":"x","doc":{"a":1,"a":2}}', '{"id":"x","doc":' + "[" * 5000 + "]" * 5000 + "}",
            '{"id":"x","n":1e400}', '{"id":"x","ok":"maybe"}', '{"name":"no key"}', '{"id":"x","name":"cut',
        ]
    ).encode(),
    "latin.jsonl": b'{"id":"x","name":"caf\xe9"}\n',
}  # fmt: skip


@pytest.mark.slow
def test_every_json_line_is_loaded_with_all_its_digits_or_rejected(shaping: dict[str, Any], tmp_path: Path) -> None:
    columns = {**KEYED, "name": Text | None, "n": WIDE | None, "doc": JSON | None, "ok": Boolean | None}
    outcome = load(_folder(tmp_path), JSON_LINES, columns, format="json_lines", **shaping)
    nested = '{"a":[1,2.50,{"b":null}]}'
    assert outcome.rows == {
        "a1": ("x", Decimal(1), nested, True),
        "a2": (None, Decimal("12345678901234567890.123"), None, None),
        "a3": ("12345678901234567890123", None, "[1.10,1e400,12345678901234567890123]", None),
        "a4": (None, None, None, None),
        "a5": ("é😀", None, None, None),
        "a6": ('{"k":1.50}', None, None, None),
        "a7": ("", None, None, False),
        "a8": (None, None, "[" * 200 + "]" * 200, None),
        "b1": ("x", Decimal(1), nested, True),
    }
    assert len(outcome.reasons("bad.jsonl")) == len(JSON_LINES["bad.jsonl"].splitlines())
    assert len(outcome.reasons("latin.jsonl")) == 1
    assert len(outcome.rejects) == len(JSON_LINES["bad.jsonl"].splitlines()) + 1


@pytest.mark.slow
def test_a_key_that_lines_leave_out_is_null_and_one_that_comes_late_is_read(
    shaping: dict[str, Any], tmp_path: Path
) -> None:
    lines = [b'{"id":"a%d"}' % number for number in range(12)]
    columns = {**KEYED, "name": Text | None, "n": BigInt | None, "kind": Annotated[Text, Default("plain")]}
    outcome = load(_folder(tmp_path), {"a.jsonl": b"\n".join(lines)}, columns, format="json_lines", **shaping)
    assert outcome.rows == {f"a{number}": (None, None, "plain") for number in range(12)}
    later = tmp_path / "later"
    later.mkdir()
    late = {"b.jsonl": b"\n".join([*lines, b'{"id":"b","name":"x","n":5,"kind":"other"}'])}
    settings = {"json_read_options": {"schema_infer_max_records": 10}}
    outcome = load(_folder(later), late, columns, format="json_lines", settings=settings, **shaping)
    assert outcome.rows["b"] == ("x", 5, "other")


@pytest.mark.slow
def test_a_late_key_that_differs_in_case_alone_is_not_passed_over(shaping: dict[str, Any], tmp_path: Path) -> None:
    lines = [b'{"id":"a%d","name":"x"}' % number for number in range(12)]
    lines += [b'{"id":"b","Name":"y"}', b'{"id":"c","name":"x","NAME":"y"}', b'{"id":"d","note":"z","Kind":"y"}']
    columns = {**KEYED, "name": Text | None, "kind": Annotated[Text, Default("plain")]}
    settings = {"json_read_options": {"schema_infer_max_records": 10}}
    content = {"a.jsonl": b"\n".join(lines)}
    outcome = load(_folder(tmp_path), content, columns, format="json_lines", settings=settings, **shaping)
    assert outcome.rows == {f"a{number}": ("x", "plain") for number in range(12)}
    reasons = " ".join(outcome.reasons("a.jsonl"))
    assert len(outcome.rejects) == 3
    assert all(f"the key {key!r} is spelled" in reasons for key in ("Name", "NAME", "Kind"))


@pytest.mark.parametrize(
    ("columns", "lacks"),
    [
        ({**KEYED, "coupon": Text | None}, r"lacks coupon \(near: cupon\)"),
        ({**KEYED, "name": Text}, "lacks name"),
        ({"order_id": Annotated[Text, pk()]}, "lacks order_id"),
    ],
)
def test_a_key_that_is_spelled_otherwise_or_needs_a_value_is_missing(
    columns: dict[str, Any], lacks: str, tmp_path: Path
) -> None:
    with pytest.raises(FlowError, match=lacks):
        load(_folder(tmp_path), {"a.jsonl": b'{"id":"a","cupon":"x"}'}, columns, format="json_lines")


def _parquet(table: pa.Table, **options: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(table, path, **options)


def _orc(table: pa.Table) -> Callable[[Path], None]:
    return lambda path: orc.write_table(table, path)


def test_a_file_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=r"caf\\xe9.csv cannot be read: its name is not UTF-8"):
        load(_folder(tmp_path), {os.fsdecode(b"caf\xe9.csv"): b"id\na\n"}, KEYED)


@pytest.mark.parametrize("write", [_parquet, _orc], ids=["parquet", "orc"])
@pytest.mark.parametrize("kind", [Text | None, JSON | None], ids=["text", "json"])
def test_a_typed_file_with_texts_that_are_none_is_refused(tmp_path: Path, write: Callable[..., Any], kind: Any) -> None:
    texts = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    suffix = "parquet" if write is _parquet else "orc"
    content = {f"a.{suffix}": write(pa.table({"id": ["a"], "v": texts}))}
    with pytest.raises(FlowError, match=rf"a.{suffix} cannot be read: column 'v': Invalid UTF8"):
        load(_folder(tmp_path), content, {**KEYED, "v": kind}, format=suffix)


def _one(key: str, value: Any, kind: pa.DataType) -> pa.Table:
    return pa.table({"id": pa.array([key]), "v": pa.array([value], kind)})


NESTED = pa.struct([("k", pa.list_(pa.int64())), ("t", pa.string())])
NANOS = 1577934245678901234
TIMESTAMP = datetime(2020, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - the column has no zone


@pytest.mark.spark
@pytest.mark.parametrize("write", [_parquet, _orc], ids=["parquet", "orc"])
def test_typed_files_keep_their_values(spark: SparkSession, tmp_path: Path, write: Callable[..., Any]) -> None:
    columns = {**KEYED, "at": Timestamp, "amount": WIDE, "n": BigInt, "doc": JSON, "name": Text}
    wide = Decimal("12345678901234567890123456789012345.678")

    def table(key: str, count: pa.Array, instant: pa.DataType, text: pa.DataType) -> pa.Table:
        names = pa.array(["x"], text)
        return pa.table(
            {
                "id": [key],
                "n": count,
                "at": pa.array([NANOS if instant.unit == "ns" else NANOS // 1000], instant),
                "amount": pa.array([wide], pa.decimal128(38, 3)),
                "doc": pa.array([{"k": [1, None], "t": None}], NESTED),
                "name": names.dictionary_encode() if text == pa.string() and write is _parquet else names,
            }
        )

    first = table("a", pa.array([1], pa.int32()), pa.timestamp("ns"), pa.string())
    second = table("b", pa.array([2**40]), pa.timestamp("us"), pa.large_string()).select([5, 4, 3, 2, 1, 0])
    suffix = "parquet" if write is _parquet else "orc"
    files = {f"{n}.{suffix}": write(t) for n, t in enumerate((first, second, first.slice(0, 0)))}
    if write is _parquet:
        old = table("c", pa.array([3]), pa.timestamp("ns"), pa.large_string())
        files["9.parquet"] = _parquet(old, use_deprecated_int96_timestamps=True)
    outcome = load(_folder(tmp_path), files, columns, format=suffix)
    same = '{"k":[1,null],"t":null}'
    counts = {"a": 1, "b": 2**40, **({"c": 3} if write is _parquet else {})}
    assert outcome.rows == {key: (TIMESTAMP, wide, n, same, "x") for key, n in counts.items()}
    assert outcome.rejects == []


def _scrambled() -> bytes:
    """Return a Parquet file whose footer is right and whose pages are not."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": [str(n) for n in range(9999)], "v": [str(n * 7919) for n in range(9999)]}), buffer)
    data = bytearray(buffer.getvalue())
    data[1000:5000] = b"\xff" * 4000
    return bytes(data)


@pytest.mark.slow
def test_json_files_without_a_line_have_no_rows(shaping: dict[str, Any], tmp_path: Path) -> None:
    assert load(_folder(tmp_path), {"a.jsonl": b"", "b.jsonl": b"\n\n"}, PLAIN, **shaping).rows == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.csv": H + b"a,x,1\n", "b.csv": b"id,nmae,n\nb,y,2\n"}, "b.csv has other columns than"),
        ({"a.csv": b"id,name,n,n\na,x,1,2\n"}, "a.csv cannot be read: it has the column 'n' twice"),
        ({"a.csv": b"id,name,n,N\na,x,1,2\n"}, "a.csv cannot be read: it has the column 'N' twice"),
        ({"a.csv": b""}, "a.csv is empty"),
        ({"a.csv": "id,name,n\na,x,1\n".encode("utf-16")}, "a.csv cannot be read as csv: its first line is not UTF-8"),
        ({"a.csv": b"id;name;n\na;x;1\n"}, "the source of main.loaded lacks id"),
        ({"a.csv.gz": H}, "a.csv.gz cannot be read: zlib"),
        ({"a.csv": b'"id,name\n'}, "a.csv cannot be read as csv: the quotes of the record at line 1"),
        ({"a.jsonl": b"garbage\n"}, "a.jsonl cannot be read: no line is a JSON object"),
        ({"a.jsonl": b'{"id":"x","ID":"y"}\n'}, "a.jsonl cannot be read: it has the column 'ID' twice"),
        ({"a.jsonl.gz": gzip.compress(b'{"id":"x"}\n')[:-12]}, "a.jsonl.gz cannot be read: Truncated"),
        ({"a.jsonl.zst": b'{"id":"x"}\n'}, "a.jsonl.zst cannot be read: ZSTD"),
        ({"a.parquet": b"PAR1 nonsense"}, "a.parquet cannot be read: it is no parquet file"),
        ({"a.orc": b"ORC nonsense"}, "a.orc cannot be read: it is no orc file"),
        (
            {"a.parquet": _parquet(_one("a", 1, pa.decimal256(70, 3)))},
            "a.parquet cannot be read: column 'v' has the type",
        ),
        ({"a.parquet": _parquet(_one("a", 1, pa.time64("us")))}, "a.parquet cannot be read: column 'v' has the type"),
        (
            {"a.parquet": _parquet(_one("a", "x", pa.string())), "b.parquet": _parquet(_one("b", 1, pa.int64()))},
            "b.parquet has other columns than",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    _refused(tmp_path, files, message)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"a.csv": H + b'a,x,1\nb,2,"never\nc,z,3\n'},
            "a.csv cannot be read as csv: the quotes of the record at line 3",
        ),
        ({"a.csv": H + b'a,"x"y"z,1\nb,""",2\n'}, "a.csv cannot be read as csv: the quotes of the record at line 2"),
        (
            {"a.csv.gz": gzip.compress(H + str(list(range(99999))).encode())[:90000]},
            "a.csv.gz cannot be read: Truncated",
        ),
        ({"a.parquet": _scrambled()}, "a.parquet cannot be read: "),
    ],
    ids=["unclosed", "storm", "truncated", "pages"],
)
def test_a_file_that_breaks_while_it_is_read_is_refused_by_name(
    shaping: dict[str, Any], files: dict[str, Any], message: str, tmp_path: Path
) -> None:
    _refused(tmp_path, files, message, **shaping)


@pytest.mark.spark
def test_a_query_over_files_stops_at_a_row_that_it_would_lose(spark: SparkSession, tmp_path: Path) -> None:
    message = "ragged.csv has a malformed line: r1,short"
    _refused(tmp_path, {"ragged.csv": CSV["ragged.csv"]}, message, query="SELECT id, 'x' AS name, 1 AS n FROM source")


@pytest.mark.spark
def test_a_query_over_files_that_names_no_column_is_refused_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT id, nmae AS name, n FROM source"
    message = "parameter with name `nmae` cannot be resolved"
    _refused(tmp_path, {"ragged.csv": CSV["empties.csv"]}, message, query=query)


def _refused(tmp_path: Path, files: dict[str, Any], message: str, **options: Any) -> None:
    columns = PLAIN if next(iter(files)).startswith(("a.csv", "ragged")) else TYPED
    with pytest.raises(FlowError) as caught:
        load(_folder(tmp_path), files, columns, **options)
    assert message in caught.value.what
    assert len(str(caught.value).splitlines()) <= 4
    assert "java" not in str(caught.value)


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


PACKED = {
    "a.CSV.GZ": "gzip",
    "b.csv.zstd": "zstd",
    "c.csv.zst": "zstd",
    "d.Csv.Br": "brotli",
    "e.csv.lz4": "lz4",
    "f.csv.bz2": "bz2",
}


@pytest.mark.slow
def test_compressed_files_are_read_whatever_letters_their_names_have(tmp_path: Path) -> None:
    def packed(text: bytes, codec: str) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(text)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    files = {name: packed(f"id,word\n{n},a\n".encode(), codec) for n, (name, codec) in enumerate(PACKED.items())}
    folder = tmp_path / "y.tsv_dir"
    folder.mkdir()
    columns = {"id": Annotated[BigInt, pk()], "word": Text}
    outcome = load(folder, {**files, "x.tsv.csv": b"id,word\n7,a\n"}, columns)
    assert (sorted(outcome.rows), outcome.rejects) == ([0, 1, 2, 3, 4, 5, 7], [])


@pytest.mark.slow
def test_a_compression_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(FlowError, match="compressed with snappy cannot be read"):
        load(folder, {"a.csv.snappy": b"id,word\n"}, {"id": Annotated[BigInt, pk()], "word": Text})
