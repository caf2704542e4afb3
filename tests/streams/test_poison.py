"""Messages that no writer means well with, and very many of them: each is set aside for itself, and its neighbours are loaded."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.stream import dead_letters
from ematix_flow.errors import PlanError
from tests.services.topics import fill
from tests.streams.feeds import Topic, drain, duckdb_at, rows_in
from tests.streams.test_tables import Orders

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]

GOOD = [b'{"id": 1000, "word": "first"}', b'{"id": 1001, "word": "last"}']

BROKEN = {
    "nested": b'{"id":1,"word":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "digits": b'{"id":1' + b"0" * 10_000 + b"}",
    "half a letter": b'{"id":2,"word":"\\ud800"}',
    "half a letter in a name": b'{"id":3,"\\uD800":1}',
    "no number": b'{"id":NaN}',
    "UTF-16": '{"id":4}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"id":5}',
}
"""What is no row anywhere."""

UNFIT = {
    "too large a number": b'{"id":10,"much":1e999}',
    "no name": b'{"id":11,"":1}',
    "long name": b'{"id":12,"' + b"k" * 100_000 + b'":1}',
    "the same name": b'{"id":13,"Id":14}',
    "many names": json.dumps({"id": 15, **{f"f{number}": number for number in range(100_000)}}).encode(),
}
"""What cannot become columns of a table that is made of messages, and is no harm where the columns are declared."""

LARGE = {
    "long": json.dumps({"id": 20, "word": "x" * (16 << 20)}).encode(),
    "a thousand digits": b'{"id":21,"many":1' + b"0" * 1_000 + b"}",
}
"""What is a row anywhere."""


def where(*, declared: bool) -> dict[str, Any]:
    return {"target_table": Orders} if declared else {"target_table": ("main", "made"), "create_table": True}


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "made"])
def test_hostile_messages_are_set_aside_one_by_one(topic: Topic, warehouse: Path, declared: bool) -> None:
    large = topic.broker.create_topic(1, **{"max.message.bytes": str(32 << 20)})
    fill(topic.broker.address, large, [GOOD[0], *BROKEN.values(), *UNFIT.values(), *LARGE.values(), GOOD[1]])
    stream = topic.stream(
        duckdb_at(warehouse), source_query=large, transform_on_error="dlq", **where(declared=declared)
    )
    drain(stream)
    letters = dead_letters.records(stream)
    expected = len(BROKEN) + (0 if declared else len(UNFIT))
    assert len(letters) == expected, [letter.reason[:80] for letter in letters]
    table = ".".join(stream.targets[0].table_name or ())
    fit = [10, 11, 12, 13, 15] if declared else []
    assert rows_in(warehouse, f"SELECT id FROM {table} ORDER BY id") == [(n,) for n in (*fit, 20, 21, 1000, 1001)]


@pytest.mark.parametrize("timestamp", [253_402_300_800_000, 2**63 - 1], ids=["year 10000", "largest"])
def test_a_time_that_no_calendar_has_is_none(topic: Topic, warehouse: Path, timestamp: int) -> None:
    name = topic.broker.create_topic(1, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    Topic(topic.broker, name).write([{"id": 1}], timestamp=timestamp)
    drain(topic.stream(duckdb_at(warehouse), source_query=name, **where(declared=False)))
    assert rows_in(warehouse, "SELECT id FROM main.made") == [(1,)]


def test_fields_that_every_message_names_anew_do_not_become_a_table(topic: Topic, warehouse: Path) -> None:
    topic.write([{f"field {number} of {message}": 1 for number in range(500)} for message in range(10)])
    stream = topic.stream(duckdb_at(warehouse), transform_on_error="dlq", **where(declared=False))
    with pytest.raises(PlanError, match="5000 different fields"):
        drain(stream)


@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_one_message_in_twenty_is_poison_among_twenty_thousand(
    topic: Topic, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    count, bad = 20_000, [b"{oops", b"\xff\xfe", b"[1]", b'{"word": "no id"}', b'{"id": "one"}']
    payloads = [
        bad[n // 20 % len(bad)] if n % 20 == 7 else b'{"id": %d, "word": "order %d"}' % (n, n) for n in range(count)
    ]
    fill(topic.broker.address, topic.name, payloads)
    target_fields = {"path": str(tmp_path / "there.duckdb")}
    if kind == "postgres":
        target_fields = {"url": request.getfixturevalue("postgres_url")}
    target = connection_from_fields("there", {"kind": kind, **target_fields})
    stream = topic.stream(target, target_table=Orders, transform_on_error="dlq", max_rows_per_batch=7_000)
    result = drain(stream)
    assert (result["total_rows"], result["iterations"]) == (count, 3)
    letters = dead_letters.records(stream, limit=count)
    assert len(letters) == count // 20
    assert len({letter.source_position for letter in letters}) == count // 20
    with closing(open_database(target).session()) as session:
        (counts,) = session.query("SELECT COUNT(*), COUNT(DISTINCT word), SUM(id) FROM shop.stream_orders")
    good = [n for n in range(count) if n % 20 != 7]
    assert tuple(map(int, counts)) == (len(good), len(good), sum(good))
    assert drain(stream)["total_rows"] == 0
