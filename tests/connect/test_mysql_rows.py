"""MySQL: what is staged is read back exactly, and a read never bends a value in silence."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pymysql
import pytest

from ematix_flow import types as t
from ematix_flow.connect.base.stage import FAILED, StageColumn, StageSpec
from ematix_flow.connect.mysql import protocol as mysql_wire
from ematix_flow.connect.mysql.database import MySQL
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.connection.registry import MySQLConnection
from ematix_flow.errors import RunError
from ematix_flow.records import TaskReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.mysql.session import MySQLSession

pytestmark = pytest.mark.service

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
TEXTS = ["", " ", "end ", "é😀", "tab\tnew\nback\\slash\r", "\\N", "NULL", "a\0b", "'quoted\"", "x" * 100_000, None]
VALUES: dict[str, tuple[t.ColumnType, list[Any]]] = {
    "small": (t.SmallInt(), [-32768, 32767, 0, None]),
    "int": (t.Integer(), [-(2**31), 2**31 - 1, None]),
    "big": (t.BigInt(), [-(2**63), 2**63 - 1, None]),
    "float": (t.Float(), [0.1, -3.4028234663852886e38, 1.17549435e-38, 16777217.0, -0.0, None]),
    "double": (t.Double(), [0.1, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, -0.0, 1 / 3, None]),
    "bool": (t.Boolean(), [True, False, None]),
    "text": (t.Text(), TEXTS),
    "string": (t.String(200), [text for text in TEXTS if text is None or len(text) <= 200]),
    "date": (t.Date(), [date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29), None]),
    "naive": (t.Timestamp(), [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None]),  # noqa: DTZ001
    "instant": (t.TimestampTZ(), [datetime(1970, 1, 1, 0, 0, 0, 1, UTC), datetime(9999, 12, 31, tzinfo=UTC), None]),
    "json": (t.JSON(), ['{"a": [1, "\\u00e9\\n"]}', "[]", None]),
    "jsonb": (t.JSONB(), ['{"b": null}', None]),
    "uuid": (t.UUID(), [ID, str(uuid.UUID(int=0)), None]),
    "bytes": (t.Bytes(), [bytes(range(256)), b"", b"\\N\t\n'", None]),
    "numeric": (t.Numeric(38, 10), [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), Decimal(0), None]),
    "whole": (t.Numeric(38, 0), [Decimal(-(10**38 - 1)), None]),
}


@pytest.fixture
def database(mysql_url: str) -> MySQL:
    return MySQL(MySQLConnection("shop", url=mysql_url))


@pytest.fixture
def session(database: MySQL) -> Iterator[MySQLSession]:
    session = database.session()
    yield session
    session.close()


def rows_of(database: MySQL, session: MySQLSession, sql: str) -> pa.Table:
    opened = database.open_read(session, sql, 4)
    assert len(opened.splits) == 1
    batches = list(database.read(opened.splits[0]))
    return pa.Table.from_batches(batches) if batches else pa.table({})


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_every_value_of_every_declared_type_comes_back_as_it_was(
    database: MySQL, session: MySQLSession, name: str, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, values = VALUES[name]
    if not local:
        monkeypatch.setattr(mysql_wire.Wire, "start_load", _refused)
    columns = (StageColumn("n", t.Integer()), StageColumn("a`b?", kind))
    schema = staged_schema(columns)
    spec = database.open_stage(session, StageSpec("round", schema.serialize().to_pybytes(), columns=columns))
    given = [pa.array(range(len(values)), pa.int32()), pa.array(values, schema.field(1).type)]
    stager = database.stager(spec, 0, 7)
    stager.write(pa.RecordBatch.from_arrays(given, schema=schema))
    stager.finish()
    relation = database.staged_relation(session, spec, [TaskReport(0, 7, len(values))])
    read = rows_of(database, session, f"SELECT * FROM {relation} AS s ORDER BY n").column(1)
    assert [_plain(kind, value) for value in read.to_pylist()] == [
        _plain(kind, value) for value in given[1].to_pylist()
    ]
    if name in ("float", "double"):
        assert [v and math.copysign(1, v) for v in read.to_pylist()] == [v and math.copysign(1, v) for v in values]


def _refused(self: object, statement: str) -> None:
    raise pymysql.OperationalError(3948, "Loading local data is disabled")


def _plain(kind: t.ColumnType, value: Any) -> Any:
    """MySQL keeps booleans as numbers and instants without their zone."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return bool(value) if kind.kind == "boolean" and value is not None else value


