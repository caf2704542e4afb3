"""Many tables by one declaration: a stream for each, new tables when it starts again, and the state of every table."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ematix_flow import ematix
from ematix_flow.declare.connection.registry import PostgresConnection, SQLiteConnection, register_connection
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.stream.control import stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.replication import streams_of
from ematix_flow.engine.stream.run_many import run_streams
from ematix_flow.errors import DeclareError, FlowError, PlanError
from ematix_flow.serve.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, at timestamptz, price numeric(10, 2), tags text[], note jsonb, ok bool);
CREATE TABLE shop."order items" (a int, b varchar(10), n double precision, PRIMARY KEY (a, b));
INSERT INTO shop.orders VALUES (1, '2026-01-02 03:04:05+00', 9.90, '{x,"y z"}', '{"a": 1}', true), (2, NULL, NULL, NULL, NULL, NULL);
INSERT INTO shop."order items" VALUES (1, 'q', 0.5);
"""


def run(url: str, sql: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(sql.encode())


def rows(file: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(sql).fetchall()


def replicate(streams: list[Any]) -> None:
    outcomes = run_streams(streams, StreamOptions(available_now=True))
    failed = [outcome for outcome in outcomes.values() if isinstance(outcome, Exception)]
    assert not failed, failed


def test_every_table_is_mirrored_and_new_ones_come_with_the_next_start(postgres_url: str, tmp_path: Path) -> None:
    run(postgres_url, TABLES)
    file = tmp_path / "t.db"
    register_connection(PostgresConnection("pg", url=postgres_url))
    register_connection(SQLiteConnection("there", path=str(file)))
    declared = ematix.replicate("pg", tables="shop.*", into="there", schema="main")
    streams = streams_of(declared)
    assert [stream.name for stream in streams] == ['pg_to_there.shop."order items"', "pg_to_there.shop.orders"]
    replicate(streams)
    assert rows(file, 'SELECT a, b, n FROM "order items"') == [(1, "q", 0.5)]
    (first, second) = rows(file, "SELECT id, price, tags, note, ok FROM orders ORDER BY id")
    assert (first[0], float(first[1]), json.loads(first[2]), json.loads(first[3]), first[4]) == (
        1,
        9.9,
        ["x", "y z"],
        {"a": 1},
        1,
    )
    assert second == (2, None, None, None, None)
    run(postgres_url, "CREATE TABLE shop.later (id int PRIMARY KEY); INSERT INTO shop.later VALUES (7)")
    run(postgres_url, 'DELETE FROM shop.orders WHERE id = 1; UPDATE shop."order items" SET n = 2')
    replicate(streams_of(declared))
    assert rows(file, "SELECT id FROM later") == [(7,)]
    assert rows(file, "SELECT id FROM orders") == [(2,)]
    assert rows(file, 'SELECT n FROM "order items"') == [(2.0,)]
    for stream in streams_of(declared):
        (status,) = stream_status(stream, StreamOptions())
        assert (status.lag, status.problem) == (0, None)


@pytest.mark.parametrize(("mode", "versions"), [("scd2", 2), ("append", 2)])
def test_a_replication_can_retain_history(postgres_url: str, tmp_path: Path, mode: str, versions: int) -> None:
    run(postgres_url, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)")
    file = tmp_path / "t.db"
    register_connection(PostgresConnection("pg", url=postgres_url))
    register_connection(SQLiteConnection("there", path=str(file)))
    declared = ematix.replicate("pg", tables="public.t", into="there", schema="main", mode=mode, name=f"m_{mode}")
    replicate(streams_of(declared))
    run(postgres_url, "UPDATE t SET n = 2")
    replicate(streams_of(declared))
    assert rows(file, "SELECT count(*) FROM t") == [(versions,)]
    assert sorted(rows(file, "SELECT n FROM t")) == [(1,), (2,)]


def test_a_command_shows_every_table(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(postgres_url, TABLES)
    monkeypatch.setenv("SHOP_DSN", postgres_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flows.py").write_text(
        "from ematix_flow import PostgresConnection, SQLiteConnection, ematix, register_connection\n"
        "register_connection(PostgresConnection('pg', url='${SHOP_DSN}'))\n"
        "register_connection(SQLiteConnection('there', path='t.db'))\n"
        "ematix.replicate('pg', tables='shop.*', into='there', schema='main', name='mirror')\n"
    )
    assert main(["consume", "mirror", "--module", "flows", "--available-now", "--no-run-log"]) == 0
    capsys.readouterr()
    assert main(["stream", "status", "mirror", "--module", "flows", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["stream"] for one in shown["streams"]] == ['mirror.shop."order items"', "mirror.shop.orders"]
    assert all(one["targets"][0]["source"]["slot_status"] == "reserved" for one in shown["streams"])
    assert main(["stream", "status", "mirror.shop.orders", "--module", "flows", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["stream"] == "mirror.shop.orders"


def test_what_cannot_be_replicated_is_refused(postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE keyless (x int)")
    register_connection(PostgresConnection("pg", url=postgres_url))
    with pytest.raises(FlowError, match="mode"):
        ematix.replicate("pg", tables="public.*", into="pg", mode="merge")
    declared = ematix.replicate("pg", tables="public.*", into="pg", name="one")
    with pytest.raises(DeclareError, match="one"):
        ematix.replicate("pg", tables="public.*", into="pg", name="one")
    with pytest.raises(PlanError, match=r"public\.keyless has no primary key"):
        streams_of(declared)
    assert list(PROJECT.replications) == ["one"]
