from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ematix_flow import DuckDBConnection, PostgresConnection
from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.registry import open_database
from ematix_flow.errors import PlanError
from ematix_flow.plan.timezones import zoned

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database

COLUMNS = (SourceColumn("at", "timestamp", "TIMESTAMP"), SourceColumn("n", "integer", "INTEGER"))
SQL = "SELECT TIMESTAMP '2024-07-01 12:00:00' AS \"at\", 1 AS n"


def instants(database: Database) -> list[tuple[object, ...]]:
    sql, columns = zoned(SQL, COLUMNS, "Europe/Berlin", database.dialect)
    assert [column.family for column in columns] == ["timestamp_tz", "integer"]
    with closing(database.session()) as session:
        return session.query(f'SELECT CAST("at" AS VARCHAR), n FROM ({sql}) AS q')


def test_a_local_time_becomes_an_instant_on_duckdb(duckdb_path: object) -> None:
    assert instants(open_database(DuckDBConnection("d", str(duckdb_path)))) == [("2024-07-01 10:00:00+00", 1)]


@pytest.mark.service
def test_a_local_time_becomes_an_instant_on_postgres(postgres_url: str) -> None:
    assert instants(open_database(PostgresConnection("p", postgres_url))) == [("2024-07-01 10:00:00+00", 1)]


@pytest.mark.parametrize("zone", [None, "UTC", "Etc/UTC"])
def test_utc_changes_nothing(zone: str | None) -> None:
    assert zoned(SQL, COLUMNS, zone, "postgres") == (SQL, COLUMNS)


@pytest.mark.parametrize(("dialect", "zone"), [("sqlite", "Europe/Berlin"), ("mysql", "Europe/Berlin")])
def test_a_zone_that_the_database_may_not_know_is_refused(dialect: str, zone: str) -> None:
    with pytest.raises(PlanError, match="timezone"):
        zoned(SQL, COLUMNS, zone, dialect)


def test_mysql_takes_an_offset() -> None:
    sql, _ = zoned(SQL, COLUMNS, "+02:00", "mysql")
    assert "CONVERT_TZ(`at`, '+02:00', '+00:00')" in sql
