from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from ematix_flow import DuckDBConnection, PostgresConnection, SQLiteConnection
from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.registry import open_database

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database

OLD = (
    "CREATE TABLE {name} (run_id VARCHAR(36) PRIMARY KEY, pipeline_name VARCHAR(80) NOT NULL, "
    "status VARCHAR(20) NOT NULL, rows_inserted BIGINT)"
)


def completed(database: Database) -> set[str]:
    """Return the columns of a run history that an older product began, after ours was asked for."""
    ledger = Ledger(database)
    with closing(database.session()) as session:
        database.create_schema(session, database.metadata_table("run_history").schema)
        session.execute(OLD.format(name=ledger.name("run_history")))
        session.execute(f"INSERT INTO {ledger.name('run_history')} VALUES ('a', 'p', 'success', 3)")
        ledger.ensure(session)
        ledger.ensure(session)
        existing = database.find_table(session, database.metadata_table("run_history"))
        assert session.query(f"SELECT rows_inserted FROM {ledger.name('run_history')}") == [(3,)]
    assert existing is not None
    return {column.name for column in existing.columns}


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_run_history_from_before_keeps_its_rows_and_gains_what_it_lacks(kind: str, tmp_path: object) -> None:
    if kind == "duckdb":
        database = open_database(DuckDBConnection("d", f"{tmp_path}/d.duckdb"))
    else:
        database = open_database(SQLiteConnection("s", f"{tmp_path}/s.db"))
    assert {"rows_deleted", "rows_rejected", "metrics_json"} <= completed(database)


@pytest.mark.service
def test_so_does_one_on_postgres(postgres_url: str) -> None:
    assert {"rows_deleted", "rows_rejected"} <= completed(open_database(PostgresConnection("p", postgres_url)))


@pytest.mark.service
def test_runs_that_create_the_tables_at_once_do_not_disturb_each_other(postgres_url: str) -> None:
    database, runs = open_database(PostgresConnection("p", postgres_url)), 12
    start = Barrier(runs)

    def ensure(number: int) -> int:
        with closing(database.session()) as session:
            start.wait()
            Ledger(database).ensure(session)
            return number

    with ThreadPoolExecutor(runs) as pool:
        assert list(pool.map(ensure, range(runs))) == list(range(runs))
