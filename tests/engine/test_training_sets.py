# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Training sets against a plain model, their columns and names, what they refuse, and that nothing of the future leaks."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow import (
    BigInt,
    DeltaLocalConnection,
    DuckDBConnection,
    Integer,
    SQLiteConnection,
    Text,
    TimestampTZ,
    ematix,
    pk,
)
from ematix_flow.cli import main
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.engine import apply_plan, diff_pipeline, preview_pipeline
from ematix_flow.engine.api.references import opened
from ematix_flow.engine.features.frames import frame_of
from ematix_flow.engine.features.registry import loaded_views
from ematix_flow.errors import DeclareError, NotOnlineError, UnsupportedError
from ematix_flow.pipeline import sync
from ematix_flow.plan.sql.render import native_name
from tests.depth import quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.feature_view import FeatureView

START = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    return START + timedelta(days=number)


@pytest.fixture(autouse=True)
def _local_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(ENGINE_VARIABLE, "local")
    monkeypatch.chdir(tmp_path)
    PROJECT.clear()
    yield
    PROJECT.clear()


@pytest.fixture
def shop(tmp_path: Path) -> DuckDBConnection:
    return DuckDBConnection(name="shop", path=str(tmp_path / "shop.duckdb"))


def users(**options: Any) -> type[FeatureView]:
    @ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="ts", name="users", **options)
    class Users:
        user_id: Annotated[BigInt, pk()]
        score: Integer | None
        ts: TimestampTZ

    return Users


def items() -> type[FeatureView]:
    @ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="ts", name="items")
    class Items:
        item: Annotated[Text, pk()]
        price: Integer
        ts: TimestampTZ

    return Items


def load(view: type[FeatureView], connection: Connection, *rows: tuple[Any, Any, float]) -> None:
    key, value, _ = [column.name for column in view.__columns__]
    given_rows = [{key: entity, value: number, "ts": day(at)} for entity, number, at in rows]
    sync(target=view, source=given_rows, target_connection=connection, mode="scd2")


@pytest.mark.slow
def test_a_set_has_the_spine_in_order_then_the_instant_then_the_features(shop: DuckDBConnection) -> None:
    first, second = users(), items()
    load(first, shop, (1, 10, 1), (1, 20, 5))
    load(second, shop, ("a", 7, 2))
    spine = [{"user_id": 1, "zone": "x", "item": "a", "as_of": day(at)} for at in (0, 1, 3, 6)]
    frame = ematix.training_set(shop, spine=spine, feature_views=[first, second])
    assert frame.columns == ["item", "user_id", "zone", "as_of", "score", "users__ts", "price", "items__ts"]
    assert frame["score"].to_list() == [None, 10, 10, 20]
    assert frame["price"].to_list() == [None, None, 7, 7]
    assert frame["as_of"].to_list() == [day(at) for at in (0, 1, 3, 6)]
    chosen = {first: ["score"], "items": ["price"]}
    small = ematix.training_set(shop, spine=spine, feature_views=[first, second], columns=chosen, prefer="pandas")
    assert isinstance(small, pd.DataFrame)
    assert list(small.columns) == ["item", "user_id", "zone", "as_of", "score", "price"]


def test_whole_numbers_of_a_set_stay_whole_where_an_entity_has_none() -> None:
    table = pa.table({"n": pa.array([2**53 + 1, None]), "ok": pa.array([True, None]), "x": pa.array([0.5, None])})
    frame = frame_of(table, "pandas")
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "boolean", "float64"]
    assert frame["n"][0] == 2**53 + 1


@pytest.mark.slow
def test_a_spine_can_be_any_frame_and_an_empty_one_has_the_columns(shop: DuckDBConnection) -> None:
    view = users()
    load(view, shop, (1, 10, 1))
    rows = [{"user_id": 1, "as_of": day(2)}, {"user_id": None, "as_of": day(2)}]
    spines = [rows, pl.DataFrame(rows), pd.DataFrame(rows).astype({"user_id": "Int32"}), pa.Table.from_pylist(rows)]
    for spine in spines:
        frame = ematix.training_set(shop, spine=spine, feature_views=[view], prefer="arrow")
        assert frame.column("score").to_pylist() == [10, None]
    empty = ematix.training_set(shop, spine=[], feature_views=[view])
    assert (empty.columns, empty.shape[0]) == (["user_id", "as_of", "score", "ts"], 0)
    assert view.historical_features(shop, spine=[]) == []


