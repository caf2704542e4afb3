"""SQL that fails at some messages: the others are loaded, and every bad one is a dead letter with its place and its reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import pyarrow.compute as pc
import pytest

from ematix_flow import ematix, pk
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.udf import udf
from ematix_flow.engine.stream import dead_letters
from ematix_flow.engine.stream.dead_letters import Selection
from ematix_flow.types import BigInt, Text  # noqa: TC001 - read from the annotations
from tests.services.topics import payloads_of
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group("streams"),
    pytest.mark.usefixtures("spark"),
]


@ematix.table(schema="shop", name="sql_numbers")
class Numbers:
    """What the SQL of the streams gives."""

    id: Annotated[BigInt, pk()]
    n: BigInt
    note: Text | None


@udf(args=("Int64",), returns="Int64", name="halved")
def halved(numbers: pa.Array) -> pa.Array:
    """Halve numbers, and refuse those that are divisible by 77."""
    if any(number % 77 == 0 for number in numbers.to_pylist()):
        raise ValueError("seventy-seven is refused")
    return pc.divide(numbers, 2)


def is_bad(n: int) -> bool:
    return n % 20 == 0 or n % 77 == 0


@pytest.mark.parametrize("many", [1_000, pytest.param(20_000, marks=pytest.mark.deep)])
def test_bad_rows_become_dead_letters_with_their_places(
    topic: Topic, warehouse: Path, many: int, capfd: pytest.CaptureFixture[str]
) -> None:
    topic.write([{"id": n, "n": f"{n}{'x' if n % 20 == 0 else ''}"} for n in range(1, many + 1)], partition=1)
    sql = "SELECT id, halved(CAST(n AS BIGINT)) AS n FROM source"
    result = drain(
        topic.stream(
            duckdb_at(warehouse), target_table=Numbers, transform_sql=sql, transform_on_error="dlq", udfs=[halved]
        )
    )
    bad = [n for n in range(1, many + 1) if is_bad(n)]
    assert result["total_rows"] == many
    assert rows_in(warehouse, "SELECT COUNT(*), COUNT(DISTINCT id) FROM shop.sql_numbers") == [
        (many - len(bad), many - len(bad))
    ]
    rows = rows_in(warehouse, "SELECT source_position, row_json, reason FROM ematix_flow.rejects")
    assert {json.loads(row)["id"]: json.loads(offset)["offset"] for offset, row, _ in rows} == {n: n - 1 for n in bad}
    assert {json.loads(offset)["partition"] for offset, _, _ in rows} == {1}
    reasons = {json.loads(row)["id"]: reason for _, row, reason in rows}
    assert "CAST_INVALID_INPUT" in reasons[20]
    assert reasons[77] == "transform: ValueError: seventy-seven is refused"
    shown = "".join(capfd.readouterr())
    # What a worker of a session that was ended meanwhile says is not about rows.
    assert "seventy-seven" not in shown
    assert "CAST_INVALID_INPUT" not in shown
    assert "\tat org." not in shown


def test_a_row_that_the_sql_failed_at_is_tried_again_as_that_row_whatever_messages_are(
    topic: Topic, warehouse: Path
) -> None:
    topic.options["payload_format"] = "raw_bytes"
    rows_in(warehouse, "CREATE TABLE main.texts (n BIGINT, text VARCHAR, place VARCHAR)")
    sql = "SELECT {}(CAST(value AS STRING) AS BIGINT) AS n, CAST(value AS STRING) AS text, _key AS place FROM source"
    given = {"target_table": ("main", "texts"), "transform_on_error": "dlq"}
    before, now = (
        topic.stream(duckdb_at(warehouse), transform_sql=sql.format(cast), **given) for cast in ("CAST", "TRY_CAST")
    )
    topic.write([b"1", b"\xc3\xa4"], key="k")
    drain(before)
    assert dead_letters.replay(now, Selection())["succeeded"] == 1
    rows = rows_in(warehouse, "SELECT * FROM main.texts ORDER BY n")
    assert rows == [(1, "1", "k"), (None, "ä", "k")]


def test_such_a_row_of_a_topic_is_tried_again_as_that_row(topic: Topic) -> None:
    topic.options["payload_format"] = "raw_bytes"
    out, dead = (topic.broker.create_topic(1) for _ in range(2))
    sink = connection_from_fields("out", {"kind": "kafka", "bootstrap_servers": topic.broker.address})
    given = {"target_topic": out, "transform_on_error": "dlq", "dead_letter_topic": dead}
    sql = "SELECT {}(CAST(value AS STRING) AS BIGINT) AS n, CAST(value AS STRING) AS text FROM source"
    before, now = (topic.stream(sink, transform_sql=sql.format(cast), **given) for cast in ("CAST", "TRY_CAST"))
    topic.write([b"1", b"\xc3\xa4"])
    drain(before)
    assert dead_letters.replay(now, Selection())["succeeded"] == 1
    assert [json.loads(one) for one in payloads_of(topic.broker.address, out)] == [{"n": 1, "text": "1"}, {"text": "ä"}]
