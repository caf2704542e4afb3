"""Files of streams that has changed since it was loaded: refused, loaded again or left alone, as the stream says."""

from __future__ import annotations

import sqlite3
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import DeclareError, PlanError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream

ITEMS = Table("main", "items", (Column(BigInt(), nullable=False, primary_key=True, name="id"),))


class Folder:
    """A folder of CSV files and a stream of it into SQLite."""

    def __init__(self, root: Path, *, declared: bool) -> None:
        self.inbox, self.path = root / "inbox", root / "there.db"
        self.inbox.mkdir()
        self.table: dict[str, Any] = {"target_table": ITEMS}
        if not declared:
            self.table = {"target_table": ("main", "items"), "create_table": True, "target_primary_key": ["id"]}

    def put(self, *ids: int) -> None:
        (self.inbox / "a.csv").write_text("id\n" + "".join(f"{number}\n" for number in ids))

    def stream(self, **options: Any) -> Stream:
        source = connection_from_fields("in", {"kind": "object_store_local", "path": str(self.inbox), "format": "csv"})
        target = connection_from_fields("there", {"kind": "sqlite", "path": str(self.path)})
        given = {"name": "replaced", "source": source, "source_query": "*.csv", "target": target, "mode": "merge"}
        return stream_from_keywords({**given, **self.table, **options}, None)

    def ids(self) -> list[int]:
        with sqlite3.connect(self.path) as connection:
            return [int(row[0]) for row in connection.execute("SELECT id FROM items ORDER BY 1")]


def drain(stream: Stream) -> None:
    run_stream(stream, StreamOptions(available_now=True))


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_a_stream_says_what_happens_to_a_replaced_file(tmp_path: Path, *, declared: bool) -> None:
    folder = Folder(tmp_path, declared=declared)
    folder.put(1)
    drain(folder.stream())
    folder.put(1, 2)
    with pytest.raises(PlanError, match="has changed since it was loaded") as refused:
        drain(folder.stream())
    assert 'on_replaced="load"' in str(refused.value)
    assert folder.ids() == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drain(folder.stream(on_replaced="ignore"))
    assert folder.ids() == [1]
    drain(folder.stream(on_replaced="load"))
    assert folder.ids() == [1, 2]
    drain(folder.stream())
    assert folder.ids() == [1, 2]


@pytest.mark.slow
def test_a_stream_of_a_file_says_it_too(tmp_path: Path) -> None:
    folder = Folder(tmp_path, declared=False)
    text = f"""
        pipeline_name = "replaced"
        source_query = "*.csv"
        [source]
        kind = "object_store_local"
        path = "{folder.inbox}"
        format = "csv"
        [target]
        kind = "sqlite"
        path = "{folder.path}"
        mode = "merge"
        create_table = true
        on_replaced = "load"
        [target.table]
        schema = "main"
        name = "items"
        primary_key = ["id"]
    """
    for ids in ((1,), (1, 2)):
        folder.put(*ids)
        drain(stream_from_toml(text))
    assert folder.ids() == [1, 2]


def test_only_streams_of_files_have_files_to_replace() -> None:
    kafka = connection_from_fields("k", {"kind": "kafka", "bootstrap_servers": "nowhere:1"})
    target = connection_from_fields("t", {"kind": "sqlite", "path": "t.db"})
    given = {"name": "s", "source": kafka, "source_query": "t", "target": target, "target_table": ITEMS}
    with pytest.raises(DeclareError, match="on_replaced= is about files"):
        stream_from_keywords({**given, "on_replaced": "load"}, None)
