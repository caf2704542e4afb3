"""Streams that merge by no key: refused before a message is read, with the place of their declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow import Aggregation, BigInt, TimestampTZ, Window, ematix  # noqa: TC001 - read from annotations
from ematix_flow.connect.registry import open_target
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.declare.connection.databases import DuckDBConnection
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.review.stream import validate_stream
from ematix_flow.engine.stream.sinks.table_schema import refuse_without_keys
from ematix_flow.errors import Origin, PlanError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream

WINDOW = Window("tumbling", (Aggregation("count", as_="n"),), duration_ms=1000, event_time_column="at")


@ematix.table(schema="main", name="counted")
class Counted:
    window_start: TimestampTZ
    n: BigInt


def merged(path: Path, **more: Any) -> Stream:
    """Declare a stream of windows that are merged into a DuckDB file."""
    given = {
        "name": "visits", "source": KafkaConnection("events", bootstrap_servers="127.0.0.1:1"), "source_query": "t",
        "target_connection": DuckDBConnection("there", path=str(path)), "target_table": ("main", "counted"),
        "window": WINDOW, "mode": "merge",
    }  # fmt: skip
    return stream_from_keywords({**given, **more}, Origin("flows.py", 7))


def refused(stream: Stream, path: Path) -> None:
    """Do what opening a target does before it reads its position."""
    database = open_target(DuckDBConnection("there", path=str(path)), ("main", "counted"))
    refuse_without_keys(stream, stream.targets[0], database)


def test_a_table_class_without_keys_is_told_by_validating_with_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "spark")
    (error,) = validate_stream(merged(tmp_path / "t.duckdb", target_table=Counted)).errors
    assert "merge into main.counted has no keys" in error
    assert f"\nAt:   {__file__}:" in error


@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_a_table_that_is_only_named_needs_keys_in_the_declaration_or_of_its_own(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "t.duckdb"
    created = merged(path, create_table=True, mode=mode)
    with pytest.raises(PlanError, match="has no keys") as raised:
        refused(created, path)
    assert (str(raised.value.origin), "keys=" in str(raised.value.hint)) == ("flows.py:7", True)
    refused(merged(path, create_table=True, mode=mode, keys=["window_start"]), path)
    refused(merged(path, create_table=True, mode=mode, target_primary_key=["window_start"]), path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE counted (window_start TIMESTAMPTZ, n BIGINT)")
    with pytest.raises(PlanError, match="has no keys"):
        refused(merged(path, mode=mode), path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE counted")
        connection.execute("CREATE TABLE counted (window_start TIMESTAMPTZ PRIMARY KEY, n BIGINT)")
    refused(merged(path, mode=mode), path)
