"""Tables of streams that are gone for a moment, as they are when another one takes their name: waited for, never made anew."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import ematix, pk
from ematix_flow.commit import publish
from ematix_flow.connect.registry import target_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.stream import loop as stream_loop
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import TargetAwayError
from ematix_flow.events import StreamFailed
from ematix_flow.types import BigInt  # noqa: TC001 - read from the annotations
from tests.streams.feeds import drain

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@ematix.table(schema="main", name="things")
class Things:
    """Numbered things."""

    id: Annotated[BigInt, pk()]


NAMED = {"target_table": ("main", "things"), "create_table": True, "target_primary_key": ["id"]}
FILES = "files"


class Shop:
    """A stream into an SQLite file, from a topic or from a folder."""

    def __init__(self, folder: Path, topic: Topic, how: str) -> None:
        self.path, self.topic, self.folder = folder / "shop.db", topic, folder / "inbox"
        self.folder.mkdir()
        target = connection_from_fields("shop", {"kind": "sqlite", "path": str(self.path)})
        table: dict[str, Any] = dict(NAMED) if "named" in how else {"target_table": Things}
        self.files = FILES in how
        if self.files:
            fields = {"kind": "object_store_local", "path": str(self.folder), "format": "jsonl"}
            table |= {"source": connection_from_fields("inbox", fields), "source_query": "*.jsonl"}
        self.stream: Stream = topic.stream(target, **table)
        self.count = 0

    def bring(self) -> None:
        self.count += 1
        if self.files:
            (self.folder / f"{self.count}.jsonl").write_text(f'{{"id": {self.count}}}\n')
        else:
            self.topic.write([{"id": self.count}], partition=0)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.path) as connection:
            return connection.execute(sql).fetchall()


@pytest.mark.parametrize("how", ["declared", "named", "declared files", "named files"])
def test_a_table_that_is_renamed_for_a_moment_is_waited_for(topic: Topic, tmp_path: Path, how: str) -> None:
    shop = Shop(tmp_path, topic, how)
    shop.bring()
    drain(shop.stream)
    shop.run("ALTER TABLE things RENAME TO things_aside")
    shop.bring()
    options, waited = StreamOptions(available_now=True), []

    def hear(event: object) -> None:
        if isinstance(event, StreamFailed) and not waited:
            waited.append(event.message)
            shop.run("ALTER TABLE things_aside RENAME TO things")

    options.bus.subscribe(hear)
    assert run_stream(shop.stream, options)["total_rows"] == 1
    assert "main.things is not there, though earlier batches of the stream are in it" in waited[0]
    assert sorted(shop.run("SELECT id FROM things")) in ([(1,), (2,)], [("1",), ("2",)])


def test_a_table_that_is_renamed_between_plan_and_commit_is_waited_for(
    topic: Topic, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL refuses the load then, and what it says tells that the table is missing."""
    target = connection_from_fields("shop", {"kind": "postgres", "url": postgres_url})
    stream = topic.stream(target, **{**NAMED, "target_table": ("public", "things")})
    database = target_of(target)

    def run(sql: str) -> None:
        with closing(database.session()) as session:
            session.execute(sql)

    topic.write([{"id": 1}], partition=0)
    drain(stream)
    topic.write([{"id": 2}], partition=0)
    options, waited, renamed = StreamOptions(available_now=True), list[str](), list[str]()

    def reach(point: str) -> None:
        if point == "commit.connected" and not renamed:
            renamed.append(point)
            run("ALTER TABLE things RENAME TO things_aside")

    def hear(event: object) -> None:
        if isinstance(event, StreamFailed) and not waited:
            waited.append(event.message)
            run("ALTER TABLE things_aside RENAME TO things")

    monkeypatch.setattr(publish, "failpoint", reach)
    options.bus.subscribe(hear)
    assert run_stream(stream, options)["total_rows"] == 1
    assert "the target refused the load" in waited[0]
    assert "does not exist" in waited[0]
    with closing(database.session()) as session:
        assert session.query("SELECT id FROM things ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize("how", ["declared", "named", "declared files", "named files"])
def test_a_table_that_stays_away_is_not_made_anew(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(stream_loop, "TARGET_AWAY", replace(stream_loop.TARGET_AWAY, seconds=0.25))
    shop = Shop(tmp_path, topic, how)
    shop.bring()
    drain(shop.stream)
    shop.run("DROP TABLE things")
    shop.bring()
    with pytest.raises(TargetAwayError, match="is not there"):
        drain(shop.stream)
    assert shop.run("SELECT name FROM sqlite_master WHERE name = 'things'") == []
    if not shop.files:
        move_stream(shop.stream, "earliest", StreamOptions())
        assert drain(shop.stream)["total_rows"] == 2
