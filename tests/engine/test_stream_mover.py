"""A stream says before it runs who moves its rows and why."""

from __future__ import annotations

from typing import Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.mover import mover_of
from ematix_flow.engine.stream.options import StreamOptions

FIELDS: dict[str, dict[str, Any]] = {
    "kafka": {"bootstrap_servers": "nowhere:9092"},
    "delta_local": {"path": "lake"},
    "duckdb": {"path": "shop.duckdb"},
}
SQL = {"transform_sql": "SELECT id FROM source"}
CASES = [
    ("spark", "kafka", "duckdb", {}, "spark", "rows move from one system to another"),
    ("spark", "kafka", "duckdb", SQL, "spark", "it runs the SQL of the stream"),
    ("spark", "kafka", "kafka", SQL, "spark", "it runs the SQL of the stream"),
    ("spark", "kafka", "kafka", {}, "local", "messages go from one broker to another"),
    ("spark", "delta_local", "duckdb", {}, "spark", "it reads lake tables"),
    ("local", "delta_local", "duckdb", {}, "spark", "it reads lake tables"),
    ("local", "kafka", "duckdb", SQL, "local", 'the settings say engine = "local"'),
    ("local", "kafka", "kafka", {}, "local", 'the settings say engine = "local"'),
]


@pytest.mark.parametrize(("engine", "source", "target", "more", "by", "reason"), CASES)
def test_who_moves_the_rows_of_a_stream_and_why(  # noqa: PLR0917 - a case has so much
    engine: str, source: str, target: str, more: dict[str, Any], by: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, engine)
    reads, writes = (connection_from_fields(kind, {"kind": kind, **FIELDS[kind]}) for kind in (source, target))
    into = {"target_topic": "copies"} if target == "kafka" else {"target_table": ("shop", "copies")}
    options = {"name": "s", "source": reads, "source_query": "shop.orders", "target": writes, **into, **more}
    chosen = mover_of(stream_from_keywords(options, None), StreamOptions())
    assert (chosen.value, chosen.reason) == (by, reason)
