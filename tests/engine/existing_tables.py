"""Tables that were there before a load: their types, values that each takes and refuses, and streams into them."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.registry import target_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ematix_flow.connect.base.database import Database
    from ematix_flow.declare.stream.stream import Stream


@dataclass
class Existing:
    """A folder that rows come to as JSON, and a database with a table `things` that they go into."""

    folder: Path
    fields: dict[str, Any]
    schema: str
    files: int = 0

    @property
    def connection(self) -> Any:
        return connection_from_fields("target", self.fields)

    @property
    def database(self) -> Database:
        return target_of(self.connection)

    def run(self, *statements: str) -> None:
        """Execute statements."""
        with closing(self.database.session()) as session:
            for statement in statements:
                session.execute(statement)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with closing(self.database.session()) as session:
            return session.query(sql)

    def put(self, *rows: dict[str, Any]) -> None:
        """Add a file with these rows."""
        inbox = self.folder / "in"
        inbox.mkdir(exist_ok=True)
        self.files += 1
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (inbox / f"{self.files:03}.jsonl").write_text(text, encoding="utf-8")

    def stream(self, **more: Any) -> Stream:
        """Declare the stream of the folder into the table."""
        source = {"kind": "object_store_local", "path": str(self.folder), "format": "json_lines"}
        given = {
            "name": "things",
            "source": connection_from_fields("source", source),
            "source_query": "in",
            "target": self.connection,
            "target_table": (self.schema, "things"),
        }
        return stream_from_keywords(given | more, None)

    def drain(self, **more: Any) -> int:
        """Load what is there."""
        return int(run_stream(self.stream(**more), StreamOptions(available_now=True))["total_rows"])


def existing_on(kind: str, folder: Path, request: pytest.FixtureRequest) -> Existing:
    """Return an empty database of a system."""
    match kind:
        case "duckdb" | "sqlite":
            return Existing(folder, {"kind": kind, "path": str(folder / f"there.{kind}")}, "main")
        case _:
            url = request.getfixturevalue(f"{kind}_url")
            schema = "public" if kind == "postgres" else url.rpartition("/")[2].partition("?")[0]
            return Existing(folder, {"kind": kind, "url": url}, schema)


Case = tuple[str, list[tuple[Any, str]], list[Any]]
"""The type of a column, what rows have together with what the database then shows, and what it refuses."""

DUCKDB: tuple[Case, ...] = (
    ("TINYINT", [(-128, "-128"), (127, "127"), ("5", "5")], [128, "five"]),
    ("UTINYINT", [(0, "0"), (255, "255")], [256, -1]),
    ("USMALLINT", [(65535, "65535")], [65536]),
    ("UINTEGER", [(4294967295, "4294967295")], [4294967296]),
    ("UBIGINT", [("18446744073709551615", "18446744073709551615")], ["18446744073709551616", "x"]),
    ("HUGEINT", [("170141183460469231731687303715884105727", "170141183460469231731687303715884105727")], ["1.5"]),
    ("VARCHAR", [("2b0e3c1a-7c55-4f0e-9c5e-00000000abcd", "2b0e3c1a-7c55-4f0e-9c5e-00000000abcd"), ("no", "no")], []),
    ("UUID", [("2b0e3c1a-7c55-4f0e-9c5e-00000000abcd", "2b0e3c1a-7c55-4f0e-9c5e-00000000abcd")], ["no"]),
    ("TIME", [("23:59:59.999999", "23:59:59.999999")], ["25:00:00"]),
    ("INTERVAL", [("1 day", "1 day")], ["soon"]),
    ("ENUM('low', 'high')", [("low", "low"), ("high", "high")], ["middle"]),
    ("TIMESTAMP_S", [("2026-01-02T03:04:05", "2026-01-02 03:04:05")], ["yesterday"]),
    ("TIMESTAMP_NS", [("2026-01-02T03:04:05.678901", "2026-01-02 03:04:05.678901")], []),
    ("BIT", [("1010", "1010")], ["12"]),
    ("INTEGER[]", [([1, None, 3], "[1, NULL, 3]"), ([], "[]"), ("[4, 5]", "[4, 5]")], [["x"]]),
    ("VARCHAR[]", [(["a, b", "it's"], "['a, b', 'it\\'s']")], []),
    ("STRUCT(a INTEGER, b VARCHAR)", [({"a": 1, "b": "x"}, "{'a': 1, 'b': x}")], []),
    ("DECIMAL(38,10)", [("1.5", "1.5000000000")], ["many"]),
)

POSTGRES: tuple[Case, ...] = (
    ("mood", [("happy", "happy"), ("so so", "so so")], ["angry"]),
    ("citext", [("Ada", "Ada"), ("adA", "adA")], []),
    ("time", [("23:59:59.999999", "23:59:59.999999"), ("24:00", "24:00:00")], ["25:00"]),
    ("time(0) with time zone", [("10:00:00+02", "10:00:00+02")], ["noon"]),
    ("interval", [("1 day 2 hours", "1 day 02:00:00")], ["soon"]),
    ("int4range", [("[1,5)", "[1,5)"), ("empty", "empty")], ["[5,1)"]),
    ("tstzrange", [("[2026-01-01 00:00+00,)", '["2026-01-01 00:00:00+00",)')], ["x"]),
    ("inet", [("10.0.0.1/32", "10.0.0.1/32"), ("::1", "::1/128")], ["10.0.0.300"]),
    ("cidr", [("10.0.0.0/8", "10.0.0.0/8")], ["10.0.0.1/8"]),
    ("macaddr", [("08:00:2b:01:02:03", "08:00:2b:01:02:03")], ["08"]),
    (
        "integer[]",
        [([1, None, 3], "{1,NULL,3}"), ([], "{}"), ("{4,5}", "{4,5}"), ("[2:3]={7,8}", "[2:3]={7,8}")],
        [["x"]],
    ),
    ("text[]", [(['a, "b"', "it's"], '{"a, \\"b\\"",it\'s}')], []),
    ("character varying(3)[]", [(["abc"], "{abc}")], [["abcd"]]),
    ("character(3)", [("ab", "ab"), ("abc", "abc")], ["abcd"]),
    ("bit(3)", [("101", "101")], ["1010", "xyz"]),
    ("bit varying(3)", [("1", "1")], ["1010"]),
    (
        "numeric",
        [("0.1234567890123456789012345678901234567890", "0.1234567890123456789012345678901234567890")],
        ["many"],
    ),
    ("numeric(50,2)", [("9" * 48 + ".99", "9" * 48 + ".99")], ["9" * 49]),
    ("timestamp(3) without time zone", [("2026-01-02T03:04:05.678", "2026-01-02 03:04:05.678")], ["x"]),
    ("oid", [(4294967295, "4294967295")], [-1.5]),
    ("xml", [("<a/>", "<a/>")], ["<a"]),
    ("point", [("(1,2)", "(1,2)")], ["1"]),
    ("short_code", [("abc", "abc")], ["abcd", "ab1"]),
    ("money", [("12.5", "$12.50")], ["rich"]),
    ("uuid", [("2b0e3c1a-7c55-4f0e-9c5e-00000000abcd", "2b0e3c1a-7c55-4f0e-9c5e-00000000abcd")], ["no"]),
    ("jsonb", [({"a": [1]}, '{"a": [1]}')], []),
)
POSTGRES_TYPES = (
    "CREATE EXTENSION IF NOT EXISTS citext",
    "CREATE TYPE mood AS ENUM ('happy', 'so so')",
    "CREATE DOMAIN short_code AS varchar(3) CHECK (VALUE ~ '^[a-z]+$')",
)

MYSQL: tuple[Case, ...] = (
    ("TINYINT", [(-128, "-128"), (127, "127")], [128, "five"]),
    ("TINYINT UNSIGNED", [(255, "255")], [256, -1]),
    ("SMALLINT UNSIGNED", [(65535, "65535")], [65536]),
    ("MEDIUMINT", [(8388607, "8388607")], [8388608]),
    ("INT UNSIGNED", [(4294967295, "4294967295")], [4294967296]),
    ("BIGINT UNSIGNED", [("18446744073709551615", "18446744073709551615")], ["18446744073709551616"]),
    ("YEAR", [(2026, "2026")], [1800]),
    ("BIT(3)", [(7, "7")], [8]),
    ("TINYTEXT", [("a" * 255, "a" * 255)], ["a" * 256]),
    ("TEXT", [("x", "x"), ("2b0e3c1a-7c55-4f0e-9c5e-00000000abcd", "2b0e3c1a-7c55-4f0e-9c5e-00000000abcd")], []),
    ("MEDIUMTEXT", [("\u2702", "\u2702")], []),
    ("CHAR(36)", [("no uuid", "no uuid")], ["a" * 37]),
    ("DATETIME", [("2026-01-02T03:04:05", "2026-01-02 03:04:05")], ["yesterday", "2026-01-02T03:04:05.5"]),
    ("DATETIME(3)", [("2026-01-02T03:04:05.678", "2026-01-02 03:04:05.678")], ["2026-01-02T03:04:05.6789"]),
    ("TIMESTAMP NULL", [("2026-01-02T05:04:05+02:00", "2026-01-02 03:04:05")], ["2050-01-01T00:00:00Z"]),
    ("TIME", [("23:59:59", "23:59:59"), ("-838:59:59", "-838:59:59")], ["noon"]),
    ("ENUM('low','high','7')", [("low", "low"), ("7", "7")], ["middle", "1"]),
    ("SET('a','b')", [("a,b", "a,b")], ["c", "3"]),
    ("FLOAT", [(0.25, "0.25")], ["x"]),
    ("DECIMAL(10,2) UNSIGNED", [("1.25", "1.25")], [-1]),
    ("DECIMAL(65,30)", [("9" * 35 + "." + "9" * 30, "9" * 35 + "." + "9" * 30)], ["many"]),
)

SQLITE: tuple[Case, ...] = (
    ("", [(5, "integer 5"), ("five", "text five"), (0.5, "real 0.5")], []),
    ("TINYINT", [(300, "integer 300")], ["five"]),
    ("MEDIUMINT UNSIGNED", [(5, "integer 5")], [0.5]),
    ("DATETIME", [("2026-01-02 03:04:05", "text 2026-01-02 03:04:05")], []),
    ("NVARCHAR(5)", [("longer than five", "text longer than five")], []),
    (
        "CLOB",
        [("2b0e3c1a-7c55-4f0e-9c5e-00000000abcd", "text 2b0e3c1a-7c55-4f0e-9c5e-00000000abcd"), ("x", "text x")],
        [],
    ),
    ("DECIMAL(10,2)", [("1.25", "real 1.25")], ["many"]),
    ("DECIMAL", [("1.5", "real 1.5")], []),
    ("FLOAT(7)", [(0.5, "real 0.5")], ["x"]),
    ("BOOL", [(True, "integer 1")], ["perhaps"]),
    ("MONEY", [("12", "integer 12")], []),
)
