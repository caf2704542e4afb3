"""The queries of a difference, asked of tables in memory: which keys come, change and go, and what is shown of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.plan.sql.diff import diff_queries, repeated_keys
from ematix_flow.plan.sql.program import Load
from ematix_flow.plan.sql.render import bind_staged

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 1, 10, tzinfo=UTC)
COLUMNS = (StageColumn("id", BigInt(), in_key=True), StageColumn("word", Text()), StageColumn("note", Text()))
LOAD = Load("duckdb", TableName("main", "t"), COLUMNS, NOW, "00000000-0000-0000-0000-000000000000")
KEYED = replace(LOAD, keys=("id",), update=("word", "note"), compare=("word", "note"))
VERSIONED = replace(KEYED, update=())
STAGED = "(SELECT * FROM (VALUES (2, 'two', 'n'), (3, 'c', 'n'), (9, NULL, 'n')) AS v(id, word, note))"


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Return a database with three rows, each a version that began on another day."""
    with duckdb.connect() as opened:
        opened.execute("SET TimeZone = 'UTC'")
        opened.execute(
            "CREATE TABLE t AS SELECT id, word, 'n' AS note, TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL (id) DAY "
            "AS valid_from, CAST(NULL AS TIMESTAMPTZ) AS valid_to, TRUE AS is_current "
            "FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) AS v(id, word)"
        )
        yield opened


class DiffAnswers:
    """The answers to all queries of one load."""

    def __init__(
        self, database: duckdb.DuckDBPyConnection, load: Load, mode: str, existing: Any = None, staged: str = STAGED
    ) -> None:
        self.queries = diff_queries(load, mode, existing, 5)

        def rows_of(sql: str) -> list[Any]:
            return database.execute(bind_staged(sql, "duckdb", staged)).fetchall()

        self.totals = dict(rows_of(self.queries.totals))
        self.changes = dict(zip(self.queries.columns, rows_of(self.queries.changes)[0], strict=True))
        self.samples = {kind: rows_of(sql) for kind, sql in self.queries.samples}


def test_append_adds_whatever_is_there(database: duckdb.DuckDBPyConnection) -> None:
    assert DiffAnswers(database, LOAD, "append").totals == {"added": 3}


def test_truncate_compares_every_column(database: duckdb.DuckDBPyConnection) -> None:
    answers = DiffAnswers(database, LOAD, "truncate")
    assert answers.totals == {"added": 1, "changed": 1, "removed": 1, "unchanged": 1}
    assert answers.changes == {"word": 1, "note": 0}
    assert answers.samples["changed"] == [(2, "b", "n", "two", "n")]
    assert answers.samples["removed"] == [(1, "a", "n", None, None)]


@pytest.mark.slow
def test_merge_changes_what_it_compares_and_shows_what_it_writes(database: duckdb.DuckDBPyConnection) -> None:
    staged = STAGED.replace("'two', 'n'", "'two', 'new'")
    assert DiffAnswers(database, KEYED, "merge", staged=staged).changes == {"word": 1, "note": 1}
    only_text = replace(KEYED, update=("word",), compare=("word",), delete_absent=True)
    answers = DiffAnswers(database, only_text, "merge", staged=staged)
    assert answers.totals == {"added": 1, "changed": 1, "removed": 1, "unchanged": 1}
    assert answers.changes == {"word": 1, "note": 0}
    assert answers.samples["changed"] == [(2, "b", "n", "two", "n")]
    frozen = DiffAnswers(database, replace(KEYED, update=(), compare=()), "merge", staged=staged)
    assert frozen.totals == {"added": 1, "unchanged": 2}


@pytest.mark.slow
def test_versions_end_when_they_are_absent_or_too_old(database: duckdb.DuckDBPyConnection) -> None:
    assert DiffAnswers(database, VERSIONED, "scd2").totals == {"added": 1, "changed": 1, "unchanged": 1}
    absent = DiffAnswers(database, replace(VERSIONED, delete_absent=True), "scd2")
    assert absent.samples["removed"] == [(1, "a", "n", None, None)]
    old = replace(VERSIONED, expire_before=datetime(2026, 1, 5, tzinfo=UTC))
    assert DiffAnswers(database, old, "scd2").totals == {"added": 1, "changed": 1, "removed": 2}
    database.execute("UPDATE t SET valid_from = TIMESTAMPTZ '2026-02-01 00:00:00+00'")
    later = DiffAnswers(database, replace(VERSIONED, delete_absent=True), "scd2")
    assert later.totals == {"added": 1, "changed": 1, "unchanged": 1}


@pytest.mark.slow
def test_a_key_changes_by_event_time_when_any_of_its_versions_does(database: duckdb.DuckDBPyConnection) -> None:
    event = StageColumn("_flow_event", TimestampTZ())
    load = replace(VERSIONED, event="_flow_event", extra=(event,))
    staged = (
        "(SELECT id, word, note, CAST(seen AS TIMESTAMPTZ) AS _flow_event FROM (VALUES "
        "(1, 'z', 'n', '2025-12-01 00:00:00+00'), (2, 'two', 'n', '2026-01-08 00:00:00+00'), "
        "(3, 'c', 'n', '2026-01-09 00:00:00+00'), (9, 'i', 'n', '2026-01-09 00:00:00+00')) AS v(id, word, note, seen))"
    )
    answers = DiffAnswers(database, load, "scd2", staged=staged)
    assert answers.totals == {"added": 1, "changed": 2, "unchanged": 1}
    assert answers.changes == {"word": 1, "note": 0}
    assert answers.samples["changed"] == [(1, "a", "n", "a", "n"), (2, "b", "n", "two", "n")]


@pytest.mark.parametrize("mode", ["append", "truncate", "merge", "scd2"])
def test_a_missing_table_is_an_empty_one(database: duckdb.DuckDBPyConnection, mode: str) -> None:
    database.execute("DROP TABLE t")
    load = LOAD if mode in ("append", "truncate") else KEYED if mode == "merge" else VERSIONED
    assert DiffAnswers(database, replace(load, expire_before=NOW - timedelta(days=1)), mode, existing=()).totals == {
        "added": 3
    }


def test_a_column_that_is_to_come_is_null_until_then(database: duckdb.DuckDBPyConnection) -> None:
    database.execute("ALTER TABLE t DROP COLUMN note")
    answers = DiffAnswers(database, KEYED, "merge", existing=("id", "word"))
    assert answers.totals == {"added": 1, "changed": 2}
    assert answers.changes == {"word": 1, "note": 2}


def test_repeated_keys_are_found_in_both_places(database: duckdb.DuckDBPyConnection) -> None:
    assert database.execute(repeated_keys(LOAD, ("id",))).fetchall() == []
    database.execute("INSERT INTO t SELECT * FROM t WHERE id = 1")
    assert database.execute(repeated_keys(LOAD, ("id",))).fetchall() == [(1,)]
    twice = bind_staged(repeated_keys(LOAD, ("id",), staged=True), "duckdb", "(SELECT 1 AS id UNION ALL SELECT 1)")
    assert database.execute(twice).fetchall() == [(1,)]
