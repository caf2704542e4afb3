"""Messages that change while a stream runs: fields come, go and grow, and the table or the stream's policy says what becomes of them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import pytest

from ematix_flow import ematix, pk
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.stream import dead_letters
from ematix_flow.errors import BadRowsError
from ematix_flow.types import BigInt, SmallInt, Text  # noqa: TC001 - read from the annotations
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@ematix.table(schema="shop", name="items")
class Items:
    """Things that are sold."""

    id: Annotated[BigInt, pk()]
    name: Text
    size: SmallInt | None


BEFORE = [{"id": 1, "name": "tea", "size": 5}]
AFTER = [
    {"id": 2, "name": "salt", "size": 6, "colour": "white"},
    {"id": 3, "name": "rice"},
    {"id": 4, "size": 7},
    {"id": 5, "name": "oil", "size": 70_000},
    {"id": 6, "name": "soap", "size": "seven"},
    {"id": "7", "name": 7, "size": "7"},
    {"id": 8, "title": "bread", "size": 8},
]


def test_a_declared_table_takes_what_fits_and_sets_the_rest_aside(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Items, transform_on_error="dlq")
    topic.write(BEFORE)
    drain(stream)
    topic.write(AFTER)
    drain(stream)
    rows = rows_in(warehouse, "SELECT id, name, size FROM shop.items ORDER BY id")
    assert rows == [(1, "tea", 5), (2, "salt", 6), (3, "rice", None), (7, "7", 7)]
    assert {letter.column_name for letter in dead_letters.records(stream)} == {"name", "size"}
    assert dead_letters.stats(stream)["pending"] == 4


def test_a_stream_that_may_set_nothing_aside_stops_before_the_change(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Items)
    topic.write(BEFORE)
    drain(stream)
    topic.write(AFTER)
    with pytest.raises(BadRowsError):
        drain(stream, restart=True)
    assert rows_in(warehouse, "SELECT id FROM shop.items") == [(1,)]


@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_a_table_that_is_made_of_messages_grows_with_them(
    topic: Topic, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    fields = {"path": str(tmp_path / "there.duckdb")}
    if kind == "postgres":
        fields = {"url": request.getfixturevalue("postgres_url")}
    target = connection_from_fields("there", {"kind": kind, **fields})
    stream = topic.stream(target, target_table=("main", "made"), create_table=True, transform_on_error="dlq")
    for batch in (BEFORE, AFTER[:2], AFTER[3:5], [{"id": 9, "size": 1.5, "deep": {"a": [1]}}]):
        topic.write(batch)
        drain(stream)
    with closing(open_database(target).session()) as session:
        rows = [tuple(row) for row in session.query("SELECT id, name, size, colour FROM main.made ORDER BY id")]
    assert rows == [(1, "tea", 5, None), (2, "salt", 6, "white"), (3, "rice", None, None), (5, "oil", 70_000, None)]
    # What the column cannot hold is not bent, and the column is not turned into another one.
    assert [letter.column_name for letter in dead_letters.records(stream)] == ["size", "size"]
