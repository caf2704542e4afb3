# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Rows of a spine are looked up by several connections of PostgreSQL, which all see one state of it."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import psycopg
import pytest

from ematix_flow import BigInt, PostgresConnection, TimestampTZ, connect, ematix, pk
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.engine.features import read, spine
from ematix_flow.errors import RunError
from ematix_flow.pipeline import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.feature_view import FeatureView

pytestmark = [pytest.mark.service, pytest.mark.slow]

START = datetime(2026, 1, 1, tzinfo=UTC)
SPINE = [{"user_id": number % 20, "as_of": START + timedelta(days=number % 3)} for number in range(100)]
EXPECTED = [None if row["user_id"] == 19 else row["user_id"] * 10 for row in SPINE]


@pytest.fixture
def scores(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FeatureView]]:
    """Return a view with values of nineteen users, for which seven rows of a spine are one statement."""
    monkeypatch.setenv(ENGINE_VARIABLE, "local")
    monkeypatch.setattr(spine, "AT_ONCE", 7)
    monkeypatch.setattr(read, "WORTH_COMPANIONS", 50)
    monkeypatch.setattr(read.os, "cpu_count", lambda: 3)
    PROJECT.clear()

    @ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="ts", name="scores")
    class Scores:
        user_id: Annotated[BigInt, pk()]
        score: BigInt
        ts: TimestampTZ

    rows = [{"user_id": number, "score": number * 10, "ts": START} for number in range(19)]
    sync(target=Scores, source=rows, target_connection=PostgresConnection(name="shop", url=postgres_url), mode="scd2")
    yield Scores
    PROJECT.clear()


@pytest.fixture
def answered_by(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the connections that answered, by number; another client changes all values before the second answer."""
    answered: list[int] = []
    query = read.Reader.query

    def noted(self: read.Reader, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        rows = query(self, sql, parameters)
        if not answered:
            with psycopg.connect(postgres_url) as other:
                other.execute("UPDATE features.scores SET score = -1")
        answered.append(id(self.session))
        return rows

    monkeypatch.setattr(read.Reader, "query", noted)
    return answered


def test_several_connections_look_up_one_state(
    scores: type[FeatureView], answered_by: list[int], postgres_url: str
) -> None:
    conn = PostgresConnection(name="shop", url=postgres_url)
    training_set = ematix.training_set(
        conn, spine=SPINE, feature_views=[scores], columns=["score"], prefer="polars", engine="database"
    )
    assert training_set["score"].to_list() == EXPECTED
    assert len(answered_by) == 15
    assert 2 <= len(set(answered_by)) <= 3
    with psycopg.connect(postgres_url) as other:
        left = other.execute("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'").fetchone()
    assert left == (0,)
    assert [row["score"] for row in scores.historical_features(conn, spine=SPINE, columns=["score"])] == [
        None if value is None else -1 for value in EXPECTED
    ]


def test_few_rows_and_a_transaction_of_the_caller_take_one_connection(
    scores: type[FeatureView], answered_by: list[int], postgres_url: str
) -> None:
    conn = PostgresConnection(name="shop", url=postgres_url)
    ematix.training_set(conn, spine=SPINE[:20], feature_views=[scores], columns=["score"], engine="database")
    assert len(set(answered_by)) == 1
    answered_by.clear()
    with closing(connect(conn)) as handle, handle.transaction():
        ematix.training_set(handle, spine=SPINE, feature_views=[scores], columns=["score"], engine="database")
    assert len(set(answered_by)) == 1


def test_an_error_of_one_connection_is_told_as_any(
    scores: type[FeatureView], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute("ALTER TABLE features.scores RENAME COLUMN valid_to TO ends")
    conn = PostgresConnection(name="shop", url=postgres_url)
    with pytest.raises(RunError, match=r"feature view features\.scores could not be read: .*valid_to"):
        ematix.training_set(conn, spine=SPINE, feature_views=[scores], columns=["score"], engine="database")
