# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Feature views on every system: values as of an instant, current values, the registry, and no value of the future."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Boolean, Numeric, String, Text, TimestampTZ, ematix, pk
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.errors import BadRowsError
from tests.contracts.flows import START
from tests.contracts.systems import only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ematix_flow.feature_view import FeatureView
    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

EPOCH = START - timedelta(days=20)
EVENTS: dict[str, Any] = {"mode": "scd2", "event_timestamp_column": "at"}


@pytest.fixture(autouse=True)
def _own_project() -> Iterator[None]:
    PROJECT.clear()
    yield
    PROJECT.clear()


def users(**options: Any) -> type[FeatureView]:
    @ematix.feature_view(schema="hist", feature_version="v1", event_timestamp_column="at", name="users", **options)
    class Users:
        user_id: Annotated[BigInt, pk()]
        place: Annotated[String[20], pk()]
        score: Numeric[10, 2] | None
        active: Boolean | None
        at: TimestampTZ

    return Users


def day(number: float) -> datetime:
    return EPOCH + timedelta(days=number)


def user(key: int, score: int | None, at: float, location: str = "b'\\é") -> Row:
    value = None if score is None else Decimal(score)
    return {"user_id": key, "place": location, "score": value, "active": score != 2, "at": day(at)}


def keys(key: int, location: str = "b'\\é") -> dict[str, Any]:
    return {"user_id": key, "place": location}


def registry(flow: Flow) -> list[tuple[Any, ...]]:
    names = "name, schema_name, table_name, feature_version, entity_keys, event_timestamp_column, ttl_seconds, owner"
    return flow.select(f"SELECT {names} FROM {flow.metadata_name('feature_views')} ORDER BY name")


@pytest.mark.every_system
def test_values_are_those_of_the_instant(flows: Flows) -> None:
    view = users(owner="risk", ttl=timedelta(days=4000))
    flow = flows(table_of(view), **EVENTS)
    flow.run([user(1, 100, 1), user(1, 200, 5), user(2, None, 3)])
    flow.run([user(1, 300, 9), user(1, 100, 0.5)])

    def score_of(key: int, at: float) -> Any:
        row = view.point_in_time(flow.connection, entity_keys=keys(key), as_of=day(at))
        return row if row is None else row["score"]

    assert [score_of(1, at) for at in (0.4, 0.5, 1, 4.999, 5, 8, 9, 99)] == [None, 100, 100, 100, 200, 200, 300, 300]
    whole = view.point_in_time(flow.connection, entity_keys=keys(1), as_of=day(5))
    assert whole == {**keys(1), "score": 200, "active": True, "at": day(5)}
    assert view.point_in_time(flow.connection, entity_keys=keys(1, "B'\\É"), as_of=day(5)) is None
    spine = [{**keys(1), "as_of": day(7)}, {**keys(9), "as_of": day(7)}, {**keys(2), "as_of": day(7)}]
    rows = view.historical_features(flow.connection, spine=spine)
    nothing = {"score": None, "active": None, "at": None}
    assert rows == [
        {"score": 200, "active": True, "at": day(5)},
        nothing,
        {"score": None, "active": True, "at": day(3)},
    ]
    frame = ematix.training_set(flow.connection, spine=spine, feature_views=[view], columns=["score"])
    assert frame.columns == ["place", "user_id", "as_of", "score"]
    assert frame["score"].to_list() == [Decimal(200), None, None]
    (row,) = registry(flow)
    entity_keys = row[4] if isinstance(row[4], list) else json.loads(row[4])
    assert entity_keys == ["user_id", "place"]
    assert (*row[:4], *row[5:]) == ("hist.users.v1", "hist", "users", "v1", "at", 4000 * 86_400, "risk")


@pytest.mark.every_system
@only("duckdb", "sqlite", "postgres", "mysql")
def test_the_online_store_has_what_the_last_load_left(flows: Flows) -> None:
    view = users(online=True)
    flow = flows(table_of(view), **EVENTS)
    flow.run([user(1, 100, 1), user(2, 7, 1)])
    assert view.online_features(flow.connection, entity_keys=keys(1)) == {
        **keys(1), "score": 100, "active": True, "at": day(1)
    }  # fmt: skip
    flow.run([user(1, 2, 5), user(3, 1, 2)])
    flow.run([user(1, 50, 3)])  # late: it changes the past and not the present

    def online(key: int) -> Any:
        return view.online_features(flow.connection, entity_keys=keys(key), columns=["score", "active"])

    assert [online(key) for key in (1, 2, 3, 4)] == [
        {"score": 2, "active": False},
        {"score": 7, "active": True},
        {"score": 1, "active": True},
        None,
    ]
    for key in (1, 2, 3):
        as_of = view.point_in_time(
            flow.connection, entity_keys=keys(key), as_of=flow.now(), columns=["score", "active"]
        )
        assert as_of == online(key)


@only("duckdb", "sqlite", "postgres", "mysql")
def test_a_load_that_fails_leaves_registry_and_online_store(flows: Flows) -> None:
    view = users(online=True)
    flow = flows(table_of(view), **EVENTS)
    flow.run([user(1, 100, 1)])
    synced = flow.select(f"SELECT last_synced_at FROM {flow.metadata_name('feature_views')}")
    with pytest.raises(BadRowsError):
        flow.run([user(1, 9, 2), {**user(2, 2, 2), "at": None}])
    assert view.online_features(flow.connection, entity_keys=keys(1), columns=["score"]) == {"score": 100}
    assert flow.select(f"SELECT last_synced_at FROM {flow.metadata_name('feature_views')}") == synced


@only("duckdb", "sqlite", "postgres", "mysql")
def test_a_view_that_gets_a_column_has_it_online_too(flows: Flows) -> None:
    old = users(online=True)
    flow = flows(table_of(old), **EVENTS)
    flow.run([user(1, 100, 1)])
    PROJECT.clear()

    @ematix.feature_view(schema="hist", feature_version="v2", event_timestamp_column="at", name="users", online=True)
    class Wider:
        user_id: Annotated[BigInt, pk()]
        place: Annotated[String[20], pk()]
        score: Numeric[10, 2] | None
        active: Boolean | None
        at: TimestampTZ
        kind: Text | None

    flow = flows(table_of(Wider), name="wider", source=table_of(old).columns, **EVENTS, on_drift="evolve")
    flow.query = f"SELECT s.*, 'x' AS kind FROM {flow.source_name} AS s"
    flow.run([user(1, 200, 5)])
    assert Wider.online_features(flow.connection, entity_keys=keys(1), columns=["score", "kind"]) == {
        "score": 200, "kind": "x"
    }  # fmt: skip
    assert [row[0] for row in registry(flow)] == ["hist.users.v1", "hist.users.v2"]


@only("postgres")
def test_postgres_has_the_documented_names(flows: Flows) -> None:
    flow = flows(table_of(users(online=True)), **EVENTS)
    flow.run([user(1, 100, 1)])
    (names,) = flow.select("SELECT array_agg(indexname::text ORDER BY 1) FROM pg_indexes WHERE schemaname = 'hist'")
    assert {"idx__users__current_keys", "uq__users__online__keys"} <= set(names[0])
    assert flow.select("SELECT matviewname::text FROM pg_matviews WHERE schemaname = 'hist'") == [("users__online",)]
    sql = "SELECT data_type::text FROM information_schema.columns WHERE table_name = 'feature_views' AND column_name = 'entity_keys'"
    assert flow.select(sql) == [("ARRAY",)]
