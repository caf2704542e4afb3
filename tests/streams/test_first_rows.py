"""The rows that a mirror begins with: they get one version, and what comes later is applied to them as to any others."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import CDC
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, String, Text
from ematix_flow.engine import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.dead_letters import Selection, replay
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.plan.metadata_tables import VERSIONS
from ematix_flow.plan.sql.modes.change_rows import SNAPSHOT
from ematix_flow.plan.sql.render import native_name
from tests.contracts.systems import SYSTEMS, parameter
from tests.crash.programs import log_at
from tests.streams.change_sources import Source
from tests.streams.feeds import drain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]


def things(big: Any = Text, key: str = "id") -> Table:
    """Return the table of the mirror."""
    kinds = {"id": BigInt(), "n": BigInt(), "big": big() if big is Text else big}
    columns = [Column(kind, primary_key=name == key, nullable=name != key, name=name) for name, kind in kinds.items()]
    return Table("shop", "things", tuple(columns))


class FirstRows:
    """A source, and its mirror in a database."""

    def __init__(self, source: Source, target: Connection) -> None:
        self.source = source
        self.target = target

    def stream(self, table: Table, **more: Any) -> Stream:
        """Return the stream."""
        log = log_at(self.source.url)
        given = {
            "source": log,
            "source_query": "public.things",
            "target_connection": self.target,
            "target_table": table,
        }
        return stream_from_keywords({"name": "mirror", "cdc": CDC(), **given, **more}, None)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query in which braces stand for the mirror and for the versions of its keys."""
        database = target_for(self.target, things(), session_for(Options()))
        named = (database.table_name("shop", "things"), database.metadata_table(VERSIONS))
        names = [native_name(name, database.dialect) for name in named]
        with closing(database.session()) as session:
            return sorted(map(tuple, database.data(session).query(sql.format(*names))), key=str)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the mirror."""
        return sorted(self.query("SELECT id, n, big FROM {0}"))

    def versions(self) -> list[str]:
        """Return the keys that have a version."""
        return [key for (key,) in self.query("SELECT pk_json FROM {1}")]


@pytest.fixture
def source(postgres_url: str) -> Iterator[Source]:
    source = Source(postgres_url)
    source.run("INSERT INTO things VALUES (1, 10, 'a'), (2, 20, 'b'), (3, NULL, NULL)")
    yield source
    source.close()


@pytest.fixture(params=[parameter(one, *(() if one.kind == "postgres" else (pytest.mark.deep,))) for one in SYSTEMS])
def first(request: pytest.FixtureRequest, source: Source, monkeypatch: pytest.MonkeyPatch) -> FirstRows:
    """Return a source with three rows, and an empty target of each database."""
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")
    return FirstRows(source, request.param.connect(request))


@pytest.fixture
def in_postgres(source: Source, monkeypatch: pytest.MonkeyPatch) -> FirstRows:
    """Return a source with three rows, and a mirror in its own database."""
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")
    return FirstRows(source, connection_from_fields("there", {"kind": "postgres", "url": source.url}))


def test_rows_with_one_version_are_changed_like_others(first: FirstRows) -> None:
    source, stream = first.source, first.stream(things())
    done = drain(stream)
    assert first.rows() == source.rows()
    assert done["total_rows"] == 3
    assert first.versions() == [SNAPSHOT]
    source.run("UPDATE things SET n = 11 WHERE id = 1")
    source.run("DELETE FROM things WHERE id = 2")
    source.run("UPDATE things SET id = 33 WHERE id = 3")
    source.run("INSERT INTO things VALUES (4, 40, 'd')")
    drain(stream)
    assert first.rows() == source.rows()
    assert len(first.versions()) == 6
    source.run("INSERT INTO things VALUES (2, 21, 'again')")
    drain(stream)
    assert first.rows() == source.rows()
    source.run("TRUNCATE things")
    source.run("INSERT INTO things VALUES (5, 50, 'e')")
    drain(stream)
    assert first.rows() == [(5, 50, "e")]


def test_a_snapshot_that_is_read_again_finds_its_own_rows(first: FirstRows) -> None:
    source, stream = first.source, first.stream(things())
    drain(stream)
    source.run("UPDATE things SET big = 'new' WHERE id = 1")
    source.run("DELETE FROM things WHERE id = 3")
    move_stream(stream, "earliest", StreamOptions())
    drain(stream)
    assert first.rows() == source.rows() == [(1, 10, "new"), (2, 20, "b")]


def test_a_truncate_removes_rows_that_have_no_version_of_their_own(in_postgres: FirstRows) -> None:
    source, stream = in_postgres.source, in_postgres.stream(things())
    drain(stream)
    source.run("TRUNCATE things")
    drain(stream)
    assert in_postgres.rows() == []


def test_rows_that_are_there_already_are_compared_one_by_one(in_postgres: FirstRows) -> None:
    source, stream = in_postgres.source, in_postgres.stream(things())
    source.run("CREATE SCHEMA shop")
    source.run(
        "CREATE TABLE shop.things (id bigint PRIMARY KEY, n bigint, big text, _loaded_at timestamptz NOT NULL, _batch_id uuid NOT NULL)"
    )
    source.run("INSERT INTO shop.things VALUES (2, 99, 'mine', now(), gen_random_uuid())")
    drain(stream)
    assert in_postgres.rows() == source.rows()
    assert SNAPSHOT not in in_postgres.versions()
    assert len(in_postgres.versions()) == 3


def test_keys_that_are_not_those_of_the_source_have_one_row(in_postgres: FirstRows) -> None:
    in_postgres.source.run("UPDATE things SET n = 7")
    drain(in_postgres.stream(things(key="n")))
    assert [n for _, n, _ in in_postgres.rows()] == [7]
    assert SNAPSHOT not in in_postgres.versions()


def test_a_bad_row_of_a_snapshot_can_be_replayed(in_postgres: FirstRows) -> None:
    source = in_postgres.source
    source.run("UPDATE things SET big = 'much too long' WHERE id = 2")
    drain(in_postgres.stream(things(String(5)), transform_on_error="dlq"))
    assert [key for key, _, _ in in_postgres.rows()] == [1, 3]
    assert in_postgres.versions() == [SNAPSHOT]
    source.run("ALTER TABLE shop.things ALTER COLUMN big TYPE text")
    wider = in_postgres.stream(things(), transform_on_error="dlq")
    assert replay(wider, Selection())["succeeded"] == 1
    assert in_postgres.rows() == source.rows()
    # The row has a version of its own now, so what is older does not count.
    source.run("DELETE FROM things WHERE id = 2")
    drain(wider)
    assert in_postgres.rows() == source.rows()
