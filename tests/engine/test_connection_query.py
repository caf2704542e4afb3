"""The rows of `connection.query`: plain values, of which a document is its JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ematix_flow import config
from ematix_flow.engine.query import Datasources

if TYPE_CHECKING:
    from pathlib import Path

SQL = """
SELECT {'a': NULL, 'b': 1.50, 'c': true, 'd': DATE '2026-01-02'} AS s, [1, NULL] AS l, MAP {'k': 'v'} AS m,
    '{"a": null}'::JSON AS j
"""


def test_documents_and_lists_are_json(duckdb_path: Path) -> None:
    connection = config.connect(url=f"duckdb:///{duckdb_path}")
    answer = connection.query(SQL)
    connection.close()
    assert {column["type"] for column in answer["columns"]} == {"string"}
    assert [json.loads(text) for text in answer["rows"][0]] == [
        {"a": None, "b": 1.5, "c": True, "d": "2026-01-02"},
        [1, None],
        {"k": "v"},
        {"a": None},
    ]
    assert answer["rows"][0][0] == '{"a":null,"b":1.50,"c":true,"d":"2026-01-02"}'


FAR = "SELECT 'infinity'::timestamptz, DATE '0044-03-15 BC', TIMESTAMP '20000-01-02 03:04:05', DATE '2026-01-02'"


@pytest.mark.service
def test_times_that_python_cannot_hold_are_shown_as_text(postgres_url: str) -> None:
    connection = config.connect(url=postgres_url)
    rows = connection.query(FAR)["rows"]
    connection.close()
    assert rows == [["infinity", "0044-03-15 BC", "20000-01-02 03:04:05", "2026-01-02"]]
    assert Datasources({"there": postgres_url}).query("there", FAR, 10, 10.0).rows == (tuple(rows[0]),)
