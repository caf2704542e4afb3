"""Rows as JSON texts in SQL, evaluated by a database."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from ematix_flow.connect.sqlite.functions import json_value
from ematix_flow.plan.sql.row_json import raw_row


@pytest.mark.slow
def test_rows_of_sqlite_may_have_as_many_columns_as_its_tables() -> None:
    columns = [f"c{number}" for number in range(1_900)]
    row = raw_row(dict.fromkeys(columns, "integer"), "sqlite").sql(dialect="sqlite")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.create_function("flow_json", 1, json_value)
        connection.execute(f"CREATE TABLE t ({', '.join(columns)})")
        connection.execute(f"INSERT INTO t VALUES ({', '.join('7' for _ in columns)})")
        [(text,)] = connection.execute(f"SELECT {row} FROM t")
    assert json.loads(text) == dict.fromkeys(columns, 7)
