"""Whole transactions: however small the batches are, a reader of the target sees what readers of the source could see."""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pytest

from ematix_flow import CDC, ematix
from ematix_flow.declare.connection.registry import (
    KafkaConnection,
    PostgresConnection,
    SQLiteConnection,
    register_connection,
)
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.review.stream import preview_stream
from ematix_flow.errors import DeclareError
from ematix_flow.events import BatchLoaded
from ematix_flow.observe.bus import Bus
from tests.streams.change_sources import THINGS, Source, mirrored
from tests.streams.feeds import drain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.events import Event

ACCOUNTS, EACH = 12, 100
WHOLE = CDC(atomic="transaction")


class Reader:
    """Reads the mirror again and again, as another process does, until it is stopped."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.sums: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _read(self) -> None:
        while not self._stop.wait(0.002):
            self.read()

    def read(self) -> None:
        with closing(sqlite3.connect(self._file, timeout=60)) as connection:
            self.sums.append(connection.execute("SELECT sum(n) FROM things").fetchone()[0])


@pytest.fixture(params=["postgres", "mysql"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    with closing(Source(request.getfixturevalue(f"{request.param}_url"))) as source:
        yield source


def transfer(source: Source, chance: random.Random, steps: int) -> None:
    """Move money between accounts in one transaction, so that the sum is right at its end only."""
    with closing(source.connect()) as connection:
        with connection.cursor() as cursor:
            for _ in range(steps):
                one, other = chance.sample(range(ACCOUNTS), 2)
                amount = chance.randrange(1, 50)
                cursor.execute("UPDATE things SET n = n - %s WHERE id = %s", (amount, one))
                cursor.execute("UPDATE things SET n = n + %s WHERE id = %s", (amount, other))
        connection.commit()


@pytest.mark.service
@pytest.mark.xdist_group("postgres_cdc")
def test_a_reader_sees_whole_transactions_only(source: Source, tmp_path: Path) -> None:
    for number in range(ACCOUNTS):
        source.run("INSERT INTO things VALUES (%s, %s, '')", number, EACH)
    file = tmp_path / "t.db"
    stream = replace(source.stream(file), cdc=WHOLE, max_rows_per_batch=3)
    drain(stream)
    chance = random.Random(5)  # noqa: S311 - repeatable, not secret
    for steps in (1, 1, 3, 1, 2, 5, 1, 1, 250):
        transfer(source, chance, steps)
    batches: list[int] = []
    bus = Bus()
    with Reader(file) as reader:

        def heard(event: Event) -> None:
            if isinstance(event, BatchLoaded):
                batches.append(event.messages)
                reader.read()

        bus.subscribe(heard)
        drain(stream, bus=bus)
    assert set(reader.sums) == {ACCOUNTS * EACH}
    assert len(batches) >= 8, "the batches are small"
    assert sum(batches) == 2 * (1 + 1 + 3 + 1 + 2 + 5 + 1 + 1 + 250)
    assert max(batches) == 500, "a transaction is one batch, however large it is"
    assert mirrored(file) == source.rows()


def declared(source: Any, **more: Any) -> Stream:
    target = SQLiteConnection("there", path="t.db")
    given = {"name": "s", "source": source, "source_query": "t", "target_connection": target, "target_table": THINGS}
    return stream_from_keywords({"cdc": WHOLE, **given, **more}, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "does not go with kafka: its messages do not say where transactions end"),
        ({"transform_on_error": "dlq"}, "does not go with"),
    ],
)
def test_what_cannot_keep_transactions_whole_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclareError, match=message):
        declared(KafkaConnection("k", bootstrap_servers="h:9092"), **more)


def test_changes_that_are_put_aside_would_not_be_whole() -> None:
    register_connection(PostgresConnection("pg", url="postgresql://h/d"))
    with pytest.raises(DeclareError, match="leave out changes that do not fit"):
        declared("log", transform_on_error="dlq")
    with pytest.raises(DeclareError, match="leave out changes that do not fit"):
        declared("log", on_bad_row="reject")
    with pytest.raises(DeclareError, match="a stream and a commit each"):
        ematix.replicate("pg", tables="shop.*", into="pg", cdc=WHOLE)


def test_a_source_that_is_named_is_refused_when_it_is_known() -> None:
    stream = declared("later")
    register_connection(KafkaConnection("later", bootstrap_servers="h:9092"))
    with pytest.raises(DeclareError, match="does not go with kafka"):
        preview_stream(stream)
