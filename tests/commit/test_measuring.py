"""What is measured of the rows is what plain Python says of them, on a database and for any rows."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ematix_flow.commit.ledger import HistoryRow
from ematix_flow.commit.measurements import Ruler
from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.registry import system_of
from ematix_flow.declare.connection.registry import SQLiteConnection
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.quality.expectations import quality_of
from ematix_flow.declare.quality.tester import Tester
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.batch.commit_request import commit_request_for
from ematix_flow.plan.batch import Inspection, PlanRequest, plan_target
from ematix_flow.plan.source import SourceValue
from ematix_flow.records import Fence, Token

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ematix_flow.declare.quality.checks import Expectation
    from ematix_flow.plan.steps import TargetPlan

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = Table(
    "main",
    "things",
    (
        Column(BigInt(), name="id", primary_key=True),
        Column(BigInt(), name="n"),
        Column(Text(), name="word"),
    ),
)
TEXTS = ["", "a", "A", "ab", "b a", "é", "a\nb", "'", "%", None]
Row = tuple[int, int | None, str | None]
rows_given = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(-3, 3), st.sampled_from(TEXTS)), max_size=12)

Case = tuple["Callable[[Tester], Expectation]", "Callable[[list[Row]], int]"]


def twice(rows: list[Row], at: tuple[int, ...]) -> int:
    keys = [tuple(row[i] for i in at) for row in rows]
    return sum(keys.count(key) > 1 for key in keys if None not in key)


CASES: dict[str, Case] = {
    "not_null": (lambda t: t.column("n").not_null(), lambda rows: sum(n is None for _, n, _ in rows)),
    "between": (
        lambda t: t.column("n").between(-1, 2),
        lambda rows: sum(n is not None and not -1 <= n <= 2 for _, n, _ in rows),
    ),
    "at_least": (lambda t: t.column("n").between(0, None), lambda rows: sum(n is not None and n < 0 for _, n, _ in rows)),
    "is_in": (
        lambda t: t.column("word").is_in(["a", "'", ""]),
        lambda rows: sum(w is not None and w not in ("a", "'", "") for *_, w in rows),
    ),
    "regex": (
        lambda t: t.column("word").regex("^[a-z ]+$"),
        lambda rows: sum(w is not None and not re.fullmatch("[a-z ]+", w) for *_, w in rows),
    ),
    "unique": (lambda t: t.column("n").unique(), lambda rows: twice(rows, (1,))),
    "unique_pair": (lambda t: t.unique(["n", "word"]), lambda rows: twice(rows, (1, 2))),
    "sql": (
        lambda t: t.sql("sql", "n > 0 OR word = 'a'"),
        lambda rows: sum(
            (n is not None and n <= 0 and w is not None and w != "a") for _, n, w in rows
        ),
    ),
    "query": (
        lambda t: t.query("query", "SELECT n FROM rows WHERE n IS NOT NULL GROUP BY n HAVING COUNT(*) > 2"),
        lambda rows: sum([n for _, n, _ in rows].count(one) > 2 for one in {n for _, n, _ in rows} - {None}),
    ),
    "python": (
        lambda t: t.python("python", lambda rows: sum(row["word"] == "ab" for row in rows)),
        lambda rows: sum(w == "ab" for *_, w in rows),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> TargetPlan:
    """Return the plan of a load that expects everything at once."""
    connection = SQLiteConnection(name="lite", path=str(tmp_path_factory.mktemp("lite") / "lite.db"))
    tester = Tester(TABLE)
    requested = [expect(tester) for expect, _ in CASES.values()]
    written = write("append")
    target = TargetDeclaration(
        TABLE, written, connection, quality=quality_of({"expectations": requested}, TABLE, written)
    )
    pipeline = Pipeline("p", lambda: "SELECT 1", (target,), source_connection=connection)
    database: Any = system_of(connection)
    sql = "SELECT id, n, word FROM src"
    columns = (SourceColumn("id", "integer"), SourceColumn("n", "integer"), SourceColumn("word", "text"))
    inspection = Inspection("lite", "lite", "sqlite", source_columns=columns, source_sql=sql, same_database=True)
    source = SourceValue(None, sql=sql)
    return plan_target(PlanRequest(pipeline, target, source, database, Token("p", "t", "s"), NOW, database), inspection)


@pytest.mark.slow
@settings(max_examples=150)
@given(rows=rows_given)
def test_the_verdicts_are_those_of_plain_python(planned: TargetPlan, tmp_path_factory: Any, rows: list[Row]) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "model.db"
    database: Any = system_of(SQLiteConnection(name="model", path=str(path)))
    history = HistoryRow("r", "p", "main", "things", "append", "same_db", NOW, "running")
    order = commit_request_for(planned, Fence("p", 0), history, None, ())
    with closing(database.session()) as session:
        session.execute("CREATE TEMP TABLE load (id BIGINT, n BIGINT, word TEXT)")
        for row in rows:
            session.execute("INSERT INTO temp.load VALUES (?, ?, ?)", row)
        ruler = Ruler(order, database, session, "temp.load")
        measures = planned.audit.measures
        ruler.count_together([one for one in measures if one.counted])
        together = [ruler.measured(one) for one in measures]
        apart = [Ruler(order, database, session, "temp.load").measured(one) for one in measures]
    assert together == apart
    counts = [result.failed_rows for result in together[: len(CASES)]]
    assert counts == [count(rows) for _, count in CASES.values()]
    assert {result.total for result in together} == {len(rows)}
    for result in together:
        assert (result.verdict == "fail") == bool(result.failed_rows)
        assert bool(result.sample) == (result.verdict == "fail" and result.name != "python")