@pytest.mark.slow
def test_nothing_of_the_future_can_be_requested_or_comes(shop: DuckDBConnection) -> None:
    view = users()
    load(view, shop, (1, 10, 1), (1, 999, 3))
    instant = day(3) - timedelta(microseconds=1)
    row = view.point_in_time(shop, entity_keys={"user_id": 1}, as_of=instant)
    assert row == {"user_id": 1, "score": 10, "ts": day(1)}
    for name in ("valid_to", "valid_from", "is_current", "_loaded_at"):
        with pytest.raises(DeclareError, match="declares no column"):
            view.point_in_time(shop, entity_keys={"user_id": 1}, as_of=instant, columns=[name])


@pytest.mark.slow
def test_what_cannot_be_joined_is_refused_with_the_reason(shop: DuckDBConnection) -> None:
    view = users()
    load(view, shop, (1, 10, 1))

    @ematix.table(schema="features")
    class Plain:
        id: Annotated[BigInt, pk()]

    spine = [{"user_id": 1, "as_of": day(2)}]
    with pytest.raises(ValueError, match="feature_views"):
        ematix.training_set(shop, spine=spine, feature_views=[])
    with pytest.raises(TypeError, match="FeatureView"):
        ematix.training_set(shop, spine=spine, feature_views=[Plain])
    with pytest.raises(ValueError, match="item"):
        ematix.training_set(shop, spine=spine, feature_views=[items()])
    with pytest.raises(ValueError, match="row 1 of the spine lacks 'as_of'"):
        view.historical_features(shop, spine=[*spine, {"user_id": 1}])
    with pytest.raises(ValueError, match="row 0 of the spine has no instant"):
        view.historical_features(shop, spine=[{"user_id": 1, "as_of": None}])
    with pytest.raises(ValueError, match="user_id"):
        view.point_in_time(shop, entity_keys={}, as_of=day(2))
    with pytest.raises(ValueError, match="not an entity key"):
        view.point_in_time(shop, entity_keys={"user_id": 1, "device": 2}, as_of=day(2))
    with pytest.raises(NotOnlineError):
        view.online_features(shop, entity_keys={"user_id": 1})
    assert issubclass(NotOnlineError, RuntimeError)
    with pytest.raises(ValueError, match="named 'users__ts'"):
        ematix.training_set(shop, spine=[{**spine[0], "ts": 1, "users__ts": 2}], feature_views=[view])


def test_an_online_read_makes_no_statement_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view, shop = users(online=True), SQLiteConnection(name="shop", path=str(tmp_path / "shop.db"))
    load(view, shop, (1, 10, 1))
    monkeypatch.delattr("ematix_flow.plan.sql.online.render")
    assert view.online_features(shop, entity_keys={"user_id": 1}, columns=["score"]) == {"score": 10}


def test_a_lake_refuses_an_online_view_before_a_row_moves(tmp_path: Path) -> None:
    lake = DeltaLocalConnection(name="lake", path=str(tmp_path / "lake"))
    with pytest.raises(UnsupportedError, match="delta_local has no online store"):
        load(users(online=True), lake, (1, 1, 1))
    assert not (tmp_path / "lake").exists()


