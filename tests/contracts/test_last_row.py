"""Streams into every system: of several rows for one key in a batch the last counts, or the greatest by declared columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

STATES = Table(
    "analytics",
    "states",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), nullable=True, name="state"),
        Column(BigInt(), nullable=True, name="changed"),
    ),
)


def row(key: int, state: str | None, changed: int | None = 0) -> Row:
    return {"id": key, "state": state, "changed": changed}


class Inbox:
    """A folder of files that a stream loads into the table of a flow."""

    def __init__(self, folder: Path, flow: Flow, **options: Any) -> None:
        self.folder = folder
        self.folder.mkdir()
        source = connection_from_fields("inbox", {"kind": "object_store_local", "path": str(folder), "format": "jsonl"})
        given = {"name": "states", "source": source, "source_query": "*.jsonl", "target": flow.connection}
        self.stream = stream_from_keywords({**given, "target_table": STATES, **options}, None)
        self.count = 0

    def load(self, *files: list[Row]) -> None:
        """Bring files in one batch."""
        for rows in files:
            self.count += 1
            path = self.folder / f"{self.count:04}.jsonl"
            path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        run_stream(self.stream, StreamOptions(available_now=True))


def test_the_last_row_of_a_key_counts(flows: Flows, tmp_path: Path) -> None:
    flow = flows(STATES, mode="merge")
    inbox = Inbox(tmp_path / "inbox", flow, mode="merge")
    inbox.load([row(1, "z"), row(2, "b"), row(1, "a")], [row(2, None), row(3, "c")])
    assert flow.rows() == [row(1, "a"), row(2, None), row(3, "c")]
    inbox.load([row(3, "d"), row(1, "y"), row(3, "c"), row(1, "x")])
    assert flow.rows() == [row(1, "x"), row(2, None), row(3, "c")]


def test_the_greatest_row_by_declared_columns_counts_also_against_the_table(flows: Flows, tmp_path: Path) -> None:
    flow = flows(STATES, mode="merge")
    inbox = Inbox(tmp_path / "inbox", flow, mode="merge", order_by="changed")
    inbox.load([row(1, "new", 7), row(1, "old", 3), row(2, "x", None), row(2, "y", None), row(3, "c", 5)])
    assert flow.rows() == [row(1, "new", 7), row(2, "y", None), row(3, "c", 5)]
    inbox.load([row(1, "late", 6), row(2, "z", 1), row(3, "none", None)], [row(1, "again", 7), row(1, "older", 1)])
    assert flow.rows() == [row(1, "again", 7), row(2, "z", 1), row(3, "c", 5)]


def test_a_version_by_load_time_is_the_last_row_of_its_batch(flows: Flows, tmp_path: Path) -> None:
    flow = flows(STATES, mode="scd2")
    inbox = Inbox(tmp_path / "inbox", flow, mode="scd2", order_by="changed")
    inbox.load([row(1, "a", 1), row(1, "b", 2), row(2, "x", 1)])
    inbox.load([row(1, "late", 1), row(2, "z", 4), row(2, "y", 3)])
    versions = sorted((one["id"], one["state"], one["is_current"]) for one in flow.versions())
    assert versions == [(1, "b", True), (2, "x", False), (2, "z", True)]


def test_an_order_needs_columns_that_the_table_has(flows: Flows, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", flows(STATES, mode="merge"), mode="merge", order_by="when")
    with pytest.raises(PlanError, match=r"order_by names .when., which analytics\.states does not declare"):
        inbox.load([row(1, "a")])
