"""Many tables by one declaration: a stream for each, new tables when it starts again, and the state of every table."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import ematix_flow
from ematix_flow import ematix
from ematix_flow.declare.connection.registry import (
    MySQLConnection,
    PostgresConnection,
    SQLiteConnection,
    register_connection,
)
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.replication_toml import replication_from_toml
from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.replication import streams_of
from ematix_flow.engine.stream.run_many import run_streams
from ematix_flow.errors import DeclareError, FlowError, PlanError
from ematix_flow.serve.cli.main import main
from tests.crash.harness import wait_until
from tests.streams.change_sources import Source

if TYPE_CHECKING:
    from ematix_flow.declare.stream.replication import Replication

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, at timestamptz, price numeric(10, 2), tags text[], note jsonb, ok bool);
CREATE TABLE shop."order items" (a int, b varchar(10), n double precision, PRIMARY KEY (a, b));
INSERT INTO shop.orders VALUES (1, '2026-01-02 03:04:05+00', 9.90, '{x,"y z"}', '{"a": 1}', true), (2, NULL, NULL, NULL, NULL, NULL);
INSERT INTO shop."order items" VALUES (1, 'q', 0.5);
"""


FLOWS = """
from ematix_flow import PostgresConnection, SQLiteConnection, ematix, register_connection
register_connection(PostgresConnection('pg', url='${SHOP_DSN}'))
register_connection(SQLiteConnection('there', path='t.db'))
ematix.replicate('pg', tables='shop.*', into='there', schema='main', name='mirror')
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


def test_a_history_goes_on_when_its_tables_are_read_again(postgres_url: str, tmp_path: Path) -> None:
    run(postgres_url, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)")
    file = tmp_path / "t.db"
    register_connection(PostgresConnection("pg", url=postgres_url))
    register_connection(SQLiteConnection("there", path=str(file)))
    declared = ematix.replicate("pg", tables="public.t", into="there", schema="main", mode="scd2", name="again")
    replicate(streams_of(declared))
    (stream,) = streams_of(declared)
    move_stream(stream, "earliest", StreamOptions(), healthy=True)
    run(postgres_url, "UPDATE t SET n = 11 WHERE id = 1")
    replicate([stream])
    assert rows(file, "SELECT id, n, is_current FROM t ORDER BY id, valid_from") == [(1, 1, 0), (1, 11, 1), (2, 2, 1)]


def history_of_things(mysql_url: str, file: Path) -> Replication:
    """Declare the history of a table in an SQLite file."""
    register_connection(MySQLConnection("shop", url=mysql_url))
    register_connection(SQLiteConnection("there", path=str(file)))
    return ematix.replicate("shop", tables="*.things", into="there", schema="main", mode="scd2", name="history")


def test_a_history_goes_on_with_a_statement_that_began_before_its_rows_were_read(
    mysql_url: str, tmp_path: Path
) -> None:
    with closing(Source(mysql_url)) as source, closing(source.connect()) as slow:
        source.run("INSERT INTO things VALUES (1, 5, 'a')")
        file = tmp_path / "t.db"
        declared = history_of_things(mysql_url, file)
        with slow.cursor() as cursor:
            cursor.execute("SET timestamp = UNIX_TIMESTAMP() - 60")
            cursor.execute("UPDATE things SET n = 2 WHERE id = 1")
            replicate(streams_of(declared))
            assert rows(file, "SELECT n FROM things WHERE is_current") == [(5,)]
            slow.commit()
        replicate(streams_of(declared))
        assert rows(file, "SELECT n FROM things WHERE is_current") == [(2,)]
        source.run("UPDATE things SET n = 1")  # within the same second, perhaps
        replicate(streams_of(declared))
    assert rows(file, "SELECT n FROM things WHERE is_current") == [(1,)]


@pytest.mark.parametrize("batches", [1, 2])
def test_a_history_goes_on_with_a_statement_that_waited_for_another_one(
    mysql_url: str, tmp_path: Path, batches: int
) -> None:
    with closing(Source(mysql_url)) as source, closing(source.connect()) as waits:
        source.run("INSERT INTO things VALUES (1, 1, 'a'), (2, 1, 'b')")
        file = tmp_path / "t.db"
        declared = history_of_things(mysql_url, file)
        replicate(streams_of(declared))
        (stream,) = streams_of(declared)
        (before,) = stream_status(stream, StreamOptions())
        source.run("SET timestamp = UNIX_TIMESTAMP() + 30")  # statements have the time at which they began
        source.run("UPDATE things SET n = 2 WHERE id = 1")
        if batches == 2:
            replicate([stream])
        with waits.cursor() as cursor:
            cursor.execute("UPDATE things SET n = 3 WHERE id = 1")
            waits.commit()
            cursor.execute("DELETE FROM things WHERE id = 2")
            waits.commit()
        replicate([stream])
        history = rows(file, "SELECT id, n, is_current, valid_from, valid_to FROM things ORDER BY 1, 4")
        assert [row[:2] for row in history if row[2]] == [(1, 3)]
        assert [row[:2] for row in history if row[4] is not None and row[4] < row[3]] == []
        move_stream(stream, json.dumps(before.position), StreamOptions(), healthy=True)
        replicate([stream])
        assert rows(file, "SELECT id, n, is_current, valid_from, valid_to FROM things ORDER BY 1, 4") == history


def test_a_command_shows_every_table(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(postgres_url, TABLES)
    monkeypatch.setenv("SHOP_DSN", postgres_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flows.py").write_text(FLOWS)
    assert main(["consume", "mirror", "--module", "flows", "--available-now", "--no-run-log"]) == 0
    capsys.readouterr()
    assert main(["stream", "status", "mirror", "--module", "flows", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["stream"] for one in shown["streams"]] == ['mirror.shop."order items"', "mirror.shop.orders"]
    assert all(one["targets"][0]["source"]["slot_status"] == "reserved" for one in shown["streams"])
    assert main(["stream", "status", "mirror.shop.orders", "--module", "flows", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["stream"] == "mirror.shop.orders"


TOML = """
[replicate]
name = "mirror"
tables = "shop.*"
schema = "main"