def test_families_and_arrow_types_of_a_source(database: MySQL, session: MySQLSession) -> None:
    session.execute(
        "CREATE TABLE s (i INT, flag TINYINT(1), u BIGINT UNSIGNED, d DECIMAL(10,2), w DECIMAL(65,30), f FLOAT, r DOUBLE,"
        " c CHAR(3), t TEXT, b VARBINARY(9), l BLOB, da DATE, dt DATETIME(3), ts TIMESTAMP NULL, ti TIME, y YEAR,"
        " e ENUM('x'), b1 BIT(1), b9 BIT(9), g POINT, lat VARCHAR(9) CHARACTER SET latin1)"
    )
    session.execute(
        "INSERT INTO s VALUES (1, 5, 18446744073709551615, 1.5, 1e30, 0.1, 0.1, 'abc', 't', 'b', x'ff00', '2020-01-01', "
        "'2020-01-01 00:00:00.123', '2020-01-01 12:00:00', '-838:59:59', 2020, 'x', 1, 257, POINT(1, 2), 'é')"
    )
    families = {column.name: column.family for column in database.describe(session, "SELECT * FROM s -- end")}
    assert families == {
        "i": "integer", "flag": "integer", "u": "decimal", "d": "decimal", "w": "decimal", "f": "float", "r": "float",
        "c": "text", "t": "text", "b": "binary", "l": "binary", "da": "date", "dt": "timestamp", "ts": "timestamp_tz",
        "ti": "other", "y": "integer", "e": "text", "b1": "boolean", "b9": "decimal", "g": "other", "lat": "text",
    }  # fmt: skip
    row = rows_of(database, session, "SELECT * FROM s -- end").to_pylist()[0]
    assert row == {
        "i": 1, "flag": 5, "u": Decimal(2**64 - 1), "d": Decimal("1.50"), "w": f"1{'0' * 30}.{'0' * 30}",
        "f": pytest.approx(0.1, abs=1e-8), "r": 0.1, "c": "abc", "t": "t", "b": b"b", "l": b"\xff\x00",
        "da": date(2020, 1, 1), "dt": datetime(2020, 1, 1, 0, 0, 0, 123000),  # noqa: DTZ001
        "ts": datetime(2020, 1, 1, 12, tzinfo=UTC), "ti": "-838:59:59", "y": 2020, "e": "x", "b1": True,
        "b9": Decimal(257), "g": "POINT(1 2)", "lat": "é",
    }  # fmt: skip


def test_a_description_runs_nothing(database: MySQL, session: MySQLSession) -> None:
    columns = database.describe(
        session, "WITH x AS (SELECT SLEEP(60) AS s, 1 AS n) SELECT n, COUNT(*) AS c, MAX(s) AS m FROM x GROUP BY n"
    )
    assert [column.name for column in columns] == ["n", "c", "m"]


def test_many_rows_are_read_in_bounded_batches(
    database: MySQL, session: MySQLSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_wire, "CHUNK_BYTES", 50_000)
    numbers = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
    session.execute("CREATE TABLE many (i INT, t TEXT)")
    session.execute("SET SESSION /*M! max_recursive_iterations *//*!80000 cte_max_recursion_depth */ = 1000000")
    session.execute(f"INSERT INTO many {numbers} SELECT i, REPEAT(CHAR(97 + i % 26), i % 700) FROM n")
    opened = database.open_read(session, "SELECT * FROM many ORDER BY i", 1)
    batches = list(database.read(opened.splits[0]))
    assert len(batches) > 5
    table = pa.Table.from_batches(batches)
    assert table.column("i").to_pylist() == list(range(1, 20_001))
    assert table.column("t").to_pylist() == [chr(97 + i % 26) * (i % 700) for i in range(1, 20_001)]


