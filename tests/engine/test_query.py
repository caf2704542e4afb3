"""Queries of people over real databases: ordinary analytics run, and what reaches further meets two locks."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from ematix_flow.connect.duckdb import session as duckdb_session
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_url
from ematix_flow.engine.query import Datasources
from ematix_flow.errors import DeclareError, RunError, TransientError
from tests.plan.analytics import ANALYTICS
from tests.plan.test_query_guard import OF_POSTGRES

if TYPE_CHECKING:
    from pathlib import Path


def failures(address: str, dialect: str) -> dict[str, str]:
    """Return the errors of the ordinary questions."""
    sources, failed = Datasources({"w": address}), {}
    for sql in ANALYTICS[dialect]:
        try:
            sources.query("w", sql, 10, 20.0)
        except (DeclareError, RunError) as error:
            failed[sql] = str(error)
    return failed


@pytest.mark.service
def test_ordinary_analytics_run_on_postgres(postgres_url: str) -> None:
    assert failures(postgres_url, "postgres") == {}


@pytest.mark.service
def test_ordinary_analytics_run_on_mysql(mysql_url: str) -> None:
    assert failures(mysql_url, "mysql") == {}


def test_ordinary_analytics_run_on_duckdb(duckdb_path: Path) -> None:
    duckdb.connect(str(duckdb_path)).close()
    assert failures(f"duckdb:///{duckdb_path}", "duckdb") == {}


def test_ordinary_analytics_run_on_sqlite(sqlite_path: Path) -> None:
    sqlite_path.touch()
    assert failures(f"sqlite:///{sqlite_path}", "sqlite") == {}


@pytest.mark.service
def test_what_reaches_beyond_tables_of_postgres_is_refused_before_it_is_sent(postgres_url: str, tmp_path: Path) -> None:
    sources, written = Datasources({"w": postgres_url}), tmp_path / "written"
    inside = f"SELECT array_to_tsvector(array[lo_export(1, ''{written}'')::text])"
    for sql in (*OF_POSTGRES, f"SELECT ts_stat('{inside}')", f"SELECT lo_export(1, '{written}')"):
        with pytest.raises(DeclareError):
            sources.query("w", sql, 10, 5.0)
    assert not written.exists()


def test_a_session_for_strangers_opens_nothing_but_its_duckdb_file(duckdb_path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("user,password\nada,TopSecret1\n", encoding="utf-8")
    database = open_database(connection_from_url("w", f"duckdb:///{duckdb_path}"))
    with closing(database.session()) as session:
        session.execute("CREATE TABLE t AS SELECT 1 AS a")
        session.execute(f"CREATE VIEW v AS SELECT * FROM read_csv('{secret}')")
    variable = pa.table({"x": [1]})
    forbidden = (
        f"SELECT * FROM (SUMMARIZE '{secret}')", f"SELECT * FROM '{secret}'", f"SELECT * FROM read_text('{secret}')", "SELECT * FROM v",
        f"ATTACH '{tmp_path}/other.duckdb'", f"COPY t TO '{tmp_path}/copy.csv'", "SET enable_external_access = true",
        "SET lock_configuration = false", "SELECT * FROM variable", "INSERT INTO t VALUES (2)",
    )  # fmt: skip
    with closing(database.confined_session()) as session:
        assert session.query("SELECT a FROM t") == [(1,)]
        for sql in forbidden:
            with pytest.raises(duckdb.Error):
                session.query(sql)
    assert variable.num_rows == 1
    with closing(database.session()) as session:  # loads are as free as before
        assert session.query("SELECT password FROM v") == [("TopSecret1",)]
    assert Datasources({"w": f"duckdb:///{duckdb_path}"}).query("w", "SELECT a FROM t", 10, 5.0).rows == ((1,),)


@pytest.mark.slow
def test_queries_and_loads_take_turns_on_a_duckdb_file(duckdb_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = open_database(connection_from_url("w", f"duckdb:///{duckdb_path}"))
    with closing(database.session()) as session:
        session.execute("CREATE TABLE t AS SELECT 1 AS a")
        threading.Timer(0.5, session.close).start()
        with closing(database.confined_session()) as waited, closing(database.confined_session()) as second:
            assert waited.query("SELECT a FROM t") == second.query("SELECT a FROM t")
    monkeypatch.setattr(duckdb_session, "DUCKDB_FILE", replace(duckdb_session.DUCKDB_FILE, seconds=0.1))
    with closing(database.confined_session()):
        for opening in (database.session, database.read_only_session):
            with pytest.raises(TransientError, match="held by another session of this process"):
                opening()


def test_a_session_for_strangers_attaches_nothing_to_its_sqlite_file(sqlite_path: Path, tmp_path: Path) -> None:
    sqlite_path.touch()
    database = open_database(connection_from_url("w", f"sqlite:///{sqlite_path}"))
    with closing(database.confined_session()) as session:
        for sql in (f"ATTACH '{tmp_path}/other.db' AS other", "SELECT load_extension('x')"):
            with pytest.raises(sqlite3.OperationalError):
                session.query(sql)
    assert not (tmp_path / "other.db").exists()