[replicate.source]
kind = "postgres"
name = "pg"
url = "${SHOP_DSN}"

[replicate.into]
kind = "sqlite"
path = "t.db"

[replicate.cdc]
missing_columns = "null"
"""


def test_a_file_declares_the_same(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(postgres_url, TABLES)
    monkeypatch.setenv("SHOP_DSN", postgres_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mirror.toml").write_text(TOML)
    assert main(["consume", "mirror.toml", "--available-now", "--no-run-log"]) == 0
    assert rows(tmp_path / "t.db", "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
    capsys.readouterr()
    assert main(["stream", "status", "mirror", "--config", "mirror.toml", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["stream"] for one in shown["streams"]] == ['mirror.shop."order items"', "mirror.shop.orders"]
    assert main(["cdc", "status", "mirror.toml", "--format", "json", "--no-run-log"]) == 0
    assert len(json.loads(capsys.readouterr().out)["streams"]) == 2
    assert main(["stream", "rewind", "mirror", "--config", "mirror.toml", "--to", "latest"]) == 2
    assert "which of its streams?" in capsys.readouterr().err
    assert main(["stream", "rewind", "mirror.shop.orders", "--config", "mirror.toml", "--to", "latest"]) == 0
    assert main(["stream", "status", "other", "--config", "mirror.toml"]) == 2
    assert "is 'mirror', not 'other'" in capsys.readouterr().err


def test_a_change_that_does_not_fit_is_a_dead_letter_of_the_stream_of_its_table(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(postgres_url, "CREATE SCHEMA shop; CREATE TABLE shop.orders (id bigint PRIMARY KEY, n int)")
    run(postgres_url, "CREATE TABLE shop.others (id bigint PRIMARY KEY); INSERT INTO shop.orders VALUES (1, 1)")
    monkeypatch.setenv("SHOP_DSN", postgres_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flows.py").write_text(FLOWS.replace("name='mirror'", "name='mirror', transform_on_error='dlq'"))
    consume = ("consume", "mirror", "--module", "flows", "--available-now", "--no-run-log")
    assert main(list(consume)) == 0
    run(postgres_url, "ALTER TABLE shop.orders ALTER n TYPE varchar(20)")
    run(postgres_url, "INSERT INTO shop.orders VALUES (2, 'x'), (3, '3'); INSERT INTO shop.others VALUES (7)")
    assert main(list(consume)) == 0
    assert rows(tmp_path / "t.db", "SELECT id, n FROM orders ORDER BY id") == [(1, 1), (3, 3)]
    assert rows(tmp_path / "t.db", "SELECT id FROM others") == [(7,)]
    one = ("mirror.shop.orders", "--module", "flows")
    capsys.readouterr()
    assert main(["dlq", "list", *one, "--format", "json"]) == 0
    (letter,) = json.loads(capsys.readouterr().out)
    assert letter["status"] == "pending"
    assert main(["dlq", "list", "mirror.shop.others", "--module", "flows", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["dlq", "replay", *one, "--all"]) == 1
    assert json.loads(capsys.readouterr().out)["redeadlettered"] == 1
    with closing(sqlite3.connect(tmp_path / "t.db")) as mirror:
        mirror.executescript("ALTER TABLE orders RENAME COLUMN n TO was; ALTER TABLE orders ADD COLUMN n text")
        mirror.executescript("UPDATE orders SET n = was; ALTER TABLE orders DROP COLUMN was")
    assert main(["dlq", "replay", *one, "--all"]) == 0
    assert json.loads(capsys.readouterr().out)["succeeded"] == 1
    assert rows(tmp_path / "t.db", "SELECT id, n FROM orders ORDER BY id") == [(1, "1"), (2, "x"), (3, "3")]
    assert main(["dlq", "stats", "mirror", "--module", "flows"]) == 2
    assert "which of its streams?" in capsys.readouterr().err


def test_a_replication_is_listed_with_the_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "listed.py").write_text(
        "from ematix_flow import ematix\nematix.replicate('pg', tables='shop.*', into='there', name='mirror')\n"
    )
    assert main(["consume-list", "--module", "listed", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"pipelines": ["mirror"]}
    assert main(["list", "--module", "listed", "--format", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["name"], entry["kind"], entry["targets"]) == ("mirror", "replication", ["shop.*"])


@pytest.mark.deep
def test_up_runs_a_replication(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(postgres_url, TABLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_DSN", postgres_url)
    (tmp_path / "flows.py").write_text(FLOWS)
    monkeypatch.setenv("PYTHONPATH", f"{Path(ematix_flow.__file__).parents[1]}:{tmp_path}")
    arguments = ("up", "--module", "flows", "--run-log-path", str(tmp_path / "runs.db"))
    process = subprocess.Popen([sys.executable, "-m", "ematix_flow", *arguments])

    def mirrored() -> bool:
        with closing(sqlite3.connect(tmp_path / "t.db", timeout=60)) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE name IN ('orders', 'order items')")
            return len(names.fetchall()) == 2 and process.poll() is None

    try:
        wait_until(lambda: mirrored() or process.poll() is not None, 120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
    assert rows(tmp_path / "t.db", "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]


def test_a_file_with_names_is_what_python_declares() -> None:
    text = '[replicate]\nsource = "pg"\ntables = "shop.*"\ninto = "there"\nmode = "scd2"\ntransform_on_error = "dlq"\n'
    declared = ematix.replicate("pg", tables="shop.*", into="there", mode="scd2", transform_on_error="dlq")
    assert replication_from_toml(text) == declared
    assert replication_from_toml(text.replace('transform_on_error = "dlq"\n', "")).transform_on_error == "fail"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[replicate]\ntables = "a"\ninto = "b"\n', r"\[replicate\] has no source"),
        ('[replicate]\nsource = 1\ntables = "a"\ninto = "b"\n', "neither the name of a connection nor a table"),
        ('[replicate]\nsource = "a"\ntables = "a"\ninto = "b"\nmode = "merge"\n', "mode"),
        (
            '[replicate]\nsource = "a"\ntables = "a"\ninto = "b"\ntransform_on_error = "drop"\n',
            "transform_on_error='drop'",
        ),
        ('[replicate]\nsource = "a"\ntabels = "a"\ninto = "b"\n', "unknown key 'tabels'"),
        ('pipeline_name = "a"\n[replicate]\n', "unknown key 'pipeline_name'"),
        (
            '[replicate]\nsource = "a"\ntables = "a"\ninto = "b"\n[replicate.cdc]\natomic = "transaction"\n',
            "commit each",
        ),
        ("replicate = 1\n", "is no table"),
    ],
)
def test_a_file_that_declares_no_replication_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DeclareError, match=message) as refused:
        replication_from_toml(text, "mirror.toml")
    assert refused.value.origin is not None
    assert refused.value.origin.file == "mirror.toml"


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


def test_two_tables_with_one_mirror_are_refused(postgres_url: str) -> None:
    run(postgres_url, "CREATE SCHEMA a; CREATE SCHEMA b")
    run(postgres_url, "CREATE TABLE a.items (id int PRIMARY KEY); CREATE TABLE b.items (id int PRIMARY KEY)")
    register_connection(PostgresConnection("pg", url=postgres_url))
    declared = ematix.replicate("pg", tables="a.*, b.*", into="pg", schema="copies", name="both")
    with pytest.raises(PlanError, match=r"a\.items and b\.items would both be mirrored into copies\.items"):
        streams_of(declared)
    apart = ematix.replicate("pg", tables="a.*, b.*", into="pg", name="apart")
    assert [stream.name for stream in streams_of(apart)] == ["apart.a.items", "apart.b.items"]
