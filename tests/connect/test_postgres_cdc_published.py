"""Publications and policies of PostgreSQL that would hide rows or changes from a stream: it stops and says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.postgres.cdc import source as cdc_source
from ematix_flow.connect.postgres.cdc.slot import published_tables
from ematix_flow.errors import DeclareError, RunError, StreamLostError
from tests.connect.change_messages import brief, drained
from tests.connect.test_postgres_cdc import opened, run  # noqa: F401 - fixtures
from tests.crash.harness import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.postgres.cdc.source import PostgresChanges
    from tests.connect.test_postgres_cdc import Statement

pytestmark = pytest.mark.service


def test_a_publication_that_leaves_changes_out_is_refused(
    run: Statement,  # noqa: F811
    opened: Callable[..., PostgresChanges],  # noqa: F811
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY, what text)")
    run("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    run("CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    run("CREATE PUBLICATION own FOR TABLE t, parts WITH (publish = 'insert')")
    with pytest.raises(RunError, match="every kind of change") as refused:
        opened("t", publication="own").begin()
    run(str(refused.value.hint).removesuffix("."))
    run("ALTER PUBLICATION own SET (publish_via_partition_root = false)")
    opened("t", publication="own").begin()
    with pytest.raises(RunError, match=r"partitions of public\.parts"):
        opened("t, parts", "other", publication="own").begin()
    run("CREATE PUBLICATION filtered FOR TABLE t WHERE (id > 1)")
    run("CREATE PUBLICATION narrow FOR TABLE t (id)")
    for name in ("filtered", "narrow"):
        with pytest.raises(RunError, match=r"only some rows or columns of public\.t"):
            opened("t", name, publication=name).begin()


@pytest.mark.parametrize("query", ["t", "public.*"])
def test_a_table_that_was_made_again_or_changed_names_is_not_taken_for_the_same(
    run: Statement,  # noqa: F811
    opened: Callable[..., PostgresChanges],  # noqa: F811
    query: str,
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE a (id int PRIMARY KEY)")
    source = opened(query)
    source.begin()
    _, position = drained(source, source.start("earliest"))
    run("DROP TABLE t")
    assert drained(source, position)[0] == [], "a table that is gone has no changes"
    run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    for _ in range(2):
        with pytest.raises(StreamLostError, match=r"public\.t is no longer in publication"):
            source.ahead(position, 10)
        source = opened(query)
        source.begin()
    left = position | {"tables": [name for name in position["tables"] if name != "public.t"]}
    again, after = drained(source, left)
    assert [brief(one) for one in again] == [("r", None, {"id": 1})]
    run("INSERT INTO t VALUES (2)")
    assert [brief(one) for one in drained(source, after)[0]] == [("c", None, {"id": 2})]


def test_a_stream_that_begins_at_the_end_has_every_change_of_tables_that_were_not_published(
    run: Statement,  # noqa: F811
    opened: Callable[..., PostgresChanges],  # noqa: F811
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE a (id int PRIMARY KEY); CREATE PUBLICATION own FOR TABLE a")
    run("ALTER PUBLICATION own SET (publish_via_partition_root = true)")
    source = opened("public.*", publication="own")
    source.begin()
    position = source.first_position("latest")
    run("INSERT INTO t VALUES (1)")
    changes, position = drained(source, position)
    assert [brief(one) for one in changes] == [("c", None, {"id": 1})]
    run("CREATE TABLE later (id int PRIMARY KEY)")
    moved = opened("public.*", publication="own").seek(position, "latest")
    run("INSERT INTO later VALUES (1)")
    again = opened("public.*", publication="own")
    again.begin()
    assert [brief(one) for one in drained(again, moved)[0]] == [("c", None, {"id": 1})]
    run("DROP TABLE later; CREATE TABLE later (id int PRIMARY KEY)")
    with pytest.raises(StreamLostError, match=r"public\.later is no longer in publication"):
        again.ahead(moved, 10)


def test_a_publication_is_queried_when_the_log_goes_on(
    run: Statement,  # noqa: F811
    opened: Callable[..., PostgresChanges],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries: list[str] = []
    monkeypatch.setattr(cdc_source, "published_tables", lambda *given: queries.append("") or published_tables(*given))
    run("CREATE TABLE t (id int PRIMARY KEY)")
    source = opened("t")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    server = source._server()
    monkeypatch.setattr(source, "_server", lambda: server)
    source.ahead(position, 10)
    queries.clear()
    for _ in range(3):
        source.ahead(position, 10)
    assert not queries
    monkeypatch.undo()
    run("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY)")
    for _ in range(2):
        with pytest.raises(StreamLostError, match=r"public\.t is no longer in publication"):
            source.ahead(position, 10)


def test_a_transaction_that_is_open_while_its_table_is_published_is_before_the_end(
    run: Statement,  # noqa: F811
    opened: Callable[..., PostgresChanges],  # noqa: F811
    postgres_url: str,
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE a (id int PRIMARY KEY); CREATE PUBLICATION own FOR TABLE a")
    source = opened("t, a", publication="own")
    source.begin()
    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(postgres_url) as other:
            other.execute("INSERT INTO t VALUES (1)")
            first = pool.submit(source.first_position, "latest")
            wait_until(lambda: run("SELECT 1 FROM pg_publication_tables WHERE tablename = 't'") or first.done(), 60)
            other.execute("INSERT INTO t VALUES (2)")
        position = first.result(60)
    run("INSERT INTO t VALUES (3)")
    assert [brief(one) for one in drained(source, position)[0]] == [("c", None, {"id": 3})]


def test_a_table_without_an_identity_is_not_published_where_a_stream_is_moved_to_the_end(
    run: Statement,  # noqa: F811
    opened: Callable[..., PostgresChanges],  # noqa: F811
) -> None:
    run("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE loose (id int); CREATE PUBLICATION own FOR TABLE a")
    with pytest.raises(DeclareError, match=r"public\.loose has no replica identity"):
        opened("public.*", publication="own").seek(None, "latest")
    run("INSERT INTO loose VALUES (1); DELETE FROM loose")


def test_a_publication_that_was_dropped_is_said(
    run: Statement,  # noqa: F811
    opened: Callable[..., PostgresChanges],  # noqa: F811
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY)")
    source = opened("t")
    source.begin()
    _, position = drained(source, source.start("earliest"))
    run(f"DROP PUBLICATION {source.reader.publication}")
    run("INSERT INTO t VALUES (1)")
    again = opened("t")
    again.begin()
    with pytest.raises(StreamLostError, match="publication") as lost:
        again.ahead(position, 10)
    assert "drop the slot" in str(lost.value.hint)


def test_a_policy_hides_no_rows(run: Statement, opened: Callable[..., PostgresChanges], postgres_url: str) -> None:  # noqa: F811
    run("CREATE TABLE t (id int PRIMARY KEY)")
    run("INSERT INTO t VALUES (1), (2)")
    run("ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (id = 1)")
    run("CREATE PUBLICATION policed FOR TABLE t")
    run("DROP ROLE IF EXISTS limited; CREATE ROLE limited LOGIN REPLICATION PASSWORD 'x'; GRANT SELECT ON t TO limited")
    parts = urlsplit(postgres_url)
    url = parts._replace(netloc=f"limited:x@{parts.hostname}:{parts.port}").geturl()
    try:
        source = opened("t", "policed", publication="policed", url=url)
        source.begin()
        with pytest.raises(RunError, match="row-level security"):
            drained(source, source.start("earliest"))
        source.close()
    finally:
        run("DROP OWNED BY limited; DROP ROLE limited")


def test_columns_that_the_server_computes_are_known(
    run: Statement,  # noqa: F811
    opened: Callable[..., PostgresChanges],  # noqa: F811
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    run("INSERT INTO t VALUES (1)")
    source = opened("t")
    assert source.unlogged_columns() == {TableId("public", "t"): {"twice"}}
    source.begin()
    rows, _ = drained(source, source.start("earliest"))
    assert rows[0]["after"] == {"id": 1}
