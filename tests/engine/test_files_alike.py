"""Files give the same rows and the same rejects whoever shapes them: this process, a task of Spark, or Spark itself."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from ematix_flow import (
    JSON,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
    pk,
)
from ematix_flow import normalize as n
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.transforms import filter_where
from tests.depth import deep
from tests.engine.files import declared_load, load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.engine.files import Content, Outcome

pytestmark = pytest.mark.spark

TEXTS = [
    "",
    " ",
    " pad ",
    "\t\n",
    "Straße",
    "ΑΣ",
    "İstanbul",
    "e\u0301",
    "👨‍👩‍👧 x",
    "aab-aab",
    'quo"te',
    "a,b",
    "null",
]
NUMBERS = ["0", "-0", "007", "1.5", "2.675", "-2.5", "1e3", "1E+400", ".5", "5.", "+7", " 7", "x", "NaN", "Infinity",
           "32768", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 39,
           "0.123456789012345678901234567890123456789", "99999999.995", "1_000", "0x10", "\uff11"]  # fmt: skip
TIMESTAMPS = ["2024-02-29", "2023-02-29", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05", "2024-01-02T03:04:05.123456+02:00",
           "2024-01-02T03:04:05.1-0330", "2024-01-02T23:04:05+14", "2024-01-02T03:04:05z", "0001-01-01T00:00:00Z",
           "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00", "0000-01-01",
           "2024-01-02T24:00:00", "2024-1-2", "02.01.2024", "2024-01-02T03:04:05.1234567Z", "2024-01-02T03:04:05\n",
           "1900-01-01T00:00:00", "2024-03-31T01:30:00", "2024-12-30", "x"]  # fmt: skip
FLAGS = ["true", "T", "1", "yes", "ON", "false", "f", "0", "No", "off", "maybe", "2", " true"]
JSONS = ['{"a":1}', "[1,2.50]", "null", "NaN", "[1,]", '{"a":NaN}', "x", '"t"', " 1 ", '{"a":1,"a":2}', "01", "{'a':1}",
         '["a","b"]', '{"a":[1,"t"],"b":"u"}', '["a",]']  # fmt: skip
UUIDS = ["6F9619FF-8B86-D011-B42D-00C04FC964FF", "6f9619ff8b86d011b42d00c04fc964ff", "x"]

Case = tuple[Any, "Sequence[str]"]
CASES: dict[str, Case] = {
    "plain": (Text | None, TEXTS),
    "short": (String[5] | None, TEXTS),
    "trimmed": (Annotated[Text | None, n.trim()], TEXTS),
    "lowered": (Annotated[Text | None, n.lower()], TEXTS),
    "raised": (Annotated[Text | None, n.upper()], TEXTS),
    "no_empty": (Annotated[Text | None, n.empty_to_null()], TEXTS),
    "no_blank": (Annotated[Text | None, n.whitespace_to_null()], TEXTS),
    "replaced": (Annotated[Text | None, n.replace("a", "ß")], TEXTS),
    "matched": (Annotated[Text | None, n.regex_replace(r"(a+)b", r"<\1\\\&>", "g")], TEXTS),
    "first": (Annotated[Text | None, n.regex_replace(r"A", "$1", "i")], TEXTS),
    "cut": (Annotated[String[3] | None, n.truncate(3)], TEXTS),
    "email": (Annotated[Text | None, n.email_normalize()], [" ADA@Example.COM ", *TEXTS]),
    "phone": (Annotated[Text | None, n.phone_normalize()], ["+41 (0)79 1", *TEXTS]),
    "filled": (Annotated[Text | None, n.default("?")], TEXTS),
    "no_null": (Annotated[Text | None, n.nullif("null")], TEXTS),
    "small": (SmallInt | None, NUMBERS),
    "whole": (Integer | None, NUMBERS),
    "big": (BigInt | None, NUMBERS),
    "money": (Numeric[10, 2] | None, NUMBERS),
    "wide": (Numeric[38, 10] | None, NUMBERS),
    "single": (Float | None, NUMBERS),
    "double": (Double | None, NUMBERS),
    "an_int": (Annotated[BigInt | None, n.parse_int()], NUMBERS),
    "must_int": (Annotated[BigInt | None, n.parse_int("error")], NUMBERS),
    "or_int": (Annotated[Integer | None, n.parse_int("default", 7)], NUMBERS),
    "a_number": (Annotated[Numeric[12, 3] | None, n.parse_numeric(12, 3)], NUMBERS),
    "rounded": (Annotated[Double | None, n.round(1)], NUMBERS),
    "rounded_2": (Annotated[Numeric[20, 5] | None, n.round(2)], NUMBERS),
    "clamped": (Annotated[Numeric[20, 5] | None, n.clamp(-1, 2)], NUMBERS),
    "flag": (Boolean | None, FLAGS),
    "a_flag": (Annotated[Boolean | None, n.parse_bool()], FLAGS),
    "day": (Date | None, TIMESTAMPS),
    "at": (Timestamp | None, TIMESTAMPS),
    "instant": (TimestampTZ | None, TIMESTAMPS),
    "a_day": (Annotated[Date | None, n.parse_date("DD.MM.YYYY")], TIMESTAMPS),
    "a_time": (Annotated[TimestampTZ | None, n.parse_timestamp()], TIMESTAMPS),
    "formatted": (Annotated[Timestamp | None, n.parse_timestamp("YYYY-MM-DD HH24:MI:SS")], TIMESTAMPS),
    "in_berlin": (Annotated[Timestamp | None, n.to_timezone("Europe/Berlin")], TIMESTAMPS),
    "in_week": (Annotated[Timestamp | None, n.date_trunc("week")], TIMESTAMPS),
    "in_hour": (Annotated[TimestampTZ | None, n.date_trunc("hour")], TIMESTAMPS),
    "in_month": (Annotated[Date | None, n.date_trunc("month")], TIMESTAMPS),
    "id_of": (UUID | None, UUIDS),
    "doc": (JSON | None, JSONS),
    "bytes": (Bytes | None, TEXTS),
}


def columns() -> dict[str, Any]:
    return {"id": Annotated[Text, pk()], **{name: kind for name, (kind, _) in CASES.items()}}


def rows() -> list[dict[str, str]]:
    """Return rows that each have one value: whatever is wrong with a row is wrong with that."""
    return [
        {"id": f"{name} {number}", name: value}
        for name, (_, values) in CASES.items()
        for number, value in enumerate(values)
    ]


def as_csv(rows_given: Sequence[Mapping[str, str]]) -> bytes:
    def field(value: str | None) -> str:
        return "" if value is None else '"' + value.replace('"', '""') + '"'

    names = list(columns())
    lines = [",".join(names), *(",".join(field(row.get(name)) for name in names) for row in rows_given), "short,line"]
    return "\n".join([*lines, '"quoted, and short"']).encode() + b'\n"caf\xe9"' + b"," * (len(names) - 1) + b"\n"


def as_json_lines(given: Sequence[Mapping[str, str]]) -> bytes:
    # The first line has every key, so that none is looked for in vain.
    lines = [json.dumps(dict.fromkeys(columns()) | {"id": f"keys {len(given)}"}), *(json.dumps(row) for row in given)]
    nested = '","whole":1.50,"doc":{"b":[null,1.10]},"flag":true}'
    return "\n".join([*lines, "{broken", f'{{"id":"n {len(given)}{nested}']).encode()


def loaded_three_times(
    spark: SparkSession, folder: Path, files: Mapping[str, Content], columns: Mapping[str, Any], **options: Any
) -> list[Outcome]:
    """Load the same files three times: shaped in this process, in tasks of Spark, and by Spark."""
    for number in range(3):
        (folder / str(number)).mkdir()
    return [
        load(folder / str(number), files, columns, **options, **shaping)
        for number, shaping in enumerate(shapings(spark))
    ]


def shapings(spark: SparkSession) -> list[dict[str, Any]]:
    """Return the options with which this process, tasks of Spark and Spark shape the rows."""
    return [{}, {"spark": spark}, {"spark": spark, "transforms_pre": [filter_where("1 = 1")]}]


def load_more(folder: Path, values: pa.Array, declared: Any, **options: Any) -> dict[str, Any]:
    """Load what is new among the values of a file, and return the result."""
    pq.write_table(pa.table({"id": [str(key) for key in range(len(values))], "w": values}), folder / "a.parquet")
    columns = {"id": Annotated[Text, pk()], "w": declared}
    pipeline = declared_load(folder, columns, format="parquet", incremental_column="w", **options)
    return run_pipeline(pipeline, Options(spark=options.get("spark")))  # type: ignore[no-any-return]


def agree(outcomes: Sequence[Outcome]) -> Outcome:
    """Compare three loads value by value, and return the first."""
    first, *others = outcomes
    for other in others:
        assert repr_by_key(first) == repr_by_key(other)
        assert sorted(first.rejects) == sorted(other.rejects)
        assert rejected(first) == rejected(other)
    return first


def repr_by_key(outcome: Outcome) -> dict[Any, str]:
    # NaN is not equal to itself.
    return {key: repr(row) for key, row in outcome.rows.items()}


def rejected(outcome: Outcome) -> list[tuple[str, str]]:
    sources = [(path.rpartition("/")[2], json.loads(row, parse_float=_digits)) for path, row in outcome.sources]
    return sorted((name, repr(sorted(row.items()))) for name, row in sources)


def _digits(text: str) -> str:
    return str(Decimal(text).normalize())


@pytest.mark.parametrize(("file_format", "written"), [("csv", as_csv), deep("json_lines", as_json_lines)])
def test_text_becomes_the_same_rows_and_rejects(
    spark: SparkSession, tmp_path: Path, file_format: str, written: Any
) -> None:
    name = {"csv": "ä +%20.csv", "json_lines": "a.jsonl"}[file_format]
    files = {name: written(rows()), f"b {name}": written([{"id": "alone"}])}
    outcome = agree(loaded_three_times(spark, tmp_path, files, columns(), format=file_format))
    assert outcome.rows["raised 4"][list(CASES).index("raised")] == "STRASSE"
    assert outcome.rows["instant 4"][list(CASES).index("instant")] == datetime(2024, 1, 2, 1, 4, 5, 123456, UTC)
    assert any(column == "money" and reason.endswith(" could not be parsed") for _, column, reason in outcome.rejects)
    assert {path.rpartition("/")[2] for path, _ in outcome.sources} <= {name, f"b {name}"}


TIMESTAMP = datetime(2024, 2, 29, 23, 59, 59, 123456)  # noqa: DTZ001 - wall time
OLD = datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
TYPED: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "text": (Annotated[String[4] | None, n.trim()], pa.string(), [" ä ", "long text", None]),
    "small": (SmallInt | None, pa.int32(), [1, 70000, None]),
    "int_text": (Text | None, pa.int16(), [-3, 7, None]),
    "decimal": (Numeric[8, 2] | None, pa.decimal128(20, 4), [Decimal("1.2350"), Decimal("-1.2350"), Decimal(10**9)]),
    "dec_text": (Text | None, pa.decimal128(10, 3), [Decimal("1.500"), Decimal("-0.001"), None]),
    "dec_int": (BigInt | None, pa.decimal128(20, 2), [Decimal("2.00"), Decimal("2.50"), None]),
    "real": (Float | None, pa.float32(), [0.1, float("nan"), float("inf")]),
    "double": (Double | None, pa.float64(), [0.1, -0.0, 1e300]),
    "real_num": (Numeric[10, 2] | None, pa.float64(), [2.675, 1e20, None]),
    "real_int": (Integer | None, pa.float64(), [3.0, 3.5, float("nan")]),
    "flag": (Boolean | None, pa.bool_(), [True, False, None]),
    "flag_text": (Text | None, pa.bool_(), [True, False, None]),
    "flag_int": (Integer | None, pa.bool_(), [True, False, None]),
    "day": (Date | None, pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "day_text": (Text | None, pa.date32(), [date(2024, 2, 29), None, None]),
    "at": (Timestamp | None, pa.timestamp("us"), [TIMESTAMP, OLD, None]),
    "at_day": (Date | None, pa.timestamp("us"), [TIMESTAMP, OLD, None]),
    "at_text": (Text | None, pa.timestamp("us"), [TIMESTAMP, TIMESTAMP.replace(microsecond=0), None]),
    "instant": (TimestampTZ | None, pa.timestamp("us", "UTC"), [TIMESTAMP, OLD, None]),
    "inst_day": (Date | None, pa.timestamp("ms", "Europe/Berlin"), [TIMESTAMP.replace(microsecond=0), None, None]),
    "nanos": (Timestamp | None, pa.timestamp("ns"), [1577934245678901999, -1, None]),
    "bytes": (Bytes | None, pa.binary(), [b"\0\xff", b"", None]),
    "big": (BigInt | None, pa.int64(), [2**63 - 1, -(2**63), None]),
}


def typed_table() -> pa.Table:
    """Return rows that each have one value, as `rows` does."""
    keys = [(name, number) for name, (_, _, values) in TYPED.items() for number in range(len(values))]
    data = {"id": pa.array([f"{name} {number}" for name, number in keys])}
    for name, (_, kind, values) in TYPED.items():
        data[name] = pa.array([values[number] if column == name else None for column, number in keys], kind)
    return pa.table(data)


@pytest.mark.parametrize("file_format", ["parquet", deep("orc")])
def test_typed_files_become_the_same_rows_and_rejects(spark: SparkSession, tmp_path: Path, file_format: str) -> None:
    table = typed_table()
    if file_format == "parquet":
        files: dict[str, Content] = {"ä b.parquet": lambda path: pq.write_table(table, path, row_group_size=7)}
    else:
        # Spark's own reader of ORC knows no instants, and days and fractions of seconds long ago are not its own.
        table = table.drop_columns(["instant", "inst_day", "at", "at_day", "nanos", "day"])
        files = {"a.orc": lambda path: orc.write_table(table, path)}
    chosen = {name: kind for name, (kind, _, _) in TYPED.items() if name in table.column_names}
    declared = {"id": Annotated[Text, pk()], **chosen}
    outcome = agree(loaded_three_times(spark, tmp_path, files, declared, format=file_format))
    if "nanos" in chosen:
        assert outcome.rows["nanos 1"][list(chosen).index("nanos")] == OLD
    assert len(outcome.rows) + len(outcome.rejects) == table.num_rows


@pytest.mark.deep
@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_the_bound_of_an_incremental_load_is_the_same(spark: SparkSession, tmp_path: Path, file_format: str) -> None:
    instants = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=number) for number in range(9)]
    narrow = pa.array([number + 0.1 for number in range(9)], pa.float32())
    doubles = [1767225600.123451 + number for number in range(9)]
    table = pa.table({"id": list("abcdefghi"), "n": list(range(9)), "at": instants, "f": narrow, "d": doubles})
    lines = [",".join(map(str, (*row.values(),))) for row in table.to_pylist()]
    files: dict[str, Content] = {"a.csv": "\n".join(["id,n,at,f,d", *lines]).encode()}
    if file_format == "parquet":
        files = {"a.parquet": lambda path: pq.write_table(table, path)}
    declared = {"id": Annotated[Text, pk()], "n": BigInt, "at": TimestampTZ, "f": Float, "d": Double}
    for column in ("n", "at", "f", "d"):
        (tmp_path / column).mkdir()
        outcomes = loaded_three_times(
            spark, tmp_path / column, files, declared, format=file_format, incremental_column=column
        )
        assert len(agree(outcomes).rows) == len(instants)
        assert len({outcome.watermark for outcome in outcomes}) == 1


NEW_VALUES: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "float": (Float, pa.float32(), [0.1, 0.7, 1.1, 1234568.0]),
    "double": (Double, pa.float64(), [0.1, 1767225601.123456, 1767225601.123458, 1767225602.123454]),
    "decimal": (Numeric[38, 10], pa.decimal128(38, 10), [Decimal(number).scaleb(-10) for number in range(1, 5)]),
}


@pytest.mark.parametrize("kind", NEW_VALUES)
def test_each_way_goes_on_where_another_one_ended(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    declared, stored, values = NEW_VALUES[kind]
    (tmp_path / "files").mkdir()
    for number, value in enumerate(values):
        shaping = shapings(spark)[number % 3]
        outcome = load_more(tmp_path / "files", pa.array(values[: number + 1], stored), declared, **shaping)
        assert outcome["rows_inserted"] == 1, value


def test_each_way_looks_back_to_the_same_instant(spark: SparkSession, tmp_path: Path) -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    inside, outside = at - timedelta(seconds=1.499), at - timedelta(seconds=1.501)
    for number, shaping in enumerate(shapings(spark)):
        folder = tmp_path / str(number)
        folder.mkdir()
        options = {"mode": "merge", "lookback": timedelta(seconds=1.5), **shaping}
        load_more(folder, pa.array([at]), TimestampTZ, **options)
        assert load_more(folder, pa.array([at, inside, outside]), TimestampTZ, **options)["rows_inserted"] == 1