EVENT = st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2)), st.integers(0, 8))
LOADS = st.lists(st.lists(EVENT, min_size=1, max_size=5), min_size=1, max_size=3)
SPINE = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 18)), min_size=1, max_size=8)
NUMBER = iter(range(1_000_000))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DuckDBConnection, SQLiteConnection])
def test_a_set_is_what_a_plain_model_says(kind: type[Connection], tmp_path: Path) -> None:
    """The last event of the entity at or before the instant counts; of several at one instant, the greatest value."""

    @settings(
        max_examples=quick_or_deep(5, 200), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(loads=LOADS, spine=SPINE)
    def check(loads: list[list[tuple[int, int | None, int]]], spine: list[tuple[int, int]]) -> None:
        PROJECT.clear()
        view = users()
        connection = kind(name="model", path=str(tmp_path / f"model{next(NUMBER)}.db"))
        for events in loads:
            load(view, connection, *events)
        # The spine has half days, so that instants are before, at and after events.
        rows = [{"user_id": key, "as_of": day(at / 2)} for key, at in spine]
        result = view.historical_features(connection, spine=rows, columns=["score"])
        assert [row["score"] for row in result] == [model(loads, key, at / 2) for key, at in spine]

    check()


def model(loads: list[list[tuple[int, int | None, int]]], key: int, at: float) -> int | None:
    known = [(when, -1 if score is None else score) for events in loads for k, score, when in events if k == key]
    past = [event for event in known if event[0] <= at]
    if not past:
        return None
    score = max(past)[1]
    return None if score < 0 else score


@pytest.mark.slow
def test_a_manifest_proves_a_set_or_says_that_the_past_has_changed(
    shop: DuckDBConnection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "views_of_manifest.py").write_text(MODULE, encoding="utf-8")
    command = ["features", "replay", "set.json", "-m", "views_of_manifest", "--format", "json"]
    assert main(["features", "list", "-m", "views_of_manifest", "--format", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["state"], listed["connection"]) == ("features.users.v1", "never", "shop")
    assert main(["features", "check", "-m", "views_of_manifest"]) == 1
    assert main(["features", "materialize", "users", "-m", "views_of_manifest"]) == 1
    assert "after its first load" in capsys.readouterr().err
    view = PROJECT.feature_view("features.users.v1")
    sync(target=view, source=[{"user_id": 1, "score": 3, "ts": day(1)}], target_connection=shop, mode="scd2")
    assert main(["features", "check", "-m", "views_of_manifest", "--format", "json"]) == 0
    spine = [{"user_id": 1, "as_of": day(2)}]
    ematix.training_set(shop, spine=spine, feature_views=[view], manifest=tmp_path / "set.json")
    capsys.readouterr()
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True
    handle = opened(shop)
    table_name = native_name(handle.database.table_name("features", "users__online"), "duckdb")
    handle.execute(f"DELETE FROM {table_name}")
    handle.close()
    assert main(["features", "materialize", "users", "-m", "views_of_manifest"]) == 0
    assert "built in shop" in capsys.readouterr().out
    handle = opened(shop)
    assert handle.fetch_scalar_int(f"SELECT COUNT(*) FROM {table_name}") == 1
    handle.close()
    sync(target=view, source=[{"user_id": 1, "score": 4, "ts": day(1.5)}], target_connection=shop, mode="scd2")
    capsys.readouterr()
    assert main(command) == 1
    assert "have changed the past" in json.loads(capsys.readouterr().out)["differences"][0]
    assert main(["features", "show", "no_such", "-m", "views_of_manifest"]) == 2


@pytest.mark.slow
def test_a_plan_that_is_applied_registers_the_view_and_fills_the_online_store(shop: DuckDBConnection) -> None:
    view = users(online=True)
    handle = opened(shop)
    for statement in (
        "CREATE SCHEMA raw",
        "CREATE TABLE raw.users AS SELECT 1 AS user_id, 5 AS score, TIMESTAMPTZ '2026-01-02 00:00:00Z' AS ts",
    ):
        handle.execute(statement)
    handle.close()

    @ematix.pipeline(target=view, target_connection=shop)
    def load_users(conn: Any) -> str:
        del conn
        return "SELECT * FROM raw.users"

    assert any("registers the load of feature view features.users.v1 and brings" in note for note in notes(load_users))
    plan_id = diff_pipeline(load_users.pipeline).plan_id
    assert registered_at(view) is None
    apply_plan(plan_id)
    assert registered_at(view) is not None
    assert view.online_features(shop, entity_keys={"user_id": 1}, columns=["score"]) == {"score": 5}


def notes(pipeline: Any) -> tuple[str, ...]:
    (target,) = preview_pipeline(pipeline.pipeline).targets
    assert target.plan is not None
    return target.plan.notes


def registered_at(view: type[FeatureView]) -> datetime | None:
    (loaded,) = loaded_views(view.__table__.qualified_name)
    return loaded.last_synced_at


MODULE = """
from typing import Annotated
from ematix_flow import BigInt, DeltaLocalConnection, DuckDBConnection, Integer, TimestampTZ, ematix, pk, register_connection

register_connection(DuckDBConnection(name="shop", path="shop.duckdb"))

@ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="ts", name="users",
                     online=True, freshness_sla="1h")
class Users:
    user_id: Annotated[BigInt, pk()]
    score: Integer | None
    ts: TimestampTZ

@ematix.pipeline(target=Users, target_connection="shop")
def load_users(conn):
    return "SELECT user_id, score, ts FROM raw.users"
"""
