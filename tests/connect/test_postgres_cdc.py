"""Changes of PostgreSQL as messages: what a range has, whether it can be read again, and what is lost is said."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ematix_flow.connect.postgres.cdc import source as cdc_source
from ematix_flow.connect.postgres.cdc.pgoutput import parse_lsn
from ematix_flow.connect.postgres.cdc.slot import slot_name
from ematix_flow.connect.postgres.cdc.source import PostgresChanges
from ematix_flow.declare.connection.registry import PostgresCDCConnection
from ematix_flow.errors import DeclareError, RunError, StreamLostError, TransientError
from tests.connect.change_messages import brief, drained, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Statement = Callable[..., list[tuple[Any, ...]]]

pytestmark = pytest.mark.service


@pytest.fixture
def run(postgres_url: str) -> Iterator[Statement]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:

        def execute(sql: str, *parameters: object) -> list[tuple[Any, ...]]:
            cursor = connection.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

        yield execute


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Callable[..., PostgresChanges]]:
    sources = []

    def create(query: str, stream: str = "changes", **more: Any) -> PostgresChanges:
        source = PostgresChanges(PostgresCDCConnection("pg", **{"url": postgres_url, **more}), query)
        source.read_for(stream)
        sources.append(source)
        return source

    yield create
    for source in sources:
        source.close()


def test_a_stream_begins_with_the_rows_and_goes_on_with_every_change(
    run: Statement, opened: Callable[..., PostgresChanges]
) -> None:
    run("CREATE TABLE orders (id int PRIMARY KEY, what text)")
    run("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    source = opened("orders")
    source.begin()
    begin = source.start("earliest")
    rows, position = drained(source, begin)
    assert sorted(map(repr, map(brief, rows))) == sorted(
        map(repr, [("r", None, {"id": 1, "what": "a"}), ("r", None, {"id": 2, "what": "b"})])
    )
    assert position["tables"] == ["public.orders"]
    run("INSERT INTO orders VALUES (3, 'c')")
    run("UPDATE orders SET what = 'B' WHERE id = 2")
    run("UPDATE orders SET id = 9 WHERE id = 1")
    run("DELETE FROM orders WHERE id = 3")
    run("TRUNCATE orders")
    changes, end = drained(source, position)
    expected = [
        ("c", None, {"id": 3, "what": "c"}),
        ("u", None, {"id": 2, "what": "B"}),
        ("d", {"id": 1}, None),
        ("c", None, {"id": 9, "what": "a"}),
        ("d", {"id": 3}, None),
        ("t", None, None),
    ]
    assert [brief(one) for one in changes] == expected
    assert [brief(one) for one in messages(source, position, end)] == expected, "a range can be read again"
    assert {(one["source"]["schema"], one["source"]["table"]) for one in changes} == {("public", "orders")}
    numbers = [one["source"]["lsn"] for one in changes]
    assert numbers == sorted(numbers)
    assert rows[0]["source"]["lsn"] < numbers[0]
    assert drained(source, end) == ([], end)


def test_ranges_end_at_transactions_and_never_share_one(run: Statement, opened: Callable[..., PostgresChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    source = opened("t")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    for number in range(0, 50, 5):
        run("INSERT INTO t SELECT generate_series(%s::int, %s::int)", number, number + 4)
    collected, ends = [], []
    while source.distance(position, end := source.ahead(position, 12)):
        collected.append([one["after"]["id"] for one in messages(source, position, end)])
        ends.append(end["lsn"])
        position = end
    assert [number for part in collected for number in part] == list(range(50))
    assert [len(part) for part in collected] == [10, 10, 10, 10, 10]
    assert ends == sorted(ends, key=parse_lsn)


def test_a_target_that_is_far_ahead_of_the_slot_goes_on(run: Statement, opened: Callable[..., PostgresChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    source = opened("t")
    source.begin()
    _, first = drained(source, source.start("earliest"))
    for number in range(30):
        run("INSERT INTO t VALUES (%s)", number)
    collected, position = drained(source, first, most=3)
    assert [one["after"]["id"] for one in collected] == list(range(30))
    assert source.distance(first, position) == 30
    source.commit_offsets([position, first])
    assert source.details()["slot_position"] == first["lsn"]
    source.commit_offsets([position, position])
    assert source.details()["slot_position"] == position["lsn"]
    with pytest.raises(StreamLostError, match="are gone"):
        source.ahead(first, 10)


VALUES = """
CREATE TYPE mood AS ENUM ('so, so', 'fine');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE "odd ""table.,x" (
  "id;--" bigint PRIMARY KEY, n numeric, f float8, r real, b bool, t text, c char(5), at timestamptz, local timestamp, d date,
  ti time, iv interval, by bytea, js jsonb, u uuid, arr int[], texts text[], nested numeric[][], m mood, moods mood[], p positive,
  ps positive[], ip inet, mo money, rg int4range, ats timestamptz[]
);
"""
ROWS = """
INSERT INTO "odd ""table.,x" VALUES
 (9223372036854775807, 12345678901234567890123456789.123456789012345678, 1e300, 0.1, true, E'a"b\\\\\\n\u2028é', 'ab',
  '2026-03-29 02:30:00.123456+02', '2026-03-29 02:30:00', '0001-01-01', '24:00', '1 mon 2 days 03:04:05.6', '\\x00ff',
  '{"a": [1, 1.10, null]}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,NULL,-3}', E'{"a,b",NULL,"NULL","q\\\\"\\\\\\\\"}',
  '{{1.10,2},{3,NaN}}', 'so, so', '{"so, so",fine}', 7, '{1,2}', '10.0.0.1/8', 12.5, '[1,5)',
  '{"2026-01-01 00:00:00+00",infinity}'),
 (-1, 'NaN', 'Infinity', '-Infinity', false, '', '', 'infinity', '-infinity', 'infinity', '00:00', '0', '\\x', 'null', NULL, '{}',
  '{}', '[0:1]={1,2}', NULL, NULL, NULL, NULL, NULL, NULL, 'empty', '{}'),
 (0, 0, -0.0, 'NaN', NULL, NULL, NULL, '0044-03-15 12:00:00+00 BC', '99999-12-31 23:59:59.999999', '4713-01-01 BC', NULL, NULL,
  NULL, '"text"', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""


def test_values_are_the_same_in_a_snapshot_and_in_the_log_and_lose_nothing(
    run: Statement, opened: Callable[..., PostgresChanges]
) -> None:
    run(VALUES)
    run(ROWS)
    source = opened('"odd ""table.,x"', "Strøm'; DROP--")
    source.begin()
    rows, position = drained(source, source.start("earliest"))
    run('DELETE FROM "odd ""table.,x"')
    run(ROWS)
    changes, _ = drained(source, position)
    snapshot = {one["after"]["id;--"]: one["after"] for one in rows}
    logged = {one["after"]["id;--"]: one["after"] for one in changes if one["op"] == "c"}
    assert snapshot == logged
    large = logged[9223372036854775807]
    expected = {
        "f": 1e300, "r": 0.1, "b": True, "t": 'a"b\\\n\u2028é', "c": "ab   ", "at": "2026-03-29T00:30:00.123456Z",
        "local": "2026-03-29T02:30:00", "d": "0001-01-01", "ti": "24:00:00", "iv": "1 mon 2 days 03:04:05.6", "by": "AP8=",
        "js": '{"a": [1, 1.10, null]}', "arr": [1, None, -3], "texts": ["a,b", None, "NULL", 'q"\\'], "m": "so, so",
        "nested": [[1.10, 2], [3, "NaN"]], "moods": ["so, so", "fine"], "p": 7, "ps": [1, 2], "ip": "10.0.0.1/8",
        "mo": "$12.50", "rg": "[1,5)", "ats": ["2026-01-01T00:00:00Z", "infinity"],
    }  # fmt: skip
    assert {name: large[name] for name in expected} == expected
    (text,) = [
        row["value"].decode()
        for part in source.plan_partitions(position, source.ahead(position, 1000), [])
        for table in part.read()
        for row in table.to_pylist()
        if b"9223372036854775807" in row["value"] and b'"op":"c"' in row["value"]
    ]
    assert '"n":12345678901234567890123456789.123456789012345678,' in text, "every digit is there"
    second = logged[-1]
    assert [second[name] for name in ("n", "f", "r", "at", "local", "d", "js", "nested", "by")] == [
        "NaN", "Infinity", "-Infinity", "infinity", "-infinity", "infinity", "null", [1, 2], ""
    ]  # fmt: skip
    third = logged[0]
    assert (third["at"], third["d"], third["local"]) == (
        "0044-03-15 12:00:00+00 BC", "4713-01-01 BC", "99999-12-31T23:59:59.999999",
    )  # fmt: skip


def test_large_values_that_did_not_change_are_absent(run: Statement, opened: Callable[..., PostgresChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY, big text, n int)")
    run("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    run("INSERT INTO t VALUES (1, repeat('x', 10000), 1)")
    source = opened("t")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    run("UPDATE t SET n = 2")
    run("UPDATE t SET big = NULL")
    run("UPDATE t SET big = repeat('y', 10000)")
    run("ALTER TABLE t REPLICA IDENTITY FULL")
    run("UPDATE t SET n = 3")
    run("DELETE FROM t")
    changes, _ = drained(source, position)
    big = "y" * 10_000
    assert [brief(one) for one in changes] == [
        ("u", None, {"id": 1, "n": 2}),
        ("u", None, {"id": 1, "big": None, "n": 2}),
        ("u", None, {"id": 1, "big": big, "n": 2}),
        ("u", {"id": 1, "big": big, "n": 2}, {"id": 1, "big": big, "n": 3}),
        ("d", {"id": 1, "big": big, "n": 3}, None),
    ]


def test_a_transaction_that_is_open_while_the_rows_are_read_is_neither_lost_nor_doubled(
    run: Statement, opened: Callable[..., PostgresChanges], postgres_url: str
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    run("INSERT INTO t VALUES (1, 0), (2, 0)")
    source = opened("t")
    source.begin()
    begin = source.start("earliest")
    end = source.ahead(begin, 10)  # the snapshot is there now
    with psycopg.connect(postgres_url) as other:
        other.execute("UPDATE t SET n = 1 WHERE id = 1")
        run("UPDATE t SET n = 2 WHERE id = 2")
        rows = messages(source, begin, end)
        assert sorted((one["after"]["id"], one["after"]["n"]) for one in rows) == [(1, 0), (2, 0)]
    changes, _ = drained(source, end)
    assert [one["after"] for one in changes] == [{"id": 2, "n": 2}, {"id": 1, "n": 1}], "in the order of commits"
    assert all(one["source"]["lsn"] > rows[0]["source"]["lsn"] for one in changes)


def test_a_table_that_comes_later_is_read_whole_while_the_others_go_on(
    run: Statement, opened: Callable[..., PostgresChanges]
) -> None:
    run("CREATE SCHEMA shop; CREATE TABLE shop.a (id int PRIMARY KEY); INSERT INTO shop.a VALUES (1)")
    source = opened("shop.*")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    source.close()
    run("CREATE TABLE shop.b (id int PRIMARY KEY); INSERT INTO shop.b VALUES (1), (2)")
    run("INSERT INTO shop.a VALUES (2)")
    again = opened("shop.*")
    again.begin()
    run("INSERT INTO shop.b VALUES (3)")
    run("INSERT INTO shop.a VALUES (3)")
    collected, end = drained(again, position)
    assert [one["after"]["id"] for one in collected if one["source"]["table"] == "a"] == [2, 3]
    assert sorted((one["op"], one["after"]["id"]) for one in collected if one["source"]["table"] == "b") == [
        ("r", 1), ("r", 2), ("r", 3),
    ]  # fmt: skip
    assert end["tables"] == ["shop.a", "shop.b"]
    run("INSERT INTO shop.b VALUES (4)")
    assert [brief(one) for one in drained(again, end)[0]] == [("c", None, {"id": 4})]


def test_a_table_is_read_again_when_an_operator_takes_it_out_of_the_position(
    run: Statement, opened: Callable[..., PostgresChanges]
) -> None:
    run("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    source = opened("a, b")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    moved = source.seek(position, json.dumps({"lsn": position["lsn"], "tables": ["public.b"]}))
    assert [brief(one) for one in drained(source, moved)[0]] == [("r", None, {"id": 1})]


def test_a_table_without_a_replica_identity_is_refused_before_its_users_are_locked_out(
    run: Statement, opened: Callable[..., PostgresChanges]
) -> None:
    run("CREATE TABLE t (id int)")
    source = opened("t")
    with pytest.raises(DeclareError, match="no replica identity") as refused:
        source.begin()
    assert 'ALTER TABLE "public"."t" REPLICA IDENTITY FULL' in str(refused.value.hint)
    run("INSERT INTO t VALUES (1)")
    run("UPDATE t SET id = 2")  # as before
    run("ALTER TABLE t REPLICA IDENTITY FULL")
    again = opened("t")
    again.begin()
    _, position = drained(again, again.start("earliest"))
    run("UPDATE t SET id = 3")
    assert [brief(one) for one in drained(again, position)[0]] == [("u", {"id": 2}, {"id": 3})]


def test_what_is_lost_is_said(
    run: Statement, opened: Callable[..., PostgresChanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    source = opened("t")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    with pytest.raises(StreamLostError, match="another server"):
        source.ahead(position | {"server": "1"}, 1)
    with pytest.raises(StreamLostError, match="timeline") as promoted:
        source.ahead(position | {"timeline": 99}, 1)
    assert position["lsn"] in str(promoted.value.hint)
    run("SELECT pg_drop_replication_slot(%s)", source.reader.slot)
    with pytest.raises(StreamLostError, match="is gone"):
        source.ahead(position, 1)
    run("INSERT INTO t VALUES (1)")
    again = opened("t")
    again.begin()
    with pytest.raises(StreamLostError, match="begins at"):
        again.ahead(position, 1)
    assert [brief(one) for one in drained(again, again.start("earliest"))[0]] == [("r", None, {"id": 1})]
    from ematix_flow.connect.postgres.cdc.slot import SlotStatus

    lost = SlotStatus(parse_lsn(position["lsn"]), 0, "lost", None, 0, None)
    monkeypatch.setattr(cdc_source, "slot_status", lambda *_: lost)
    with pytest.raises(StreamLostError, match="server removed its log") as removed:
        again.ahead(position, 1)
    assert "max_slot_wal_keep_size" in str(removed.value.hint)
    assert "instant" not in str(removed.value.hint)  # a log refuses one


def test_a_position_moves_on_while_only_other_tables_are_written_to(
    run: Statement, opened: Callable[..., PostgresChanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (x text)")
    source = opened("t")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    run("INSERT INTO other SELECT repeat('x', 100) FROM generate_series(1, 2000)")
    assert source.ahead(position, 100) == position
    monkeypatch.setattr(cdc_source, "IDLE_BYTES", 100_000)
    run("INSERT INTO other VALUES ('y')")
    moved = source.ahead(position, 100)
    assert parse_lsn(moved["lsn"]) - parse_lsn(position["lsn"]) > 100_000
    assert messages(source, position, moved) == []
    source.commit_offsets([moved])
    assert source.details()["slot_position"] == moved["lsn"]


def test_names_of_slots_follow_from_streams_and_are_valid() -> None:
    streams, sides = ("Orders → lake", "orders", "O'; DROP", "→", "x" * 300), ("", "p")
    names = [slot_name(stream, project, database) for stream in streams for project in sides for database in sides]
    assert len(set(names)) == len(names)
    assert all(name.isascii() and name == name.lower() and len(name) <= 63 for name in names)
    assert all(character.isalnum() or character == "_" for name in names for character in name)


def test_a_stream_that_begins_at_the_end_reads_no_rows(run: Statement, opened: Callable[..., PostgresChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    source = opened("t")
    source.begin()
    position = source.start("latest")
    run("INSERT INTO t VALUES (2)")
    assert [brief(one) for one in drained(source, position)[0]] == [("c", None, {"id": 2})]


def test_a_query_that_names_nothing_is_refused(run: Statement, opened: Callable[..., PostgresChanges]) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(RunError, match=r"no table public\.nowhere"):
        opened("nowhere").begin()
    with pytest.raises(RunError, match="names no table"):
        opened("none.*").begin()
    with pytest.raises(RunError, match="does not name tables"):
        opened("a.b.c")
    with closing(opened("t")) as source, pytest.raises(RunError, match="no position"):
        source.start("2026-01-01")


def test_a_snapshot_whose_connection_ended_is_taken_again(
    run: Statement, opened: Callable[..., PostgresChanges]
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    source = opened("t")
    source.begin()
    begin = source.start("earliest")
    end = source.ahead(begin, 10)
    run(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE temporary AND database = current_database()"
    )
    over = time.monotonic() + 30
    while run("SELECT 1 FROM pg_replication_slots WHERE temporary AND database = current_database()"):
        assert time.monotonic() < over, "the server ends a connection some time after it was told to"
        time.sleep(0.02)
    with pytest.raises(TransientError, match="is gone"):
        messages(source, begin, end)
    source.close()
    run("INSERT INTO t VALUES (2)")
    again = opened("t")
    again.begin()
    rows, position = drained(again, begin)
    assert sorted(one["after"]["id"] for one in rows) == [1, 2]
    assert drained(again, position) == ([], position)


def test_an_identity_without_the_primary_key_is_refused(run: Statement, opened: Callable[..., PostgresChanges]) -> None:
    run("CREATE TABLE orders (id int PRIMARY KEY, shop int NOT NULL, code text NOT NULL UNIQUE, UNIQUE (shop, id))")
    run("ALTER TABLE orders REPLICA IDENTITY USING INDEX orders_shop_id_key")
    source = opened("orders")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    run("INSERT INTO orders VALUES (1, 1, 'a')")
    run("UPDATE orders SET id = 2")
    changes, position = drained(source, position)
    assert [one["op"] for one in changes] == ["c", "d", "c"]
    run("ALTER TABLE orders REPLICA IDENTITY USING INDEX orders_code_key")
    with pytest.raises(DeclareError, match="without all columns of its primary key") as caught:
        opened("orders").begin()
    assert 'ALTER TABLE "public"."orders" REPLICA IDENTITY DEFAULT' in str(caught.value)
    run("UPDATE orders SET id = 3")
    with pytest.raises(RunError, match="was changed to an index without its primary key"):
        drained(source, position)
    run("CREATE TABLE codes (id int, code text NOT NULL UNIQUE)")
    run("ALTER TABLE codes REPLICA IDENTITY USING INDEX codes_code_key")
    opened("codes").begin()


def test_tables_that_inherit_are_tables_of_their_own(run: Statement, opened: Callable[..., PostgresChanges]) -> None:
    run("CREATE TABLE things (id int PRIMARY KEY)")
    run("CREATE TABLE kids () INHERITS (things)")
    run("INSERT INTO things VALUES (1)")
    run("INSERT INTO kids VALUES (2)")
    source = opened("things")
    source.begin()
    rows, position = drained(source, source.start("earliest"))
    run("INSERT INTO things VALUES (3)")
    run("UPDATE kids SET id = id + 10")  # which a published table without a key would refuse
    changes, _ = drained(source, position)
    assert [one["after"]["id"] for one in [*rows, *changes]] == [1, 3]
    assert source.warnings() == (
        "other tables inherit from public.things: their rows are not read with it; name these tables too",
    )


def test_rows_of_partitions_are_those_of_their_table(run: Statement, opened: Callable[..., PostgresChanges]) -> None:
    run("CREATE TABLE things (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    run("CREATE TABLE low PARTITION OF things FOR VALUES FROM (0) TO (10)")
    run("INSERT INTO things VALUES (1)")
    source = opened("public.*")
    source.begin()
    rows, position = drained(source, source.start("earliest"))
    run("INSERT INTO low VALUES (2)")
    changes, _ = drained(source, position)
    assert [one["after"]["id"] for one in [*rows, *changes]] == [1, 2]
    (warning,) = source.warnings()
    assert "TRUNCATE of one of them" in warning
