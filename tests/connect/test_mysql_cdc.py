"""Changes of MariaDB as messages: what a range has, whether it can be read again, and what is lost is said."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pymysql
import pytest

from ematix_flow.connect.base.combined_source import CombinedSource
from ematix_flow.connect.base.retry import XA_PREPARED
from ematix_flow.connect.mysql.cdc import source as cdc_source
from ematix_flow.connect.mysql.cdc import walk
from ematix_flow.connect.mysql.cdc.binlog import prepared_transactions
from ematix_flow.connect.mysql.cdc.source import MySQLChanges
from ematix_flow.declare.connection.registry import MySQLCDCConnection
from ematix_flow.errors import RunError, StreamLostError, TransientError
from tests.connect.change_messages import brief, drained, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Statement = Callable[..., tuple[tuple[Any, ...], ...]]

pytestmark = pytest.mark.service


def connected(url: str) -> pymysql.Connection[Any]:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 0,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
        autocommit=True,
        local_infile=True,
    )


@pytest.fixture
def run(mysql_url: str) -> Iterator[Statement]:
    def execute(sql: str, *parameters: object) -> tuple[tuple[Any, ...], ...]:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return tuple(cursor.fetchall())

    with connected(mysql_url) as connection:
        yield execute


@pytest.fixture
def opened(mysql_url: str) -> Iterator[Callable[..., MySQLChanges]]:
    sources = []

    def create(query: str) -> MySQLChanges:
        source = MySQLChanges(MySQLCDCConnection("my", url=mysql_url), query)
        sources.append(source)
        source.begin()
        return source

    yield create
    for source in sources:
        source.close()


def offset_of(message: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(message["source"][name] for name in ("file", "pos", "row"))


def test_a_stream_begins_with_the_rows_and_goes_on_with_every_change(
    run: Statement, opened: Callable[..., MySQLChanges]
) -> None:
    run("CREATE TABLE orders (id int PRIMARY KEY, what varchar(20))")
    run("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    source = opened("orders")
    rows, position = drained(source, source.start("earliest"))
    assert [brief(one) for one in rows] == [
        ("r", None, {"id": 1, "what": "a"}), ("r", None, {"id": 2, "what": "b"}),
    ]  # fmt: skip
    run("CREATE TABLE other (x int PRIMARY KEY)")
    run("INSERT INTO other VALUES (1)")
    run("INSERT INTO orders VALUES (3, 'c'), (4, 'd')")
    run("UPDATE orders SET what = 'B' WHERE id = 2")
    run("UPDATE orders SET id = 9 WHERE id = 1")
    run("DELETE FROM orders WHERE id = 3")
    run("FLUSH BINARY LOGS")
    run("TRUNCATE TABLE `orders`")
    run("INSERT INTO orders VALUES (5, NULL)")
    changes, end = drained(source, position)
    expected = [
        ("c", None, {"id": 3, "what": "c"}),
        ("c", None, {"id": 4, "what": "d"}),
        ("u", {"id": 2, "what": "b"}, {"id": 2, "what": "B"}),
        ("d", {"id": 1, "what": "a"}, None),
        ("c", None, {"id": 9, "what": "a"}),
        ("d", {"id": 3, "what": "c"}, None),
        ("t", None, None),
        ("c", None, {"id": 5, "what": None}),
    ]
    assert [brief(one) for one in changes] == expected
    assert [brief(one) for one in messages(source, position, end)] == expected, "a range can be read again"
    offsets = [offset_of(one) for one in changes]
    assert offsets == sorted(offsets)
    assert max(map(offset_of, rows)) < offsets[0]
    assert all(one["source"]["gtid"] for one in changes)
    assert drained(source, end) == ([], end)
    (message,) = messages(source, position, source.ahead(position, 1), "_key", "_table")[:1]
    assert (message["_key"], message["_table"]) == ('{"id":3}', f"{source.reader.default_schema}.orders")


def test_what_was_rolled_back_is_no_change_though_the_log_has_it(
    run: Statement, opened: Callable[..., MySQLChanges]
) -> None:
    run("CREATE TABLE orders (id int PRIMARY KEY, what varchar(20))")
    run("CREATE TABLE untransacted (id int PRIMARY KEY) ENGINE=MyISAM")
    source = opened("orders")
    _, position = drained(source, source.start("earliest"))
    # With a table that knows no transactions the server writes down what was done and that it was undone.
    for sql in (
        "BEGIN", "INSERT INTO orders VALUES (1, 'a')", "SAVEPOINT `od``d`", "INSERT INTO untransacted VALUES (1)",
        "INSERT INTO orders VALUES (2, 'undone')", "SAVEPOINT inner_one", "UPDATE orders SET what = 'undone'",
        "ROLLBACK TO `od``d`", "INSERT INTO orders VALUES (3, 'c')", "SAVEPOINT again",
        "INSERT INTO orders VALUES (4, 'd')", "COMMIT",
        "BEGIN", "CREATE TEMPORARY TABLE helper (i int)", "INSERT INTO orders VALUES (5, 'undone')", "ROLLBACK",
        "INSERT INTO orders VALUES (6, 'f')",
    ):  # fmt: skip
        run(sql)
    assert run("SELECT id FROM orders ORDER BY id") == ((1,), (3,), (4,), (6,))
    first = source.ahead(position, 1)
    assert [one["after"]["id"] for one in messages(source, position, first)] == [1, 3, 4], "a transaction is whole"
    assert source.distance(position, first) == 3
    changes, _ = drained(source, first)
    assert [brief(one) for one in changes] == [("c", None, {"id": 6, "what": "f"})]


def test_ranges_end_at_transactions(run: Statement, opened: Callable[..., MySQLChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    source = opened("t")
    _, position = drained(source, source.start("earliest"))
    for number in range(0, 50, 5):
        run(f"INSERT INTO t VALUES {', '.join(f'({number + more})' for more in range(5))}")
    collected = []
    while source.distance(position, end := source.ahead(position, 12)):
        collected.append([one["after"]["id"] for one in messages(source, position, end)])
        position = end
    assert [number for part in collected for number in part] == list(range(50))
    assert [len(part) for part in collected] == [10, 10, 10, 10, 10]


VALUES = """
CREATE TABLE `odd ``table.,x` (
  `id;--` bigint unsigned PRIMARY KEY, n decimal(50, 20), f double, r float, b bool, t text, c char(5), v varchar(300) CHARACTER SET latin1,
  at timestamp(6) NULL, local datetime(3), d date, ti time(2), y year, bi binary(4), vb varbinary(10), bl blob, e enum('a', 'b,c'),
  s set('x', 'y', 'z'), bits bit(10), j json, ti1 tinyint unsigned, m mediumint
) CHARACTER SET utf8mb4
"""
ROWS = """
INSERT INTO `odd ``table.,x` VALUES
 (18446744073709551615, 123456789012345678901234567890.12345678901234567890, 1e300, 0.1, 1, 'a"b\\\\\\né\U0001f600', 'ab', 'ÿ',
  '2026-03-29 00:30:00.123456', '2026-03-29 02:30:00.5', '2026-01-02', '-838:59:58.5', 2026, 'ab', x'00ff', x'80', 'b,c', 'z,x',
  b'1000000001', '{"a": [1, 1.5, null]}', 255, -8388608),
 (0, -0.5, -1.5, 16777216, 0, '', '', '', NULL, '0001-01-01', '9999-12-31', '00:00', 0, '', '', '', NULL, '', b'0', 'null', 0, 0),
 (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""


def test_values_are_the_same_in_a_query_and_in_the_log_and_lose_nothing(
    run: Statement, opened: Callable[..., MySQLChanges]
) -> None:
    run("SET time_zone = '+00:00'")
    run(VALUES)
    run(ROWS)
    source = opened('"odd `table.,x"')
    rows, position = drained(source, source.start("earliest"))
    run("DELETE FROM `odd ``table.,x`")
    run(ROWS)
    changes, _ = drained(source, position)
    read = {one["after"]["id;--"]: one["after"] for one in rows}
    logged = {one["after"]["id;--"]: one["after"] for one in changes if one["op"] == "c"}
    for key, row in logged.items():
        assert read[key] == row
    expected = {
        "f": 1e300, "r": 0.1, "b": 1, "t": 'a"b\\\né\U0001f600', "c": "ab", "v": "ÿ", "at": "2026-03-29T00:30:00.123456Z",
        "local": "2026-03-29T02:30:00.500000", "d": "2026-01-02", "ti": "-838:59:58.500000", "y": 2026, "bi": "YWIAAA==",
        "vb": "AP8=", "bl": "gA==", "e": "b,c", "s": "x,z", "bits": 513, "j": '{"a": [1, 1.5, null]}', "ti1": 255, "m": -8388608,
    }  # fmt: skip
    large = logged[18446744073709551615]
    assert {name: large[name] for name in expected} == expected
    assert (logged[0]["s"], logged[0]["y"], logged[0]["bi"], logged[0]["r"]) == ("", 0, "AAAAAA==", 16777216)
    assert set(logged[1].values()) == {1, None}
    texts = [
        row["value"].decode()
        for part in source.plan_partitions(position, source.ahead(position, 1000), [])
        for table in part.read()
        for row in table.to_pylist()
    ]
    assert any('"n":123456789012345678901234567890.12345678901234567890,' in text for text in texts), "every digit"


def test_what_is_lost_is_said(run: Statement, opened: Callable[..., MySQLChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    source = opened("t")
    _, position = drained(source, source.start("earliest"))
    with pytest.raises(StreamLostError, match="another server"):
        source.ahead(position | {"server": "x"}, 1)
    with pytest.raises(StreamLostError, match="was read before"):
        source.ahead(position | {"pos": 2_000_000_000}, 1)
    for pos in (-5, 0, True):
        with pytest.raises(RunError, match="is no position in the log"):
            source.start(json.dumps({"file": position["file"], "pos": pos}))
    run("FLUSH BINARY LOGS")
    newest = run("SHOW MASTER STATUS")[0][0]
    over = time.monotonic() + 30
    while run("SHOW BINARY LOGS")[0][0] != newest and time.monotonic() < over:
        run(f"PURGE BINARY LOGS TO '{newest}'")  # what a connection has just read is in use for a moment
    with pytest.raises(StreamLostError, match="has removed its log") as purged:
        source.ahead(position, 1)
    assert "expire_logs_days" in str(purged.value.hint)
    assert "instant" not in str(purged.value.hint)  # a log refuses one
    run("INSERT INTO t VALUES (1)")
    assert [brief(one) for one in drained(source, source.start("earliest"))[0]] == [("r", None, {"id": 1})]


def test_a_position_moves_on_while_only_other_tables_are_written_to(
    run: Statement, opened: Callable[..., MySQLChanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    run("CREATE TABLE other (id int PRIMARY KEY)")
    source = opened("t")
    _, position = drained(source, source.start("earliest"))
    run("INSERT INTO other VALUES (1)")
    assert source.ahead(position, 10) == position
    run("FLUSH BINARY LOGS")
    moved = source.ahead(position, 10)
    assert moved["file"] != position["file"]
    assert messages(source, position, moved) == []
    monkeypatch.setattr(cdc_source, "IDLE_BYTES", 10)
    run("INSERT INTO other VALUES (2)")
    again = source.ahead(moved, 10)
    assert again["pos"] > moved["pos"] + 10


def test_a_server_whose_log_lacks_names_is_refused(run: Statement, opened: Callable[..., MySQLChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    run("SET GLOBAL binlog_row_metadata = 'NO_LOG'")
    try:
        with pytest.raises(RunError, match="whole rows") as refused:
            opened("t")
        assert "binlog_row_metadata = FULL" in str(refused.value.hint)
    finally:
        run("SET GLOBAL binlog_row_metadata = 'FULL'")


class Distributed:
    """A distributed transaction that is prepared."""

    def __init__(self, url: str, xid: str, *statements: str) -> None:
        self._connection, self._xid = connected(url), xid
        for statement in (f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}"):
            self._connection.query(statement)

    def end(self, how: str) -> None:
        """Commit it, or roll it back."""
        if self._connection.open:
            self._connection.query(f"XA {how} {self._xid}")
            self._connection.close()


@pytest.fixture
def xa(mysql_url: str) -> Iterator[Callable[..., Distributed]]:
    """Return what prepares a distributed transaction; none stays, for it would hold up other tests."""
    transactions = []

    def prepare(xid: str, *statements: str) -> Distributed:
        transactions.append(Distributed(mysql_url, xid, *statements))
        return transactions[-1]

    yield prepare
    for transaction in transactions:
        transaction.end("ROLLBACK")


def test_a_distributed_transaction_counts_where_it_is_committed(
    run: Statement, xa: Callable[..., Distributed], opened: Callable[..., MySQLChanges]
) -> None:
    run("CREATE TABLE orders (id int PRIMARY KEY, what varchar(20))")
    run("CREATE TABLE other (id int PRIMARY KEY)")
    run("INSERT INTO orders VALUES (1, 'a')")
    source = opened("orders")
    _, position = drained(source, source.start("earliest"))
    gone = xa("'gone'", "INSERT INTO orders VALUES (2, 'never')", "UPDATE orders SET what = 'never' WHERE id = 1")
    run("INSERT INTO orders VALUES (3, 'meanwhile')")
    changes, position = drained(source, position)
    assert [brief(one) for one in changes] == [("c", None, {"id": 3, "what": "meanwhile"})]
    prepared = xa("'kept'", "INSERT INTO orders VALUES (4, 'a'), (5, 'b')", "UPDATE orders SET what = 'c' WHERE id = 5")
    aside = xa("'aside'", "INSERT INTO other VALUES (1)")
    run("INSERT INTO orders VALUES (6, 'between')")
    changes, position = drained(source, position)
    assert [one["after"]["id"] for one in changes] == [6]
    gone.end("ROLLBACK")
    run("FLUSH BINARY LOGS")
    run("INSERT INTO orders VALUES (7, 'in another file')")
    aside.end("COMMIT")
    prepared.end("COMMIT")
    run("INSERT INTO orders VALUES (8, 'after')")
    earlier = offset_of(changes[-1])
    changes, end = drained(opened("orders"), position, most=1)
    assert [one["after"]["id"] for one in changes] == [7, 4, 5, 5, 8]
    offsets = [earlier, *map(offset_of, changes)]
    assert offsets == sorted(set(offsets)), "in the order of commits"
    assert changes == messages(source, position, end), "the same at every read"
    assert "since" in position
    assert "since" not in end
    assert drained(source, end)[0] == []


def test_a_distributed_transaction_in_one_phase_is_one_like_others(
    run: Statement, opened: Callable[..., MySQLChanges]
) -> None:
    run("CREATE TABLE orders (id int PRIMARY KEY, what varchar(20))")
    source = opened("orders")
    _, position = drained(source, source.start("earliest"))
    run("XA START 'once'")
    run("INSERT INTO orders VALUES (9, 'at once')")
    run("XA END 'once'")
    run("XA COMMIT 'once' ONE PHASE")
    assert [one["after"]["id"] for one in drained(source, position)[0]] == [9]


def test_rows_are_not_read_while_a_transaction_is_in_doubt(
    run: Statement, xa: Callable[..., Distributed], opened: Callable[..., MySQLChanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("CREATE TABLE orders (id int PRIMARY KEY)")
    monkeypatch.setattr(cdc_source, "XA_PREPARED", replace(XA_PREPARED, seconds=0))
    source = opened("orders")
    _, position = drained(source, source.start("earliest"))
    doubt = xa("'doubt'", "INSERT INTO orders VALUES (1)")
    with pytest.raises(TransientError, match="prepared transactions"):
        source.ahead(source.start("earliest"), 100)
    for one in (source, CombinedSource([source])):
        with pytest.raises(TransientError, match="prepared"):
            one.seek(None, "latest")
        one.start("latest")  # which only asks
    monkeypatch.setattr(walk, "IN_DOUBT_SECONDS", -1)
    with pytest.raises(RunError, match="neither committed nor rolled back") as caught:
        source.ahead(position, 100)
    assert "XA ROLLBACK X'646f756274',X'',1" in str(caught.value)
    doubt.end("COMMIT")
    assert [brief(one) for one in drained(source, position)[0]] == [("c", None, {"id": 1})]
    assert [brief(one) for one in drained(source, source.start("earliest"))[0]] == [("r", None, {"id": 1})]


@pytest.mark.parametrize("where", ["earliest", "latest"])
def test_a_stream_begins_on_a_server_that_always_has_a_prepared_transaction(
    run: Statement,
    xa: Callable[..., Distributed],
    opened: Callable[..., MySQLChanges],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    for name in ("one", "two"):
        run(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    doubt, later = xa("'doubt'", "INSERT INTO one VALUES (1)", "INSERT INTO two VALUES (1)"), list[Distributed]()

    def prepared(session: Any) -> frozenset[tuple[str, ...]] | None:
        current = prepared_transactions(session)
        if not later:  # behind the first look
            later.append(xa("'later'", "INSERT INTO one VALUES (2)", "INSERT INTO two VALUES (2)"))
            doubt.end("COMMIT")
        return current

    monkeypatch.setattr(cdc_source, "prepared_transactions", prepared)
    source = opened("one, two")
    position = source.seek(None, where)
    while where == "earliest" and len(position["tables"]) < 2:
        begin, position = position, source.ahead(position, 100)
        assert [brief(one) for one in messages(source, begin, position)] == [("r", None, {"id": 1})]
    run("INSERT INTO one VALUES (3)")
    later[0].end("COMMIT")
    changes, _ = drained(opened("one, two"), position)
    assert [one["after"]["id"] for one in changes] == [3, 2, 2]


def test_a_role_that_may_not_see_prepared_transactions_is_told(
    run: Statement, opened: Callable[..., MySQLChanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        """One of MySQL without XA_RECOVER_ADMIN; MariaDB wants no privilege for it."""

        def __init__(self, code: int) -> None:
            self._code = code

        def query(self, sql: str) -> list[tuple[Any, ...]]:
            raise pymysql.OperationalError(self._code, sql)

    run("CREATE TABLE orders (id int PRIMARY KEY)")
    source = opened("orders")
    assert source.warnings() == ()
    assert prepared_transactions(Session(1401)) is None  # type: ignore[arg-type]
    with pytest.raises(pymysql.OperationalError):
        prepared_transactions(Session(2013))  # type: ignore[arg-type]
    monkeypatch.setattr(cdc_source, "prepared_transactions", lambda session: prepared_transactions(Session(1401)))  # type: ignore[arg-type]  # noqa: ARG005
    (warning,) = source.warnings()
    assert "GRANT XA_RECOVER_ADMIN" in warning
    assert [brief(one) for one in drained(source, source.start("earliest"))[0]] == []


def test_a_statement_in_the_log_instead_of_rows_is_refused(
    run: Statement, opened: Callable[..., MySQLChanges], tmp_path: Path
) -> None:
    run("CREATE TABLE orders (id int PRIMARY KEY)")
    run("CREATE TABLE other (id int PRIMARY KEY)")
    source = opened("orders")
    _, position = drained(source, source.start("earliest"))
    run("SET STATEMENT max_statement_time=60 FOR /* job 7 */ TRUNCATE /* all */ TABLE orders -- nightly")
    changes, position = drained(source, position)
    assert [brief(one) for one in changes] == [("t", None, None)]
    run("SET SESSION binlog_format = 'STATEMENT'")
    run("INSERT INTO other SELECT 1 FROM (SELECT count(*) FROM orders) AS n")
    run("SET SESSION binlog_format = 'ROW'")
    run("INSERT INTO orders VALUES (1)")
    changes, position = drained(source, position)
    assert [brief(one) for one in changes] == [("c", None, {"id": 1})]
    run("SET SESSION binlog_format = 'STATEMENT'")
    run("UPDATE orders SET id = 2")
    with pytest.raises(StreamLostError, match=r"a statement \(UPDATE\) that changed rows of .*\.orders"):
        drained(source, position)
    _, position = drained(source, source.start("earliest"))
    (tmp_path / "rows.csv").write_text("7\n")
    run("LOAD DATA LOCAL INFILE %s INTO TABLE orders", str(tmp_path / "rows.csv"))
    with pytest.raises(StreamLostError, match=r"a statement \(LOAD\) that changed rows of .*\.orders"):
        drained(source, position)


def test_a_table_that_is_made_again_begins_without_rows(run: Statement, opened: Callable[..., MySQLChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    run("INSERT INTO t VALUES (1)")
    source = opened("t")
    _, position = drained(source, source.start("earliest"))
    run("DROP TABLE t")
    run("CREATE TABLE IF NOT EXISTS other (id int)")
    run("CREATE TABLE t (id int PRIMARY KEY, what text)")
    run("INSERT INTO t VALUES (2, 'a')")
    run("CREATE OR REPLACE TABLE t (id int PRIMARY KEY) AS SELECT 3 AS id")
    emptied, created = ("t", None, None), ("c", None, {"id": 2, "what": "a"})
    assert [brief(one) for one in drained(source, position)[0]] == [emptied, created, emptied, ("c", None, {"id": 3})]


def test_rows_have_what_is_in_the_log_and_not_visible_yet(
    run: Statement, opened: Callable[..., MySQLChanges], mysql_url: str
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    run("CREATE TABLE other (id int PRIMARY KEY)")
    source, quiet = opened("t"), opened("other")
    run("SET GLOBAL rpl_semi_sync_master_timeout = 2500, rpl_semi_sync_master_wait_point = 'AFTER_SYNC'")
    run("SET GLOBAL rpl_semi_sync_master_enabled = 1")
    try:
        with connected(mysql_url) as writer, ThreadPoolExecutor(1) as pool:
            end = run("SHOW MASTER STATUS")
            written = pool.submit(writer.query, "INSERT INTO t VALUES (1)")
            while run("SHOW MASTER STATUS") == end:
                time.sleep(0.01)
            drained(quiet, quiet.start("earliest"))
            assert not written.done(), "no other table waits"
            rows, position = drained(source, source.start("earliest"))
            written.result()
    finally:
        run("SET GLOBAL rpl_semi_sync_master_enabled = 0")
    assert [brief(one) for one in [*rows, *drained(source, position)[0]]] == [("r", None, {"id": 1})]
