"""`${...}` in what a stream reads and writes: filled in when it runs, kept as written in what it declares."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.config.secrets import known_secrets
from ematix_flow.declare.stream.checks import check_stream
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt
from ematix_flow.engine.review.stream import preview_stream, validate_stream
from ematix_flow.engine.stream.control import stream_status
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import DeclareError, MissingSecretError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream

ITEMS = Table("main", "items_${SHOP_TENANT}", (Column(BigInt(), nullable=False, primary_key=True, name="id"),))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    (tmp_path / "north").mkdir()
    (tmp_path / "north" / "a.csv").write_text("id\n1\n2\n")
    return stream_from_toml(f"""
        pipeline_name = "named"
        source_query = "${{SHOP_TENANT}}/*.csv"
        [source]
        kind = "object_store_local"
        path = "{tmp_path}"
        format = "csv"
        [target]
        kind = "sqlite"
        path = "{tmp_path}/there.db"
        create_table = true
        [target.table]
        schema = "main"
        name = "items_${{SHOP_TENANT}}"
    """)


def rows(folder: Path, table: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "there.db") as connection:
        return connection.execute(f"SELECT id FROM {table} ORDER BY 1").fetchall()


def test_names_are_filled_in_when_the_stream_runs(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TENANT", "north")
    assert run_stream(stream, StreamOptions(available_now=True))["total_rows"] == 2
    assert rows(tmp_path, "items_north") == [("1",), ("2",)]
    assert stream.sources[0].query == "${SHOP_TENANT}/*.csv"
    assert [one.target for one in stream_status(stream, StreamOptions())] == ["main.items_north"]
    assert preview_stream(stream).to_dict()["targets"][0]["schema_qualified_name"] == "main.items_north"
    assert "north" not in known_secrets()


def test_a_declared_table_is_named_like_that_too(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TENANT", "south")
    declared = replace(
        stream, targets=(replace(stream.targets[0], table=ITEMS),), dead_letter_topic="dead-${SHOP_TENANT}"
    )
    filled = filled_in(declared)
    assert filled.targets[0].destination == "main.items_south"
    assert filled.dead_letter_topic == "dead-south"


def test_a_missing_or_empty_variable_is_told_with_its_name(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_TENANT", raising=False)
    with pytest.raises(MissingSecretError, match="SHOP_TENANT") as missing:
        run_stream(stream, StreamOptions(available_now=True))
    assert "config_str:2" in str(missing.value)
    assert "SHOP_TENANT" in validate_stream(stream).errors[0]
    monkeypatch.setenv("SHOP_TENANT", "")
    alone = replace(stream, sources=(replace(stream.sources[0], query="${SHOP_TENANT}"),))
    with pytest.raises(DeclareError, match=r"source_query '\$\{SHOP_TENANT\}' is empty"):
        filled_in(alone)


JOINED = """
    pipeline_name = "joined"
    [[sources]]
    kind = "kafka"
    bootstrap_servers = "localhost:9092"
    query = "orders-${SHOP_TENANT}"
    [[sources]]
    kind = "kafka"
    bootstrap_servers = "localhost:9092"
    query = "paid-${SHOP_TENANT}"
    [target]
    kind = "sqlite"
    path = "there.db"
    table = { schema = "main", name = "pairs" }
    [state_store]
    kind = "postgres"
    url = "${STATE_DSN}"
    [transform.join]
    left_source = "orders-${SHOP_TENANT}"
    right_source = "%s"
    left_keys = ["id"]
    right_keys = ["id"]
    time_window_ms = 5
"""


@pytest.mark.parametrize("right", ["paid-${SHOP_TENANT}", "paid-north"])
def test_the_sides_of_a_join_are_named_like_its_sources(right: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = stream_from_toml(JOINED % right)
    monkeypatch.setenv("SHOP_TENANT", "north")
    filled = filled_in(declared)
    check_stream(filled)
    assert filled.join is not None
    assert [filled.join.left_source, filled.join.right_source] == [one.query for one in filled.sources]
    monkeypatch.setenv("SHOP_TENANT", "south")
    if right == "paid-north":
        with pytest.raises(DeclareError, match="'paid-north' of the join is the query of 0 sources"):
            check_stream(filled_in(declared))
