"""The rows of `connection.query`: plain values, of which a document is its JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ematix_flow import config

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
