"""Rows that the SQL of a stream cannot take: all of them are found by one query, each with its reason and its place."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ematix_flow.connect.base.stream_source import SQL_FAILED
from ematix_flow.declare.stream.udf import udf
from ematix_flow.plan.sql.user.stream import row_by_row, spark_sql
from ematix_flow.run.read.infer_messages import TypedRows
from ematix_flow.run.transform import frame_sql, stream_sql
from ematix_flow.run.transform.stream_sql import SqlStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NAMES = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "word": ["one", "two", "three", "4"]})


@udf(args=("Int64",), returns="Int64", name="checked")
def checked(numbers: pa.Array) -> pa.Array:
    """Refuse one number."""
    if 3 in numbers.to_pylist():
        raise ValueError("three is refused")
    return pc.multiply(numbers, 10)


def stage(spark: SparkSession, sql: str) -> SqlStage:
    return SqlStage(
        lambda: spark, spark_sql(sql, "spark"), row_by_row(sql, "spark"), (checked,), (), {"names": lambda: NAMES}
    )


def messages(*rows: dict[str, Any]) -> TypedRows:
    offsets = pa.chunked_array([[f"place {number}" for number in range(len(rows))]], pa.string())
    return TypedRows(pa.Table.from_pylist(list(rows)), None, offsets)


@contextmanager
def counted(spark: SparkSession) -> Iterator[list[int]]:
    """Return a list that has the jobs of Spark of the block when it is over."""
    group = f"test-{uuid.uuid4().hex}"
    spark.sparkContext.setJobGroup(group, "")
    calls: list[int] = []
    yield calls
    calls.extend(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


BAD = [{"id": 1, "n": "1"}, {"id": 2, "n": "two"}, {"id": 3, "n": "3"}, {"id": 4, "n": "0"}]


CASES = [
    (
        "SELECT id, 10 DIV CAST(n AS BIGINT) AS n FROM source",
        [1, 3],
        {1: "CAST_INVALID_INPUT", 3: "DIVIDE_BY_ZERO"},
    ),
    ("SELECT id FROM source WHERE CAST(n AS BIGINT) > 0", [1, 3], {1: "CAST_INVALID_INPUT"}),
    ("SELECT id FROM source WHERE id <> 2 AND CAST(n AS BIGINT) > 0", [1, 3], {}),
    ("SELECT id, CAST(n AS DATE) AS a, CAST(n AS BIGINT) AS b FROM source WHERE id = 2", [], {1: "DATE"}),
    (
        "WITH a AS (SELECT id, CAST(n AS BIGINT) AS m FROM source) SELECT id, 10 DIV m AS m FROM a",
        [1, 3],
        {1: "CAST_INVALID_INPUT", 3: "DIVIDE_BY_ZERO"},
    ),
    (
        "SELECT s.id, w.word FROM source s JOIN names w ON w.id = CAST(s.n AS BIGINT)",
        [1, 3],
        {1: "CAST_INVALID_INPUT"},
    ),
    ("SELECT s.id, w.word FROM source s JOIN names w ON w.id = s.n", [1, 3], {1: "CAST_INVALID_INPUT"}),
    (
        "SELECT s.id, CAST(w.word AS INT) AS n FROM source s LEFT JOIN names w ON w.id = s.id WHERE s.id > 2",
        [4],
        {2: "CAST_INVALID_INPUT"},
    ),
    ("SELECT checked(id) DIV 10 AS id FROM source", [1, 2, 4], {2: "ValueError: three is refused"}),
    (
        "SELECT checked(CAST(n AS BIGINT)) AS m, id FROM source",
        [1, 4],
        {1: "CAST_INVALID_INPUT", 2: "ValueError: three is refused"},
    ),
    (
        "SELECT id, CASE WHEN id > 3 THEN checked(id) ELSE 0 END AS m FROM source",
        [1, 2, 4],
        {2: "ValueError: three is refused"},
    ),
    ("SELECT id, e FROM source LATERAL VIEW explode(array(CAST(n AS INT))) t AS e", [1, 3, 4], {1: "CAST"}),
    ("SELECT id, explode(array(CAST(n AS INT))) AS e FROM source", [1, 3, 4], {1: "CAST"}),
    ("SELECT id FROM source WHERE CAST(n AS INT) IN (SELECT id FROM names)", [1, 3], {1: "CAST"}),
]
QUICK = (0, 6, 9)
"""The cases that are tried every time: errors of two kinds, of a join and of a function beside one of Spark."""


@pytest.mark.parametrize(
    ("sql", "good", "wrong"),
    [pytest.param(*case, marks=[] if number in QUICK else pytest.mark.deep) for number, case in enumerate(CASES)],
)
def test_every_bad_row_is_found_by_one_query(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, sql: str, good: list[int], wrong: dict[int, str]
) -> None:
    monkeypatch.setattr(frame_sql, "MOST_QUERIES", 0)
    shaped = stage(spark, sql).rows(messages(*BAD), lenient=True)
    assert sorted(shaped.rows.column("id").to_pylist()) == good
    rejects = shaped.rejects.to_pylist() if shaped.rejects is not None else []
    reasons = {row["source_position"]: row["reason"] for row in rejects}
    assert set(reasons) == {f"place {number}" for number in wrong}
    for number, reason in wrong.items():
        text = reasons[f"place {number}"]
        assert text.startswith(SQL_FAILED)
        assert reason in text
        assert "\n" not in text


@pytest.mark.deep
def test_many_bad_rows_take_no_more_queries_than_one(spark: SparkSession) -> None:
    rows = [{"id": n, "n": f"{n}{'x' if n % 20 == 0 else ''}"} for n in range(20_000)]
    sql = stage(spark, "SELECT id, CAST(n AS BIGINT) AS n FROM source")
    with counted(spark) as jobs:
        shaped = sql.rows(messages(*rows), lenient=True)
    assert shaped.rejects is not None
    assert (shaped.rows.num_rows, shaped.rejects.num_rows) == (19_000, 1_000)
    assert shaped.rejects.column("source_position").to_pylist() == [f"place {n}" for n in range(0, 20_000, 20)]
    assert 0 < len(jobs) <= 16


@pytest.mark.deep
def test_a_function_that_fails_often_takes_no_more_queries(spark: SparkSession) -> None:
    with counted(spark) as jobs:
        shaped = stage(spark, "SELECT checked(id) AS id FROM source").rows(
            messages(*({"id": n % 20} for n in range(2_000))), lenient=True
        )
    assert shaped.rejects is not None
    assert (shaped.rows.num_rows, shaped.rejects.num_rows) == (1_900, 100)
    assert 0 < len(jobs) <= 16


def test_rows_that_depend_on_each_other_are_bad_together(spark: SparkSession) -> None:
    sql = "SELECT max(CAST(n AS BIGINT)) AS id FROM source"
    shaped = stage(spark, sql).rows(messages(*BAD), lenient=True)
    assert shaped.rejects is not None
    assert shaped.rejects.num_rows == len(BAD)
    assert set(shaped.rejects.column("source_position").to_pylist()) == {f"place {n}" for n in range(4)}


@pytest.mark.deep
def test_rows_that_no_query_can_tell_apart_are_halved_a_bounded_number_of_times(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_sql, "can_report_errors", lambda _: False)
    monkeypatch.setattr(frame_sql, "MOST_QUERIES", 6)
    rows = [{"id": n, "n": "x" if n == 5 else "1"} for n in range(32)]
    shaped = stage(spark, "SELECT id, CAST(n AS BIGINT) AS n FROM source").rows(messages(*rows), lenient=True)
    assert shaped.rejects is not None
    assert shaped.rows.num_rows + shaped.rejects.num_rows == 32
    assert shaped.rejects.column("source_position").to_pylist() == [f"place {n}" for n in range(4, 8)]
    assert "in one of 4 rows" in shaped.rejects.column("reason")[0].as_py()
    called = stage(spark, "SELECT checked(id) AS id FROM source").rows(messages({"id": 1}, {"id": 3}), lenient=True)
    assert called.rejects is not None
    assert called.rejects.column("reason").to_pylist() == [f"{SQL_FAILED}ValueError: three is refused"]
