"""SQL over messages: what it defines is its own, what is known and missing is NULL, and what nobody knows is an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import ematix, pk
from ematix_flow.declare.stream.options import Lookup
from ematix_flow.engine.review.stream import dry_run_stream, preview_stream, validate_stream
from ematix_flow.engine.stream.dead_letters import Selection, replay
from ematix_flow.errors import FlowError, PlanError
from ematix_flow.types import BigInt, Text  # noqa: TC001 - read from the annotations
from tests.depth import deep
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group("streams"),
    pytest.mark.usefixtures("spark"),
]

DEDUPLICATED = (
    "WITH r AS (SELECT *, row_number() OVER (PARTITION BY id ORDER BY at DESC) AS rn FROM source) "
    "SELECT id, word, rn FROM r WHERE rn = 1"
)
JOINED = "SELECT s.id, n.word, s.rn FROM source s LEFT JOIN names n ON n.id = s.id"


@ematix.table(schema="shop", name="sql_rows")
class Rows:
    """What the SQL of the streams gives."""

    id: Annotated[BigInt, pk()]
    word: Text | None
    rn: BigInt | None


def stored(warehouse: Path) -> list[tuple[Any, ...]]:
    return rows_in(warehouse, "SELECT id, word, rn FROM shop.sql_rows ORDER BY id")


def names(warehouse: Path) -> dict[str, Lookup]:
    """Return a lookup of two names."""
    rows_in(warehouse, "CREATE TABLE names AS SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS t(id, word)")
    return {"names": Lookup(connection=duckdb_at(warehouse), table="names", schema="main")}


@pytest.mark.deep
@pytest.mark.parametrize(
    "sql",
    [
        DEDUPLICATED,
        deep("SELECT id, word, row_number() OVER (PARTITION BY id ORDER BY at) AS rn FROM source QUALIFY rn = 1"),
        "SELECT id, word, rn FROM source LATERAL VIEW explode(array(1)) t AS rn WHERE at = 2",
        deep("SELECT id, word, rn FROM (SELECT *, 1 AS rn FROM source WHERE at = 2) AS x"),
    ],
)
def test_names_that_the_sql_defines_are_not_columns_of_the_batch(topic: Topic, warehouse: Path, sql: str) -> None:
    topic.write([{"id": 1, "word": "a", "at": 2}, {"id": 2, "word": "b", "at": 2}])
    drain(topic.stream(duckdb_at(warehouse), target_table=Rows, transform_sql=sql, dialect="spark"))
    assert stored(warehouse) == [(1, "a", 1), (2, "b", 1)]


def test_a_column_of_the_target_that_no_message_of_a_batch_has_is_null(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1}])
    stream = topic.stream(
        duckdb_at(warehouse), target_table=Rows, transform_sql="SELECT id, upper(word) AS word FROM source"
    )
    drain(stream)
    topic.write([{"id": 2, "word": "b"}])
    drain(stream)
    assert stored(warehouse) == [(1, None, None), (2, "B", None)]


@pytest.mark.deep
def test_a_field_that_no_message_of_a_batch_has_is_null_beside_a_lookup(topic: Topic, warehouse: Path) -> None:
    lookups = names(warehouse)
    topic.write([{"id": 1}])
    stream = topic.stream(duckdb_at(warehouse), target_table=Rows, transform_sql=JOINED, lookups=lookups)
    drain(stream)
    topic.write([{"id": 3, "rn": 7}])
    drain(stream)
    assert stored(warehouse) == [(1, "one", None), (3, None, 7)]


@pytest.mark.deep
def test_a_field_of_an_earlier_batch_keeps_its_type_where_it_is_missing(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1, "doc": {"name": "a"}}, {"id": 2}, {"id": 3, "doc": {"name": "c"}}], partition=0)
    sql = "SELECT id, doc.name AS word FROM source"
    drain(topic.stream(duckdb_at(warehouse), target_table=Rows, transform_sql=sql), most=1)
    assert stored(warehouse) == [(1, "a", None), (2, None, None), (3, "c", None)]


@pytest.mark.parametrize("with_lookup", [deep(False), True])
@pytest.mark.parametrize("on_error", ["fail", "dlq"])
def test_a_misspelt_column_ends_the_stream_and_no_message_is_lost(
    topic: Topic, warehouse: Path, with_lookup: bool, on_error: str
) -> None:
    keywords: dict[str, Any] = {"lookups": names(warehouse)} if with_lookup else {}
    sql = "SELECT s.id, s.wrod AS word FROM source s" + (" LEFT JOIN names n ON n.id = s.id" if with_lookup else "")
    topic.write([{"id": 1, "word": "a"}])
    given = {"target_table": Rows, "transform_on_error": on_error, **keywords}
    for _ in range(2):
        with pytest.raises(PlanError, match=r"'s\.wrod'") as caught:
            drain(topic.stream(duckdb_at(warehouse), transform_sql=sql, **given))
        assert "did you mean 'word'" in str(caught.value)
        assert "optional_fields=" in str(caught.value)
    drain(topic.stream(duckdb_at(warehouse), transform_sql=sql.replace("wrod", "word"), **given))
    assert stored(warehouse) == [(1, "a", None)]
    rejects = rows_in(warehouse, "SELECT COUNT(*) FROM ematix_flow.rejects")
    assert rejects == [(0,)]


def test_fields_that_messages_may_lack_are_declared(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1}])
    sql = "SELECT id, coalesce(nick, 'none') AS word, size(items) AS rn FROM source"
    given = {"target_table": Rows, "transform_sql": sql, "dialect": "spark"}
    with pytest.raises(PlanError, match=r"'(nick|items)'"):
        drain(topic.stream(duckdb_at(warehouse), **given))
    optional = {"nick": "STRING", "items": "ARRAY<STRING>"}
    stream = topic.stream(duckdb_at(warehouse), optional_fields=optional, **given)
    drain(stream)
    topic.write([{"id": 2, "nick": "b", "items": ["x", "y"]}])
    drain(stream)
    assert stored(warehouse) == [(1, "none", None), (2, "b", 2)]


@pytest.mark.deep
def test_a_batch_without_rows_lacks_nothing(topic: Topic, warehouse: Path) -> None:
    topic.write([b"{torn"])
    sql = "SELECT id, nick AS word FROM source"
    stream = topic.stream(duckdb_at(warehouse), target_table=Rows, transform_sql=sql, transform_on_error="dlq")
    drain(stream)
    assert stored(warehouse) == []
    assert rows_in(warehouse, "SELECT COUNT(*) FROM ematix_flow.rejects") == [(1,)]


def test_a_look_ahead_says_what_a_run_would_say(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1, "word": "a"}])
    wrong = topic.stream(duckdb_at(warehouse), target_table=Rows, transform_sql="SELECT id, wrod AS word FROM source")
    assert "did you mean 'word'" in str(dry_run_stream(wrong).targets[0].dry_run_error)
    lookups = names(warehouse)
    sql = "SELECT s.id, n.wrod AS word FROM source s JOIN names n ON n.id = s.id"
    strange = topic.stream(duckdb_at(warehouse), target_table=Rows, transform_sql=sql, lookups=lookups)
    assert any("'wrod'" in error and "'names'" in error for error in validate_stream(strange).errors)
    with pytest.raises(FlowError, match="lookup 'names'"):
        preview_stream(strange)


@pytest.mark.deep
def test_messages_for_a_broker_are_made_of_known_columns(topic: Topic) -> None:
    topic.write([{"id": 1, "word": "a"}])
    out = topic.broker.create_topic()
    given = {"target_topic": out, "transform_sql": "SELECT id, word, nick FROM source"}
    wrong = topic.stream(topic.connection, **given)
    assert "'nick'" in str(dry_run_stream(wrong).targets[0].dry_run_error)
    with pytest.raises(PlanError, match="'nick'"):
        drain(wrong)
    drain(topic.stream(topic.connection, optional_fields=["nick"], **given))
    [value] = topic.read(out, 1)
    assert json.loads(value or b"") == {"id": 1, "word": "a"}


@pytest.mark.deep
def test_a_table_that_is_there_says_which_fields_may_be_missing(topic: Topic, warehouse: Path) -> None:
    rows_in(warehouse, "CREATE TABLE there (id BIGINT, word VARCHAR)")
    topic.write([{"id": 1}])
    stream = topic.stream(
        duckdb_at(warehouse), target_table=("main", "there"), transform_sql="SELECT id, word FROM source"
    )
    drain(stream)
    assert rows_in(warehouse, "SELECT id, word FROM there") == [(1, None)]


@pytest.mark.deep
def test_capitals_do_not_make_a_second_column(topic: Topic, warehouse: Path) -> None:
    topic.write([{"Id": 1, "WORD": "a"}])
    drain(
        topic.stream(
            duckdb_at(warehouse), target_table=Rows, transform_sql="SELECT id, word FROM source", dialect="spark"
        )
    )
    assert stored(warehouse) == [(1, "a", None)]


def test_a_row_at_which_the_sql_fails_can_be_replayed_alone(topic: Topic, warehouse: Path) -> None:
    topic.write(
        [{"id": 1, "n": "1", "nick": "a", "doc": {"x": 1}}, {"id": 2, "n": "two", "doc": {"x": 2}}], partition=0
    )
    sql = "SELECT id, nick AS word, CAST(n AS BIGINT) + doc.x - 1 AS rn FROM source"
    given = {"target_table": Rows, "transform_on_error": "dlq", "dialect": "spark"}
    drain(topic.stream(duckdb_at(warehouse), transform_sql=sql, **given))
    assert stored(warehouse) == [(1, "a", 1)]
    mended = topic.stream(duckdb_at(warehouse), transform_sql=sql.replace("CAST", "TRY_CAST"), **given)
    assert replay(mended, Selection())["succeeded"] == 1
    assert stored(warehouse) == [(1, "a", 1), (2, None, None)]