@pytest.mark.parametrize("size", [250, 251, 65_535, 65_536, 2**24 - 10, 2**24 - 1, 2**24, 40_000_000])
def test_values_of_any_length_are_read(database: MySQL, session: MySQLSession, mysql_server: Any, size: int) -> None:
    mysql_server.execute("SET GLOBAL max_allowed_packet = 1073741824")
    sql = f"SELECT 1 AS a, NULL AS n, REPEAT('x', {size}) AS t, 2 AS b UNION ALL SELECT 3, 4, 'y', 5"
    table = rows_of(database, session, sql)
    assert table.column("a").to_pylist() == [1, 3]
    assert table.column("b").to_pylist() == [2, 5]
    assert [len(text) for text in table.column("t").to_pylist()] == [size, 1]


def test_no_rows_is_no_batch(database: MySQL, session: MySQLSession) -> None:
    assert rows_of(database, session, "SELECT 1 AS a FROM DUAL WHERE 1 = 0").num_rows == 0


def test_days_that_do_not_exist_mark_their_rows(database: MySQL, session: MySQLSession) -> None:
    session.execute("CREATE TABLE z (n INT, d DATE, at DATETIME)")
    session.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")
    session.execute(
        "INSERT INTO z VALUES (1, '2020-01-01', '2020-01-01'), (2, '0000-00-00', NULL), (3, NULL, '2020-02-30')"
    )
    table = rows_of(database, session, "SELECT * FROM z ORDER BY n")
    assert table.column("d").to_pylist() == [date(2020, 1, 1), None, None]
    assert table.column(FAILED).to_pylist() == [
        None, "d: '0000-00-00' is no day of the calendar", "at: '2020-02-30 00:00:00' is no day of the calendar",
    ]  # fmt: skip


@pytest.mark.parametrize("altered", ["CAST('12x' AS SIGNED)", "1 / 0", "CAST(1000 AS DECIMAL(2,0))", "'abc' + 0"])
def test_a_value_that_a_select_would_bend_is_an_error(database: MySQL, session: MySQLSession, altered: str) -> None:
    session.execute("CREATE TABLE one (a INT)")
    session.execute("INSERT INTO one VALUES (1)")
    with pytest.raises(RunError, match="bends values"):
        rows_of(database, session, f"SELECT {altered} AS v FROM one")


def test_a_read_that_is_given_up_leaves_no_connection(database: MySQL, session: MySQLSession) -> None:
    session.execute("CREATE TABLE one (a LONGTEXT)")
    session.execute("INSERT INTO one VALUES (REPEAT('x', 1000000)), (REPEAT('x', 1000000))")
    split = database.open_read(session, "SELECT p.a FROM one AS p, one AS q, one AS r, one AS s", 1).splits[0]
    reading = database.read(split)
    assert next(reading).num_rows > 0
    del reading
    others = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND command = 'Query'"
    while session.query(others) != [(1,)]:
        pass


def test_an_error_in_the_middle_of_the_rows_is_raised(database: MySQL, session: MySQLSession) -> None:
    session.execute("CREATE TABLE k (a INT)")
    session.execute("INSERT INTO k VALUES (1), (2)")
    with pytest.raises(pymysql.Error, match="1690"):
        rows_of(database, session, "SELECT a, 9223372036854775806 + a AS v FROM k ORDER BY a")


def test_free_connections_are_what_server_and_account_leave(session: MySQLSession, mysql_url: str) -> None:
    most = int(session.query("SELECT @@GLOBAL.max_connections")[0][0])
    assert most - 50 < session.free_connections() < most
    session.execute("CREATE USER few@'%' IDENTIFIED BY 'few' WITH MAX_USER_CONNECTIONS 3")
    try:
        address = urlsplit(mysql_url)
        # Any account may look: a database of its own is none of the rights that are needed.
        url = address._replace(netloc=f"few:few@{address.hostname}:{address.port}", path="").geturl()
        limited = MySQL(MySQLConnection("few", url=url)).session()
        assert limited.free_connections() == 2
        limited.close()
    finally:
        session.execute("DROP USER few@'%'")
