# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Training sets that the database joins and training sets that Spark joins are the same, and who joins is told."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ematix_flow import (
    JSONB,
    UUID,
    BigInt,
    Boolean,
    Date,
    DeltaLocalConnection,
    Double,
    DuckDBConnection,
    Integer,
    MySQLConnection,
    Numeric,
    PostgresConnection,
    SQLiteConnection,
    Text,
    TimestampTZ,
    ematix,
    pk,
)
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.engine.api.references import opened
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.features.manifest import replay
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError
from ematix_flow.pipeline import sync
from ematix_flow.plan import training_join
from tests.depth import deep, quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.feature_view import FeatureView

pytestmark = [
    pytest.mark.spark,
    pytest.mark.service,
    pytest.mark.slow,
    pytest.mark.xdist_group("lakes"),
    pytest.mark.usefixtures("spark", "quick_lakes"),
]

START = datetime(2026, 1, 1, tzinfo=UTC)
NUMBER = iter(range(1_000_000))


@pytest.fixture(autouse=True)
def _own_project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(ENGINE_VARIABLE, "local")  # who loads; who joins is said by engine=
    PROJECT.clear()
    yield
    PROJECT.clear()


def day(number: float) -> datetime:
    return START + timedelta(days=number)


@pytest.fixture(params=["postgres", deep("duckdb"), deep("sqlite"), deep("mysql")])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Connection:
    match request.param:
        case "postgres":
            return PostgresConnection(name="shop", url=request.getfixturevalue("postgres_url"))
        case "mysql":
            return MySQLConnection(name="shop", url=request.getfixturevalue("mysql_url"))
        case "duckdb":
            return DuckDBConnection(name="shop", path=str(tmp_path / "shop.duckdb"))
        case _:
            return SQLiteConnection(name="shop", path=str(tmp_path / "shop.db"))


def scores(number: int, column: str = "score") -> type[FeatureView]:
    @ematix.feature_view(
        schema="features", feature_version="v1", event_timestamp_column="ts", name=f"scores_{column}_{number}"
    )
    class Scores:
        user_id: Annotated[BigInt, pk()]
        score: Integer | None
        ts: TimestampTZ

    return Scores


def prices(number: int) -> type[FeatureView]:
    @ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="ts", name=f"prices_{number}")
    class Prices:
        item: Annotated[Text, pk()]
        user_id: Annotated[BigInt, pk()]
        price: Numeric[10, 2]
        ts: TimestampTZ

    return Prices


ITEMS = ("a", "A", "a ", "é'\\", "")
EVENT = st.tuples(st.integers(0, 3), st.sampled_from(ITEMS), st.none() | st.integers(0, 2), st.integers(0, 12))
LOADS = st.lists(st.lists(EVENT, min_size=1, max_size=12), min_size=1, max_size=3)
ROW = st.tuples(st.none() | st.integers(0, 4), st.none() | st.sampled_from(ITEMS), st.integers(-2, 26))
SPINE = st.lists(ROW, min_size=1, max_size=60)


def test_the_database_and_spark_join_the_same_set(target: Connection) -> None:
    """Views with the same keys, views with others, events at one instant, rows without a key, and a ttl that has ended."""

    @settings(
        max_examples=quick_or_deep(2, 15),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        phases=[Phase.generate],  # to make an example smaller takes as many joins as to find it
    )
    @given(first=LOADS, second=LOADS, spine=SPINE)
    def check(first: list[list[Any]], second: list[list[Any]], spine: list[Any]) -> None:
        PROJECT.clear()
        number = next(NUMBER)
        views = [scores(number), scores(number, "other"), prices(number)]
        for events in first:
            load(views[0], target, [{"user_id": k, "score": v, "ts": day(at)} for k, _, v, at in events])
            load(
                views[2], target, [{"item": i, "user_id": k, "price": v or 0, "ts": day(at)} for k, i, v, at in events]
            )
        for events in second:
            load(views[1], target, [{"user_id": k, "score": v, "ts": day(at)} for k, _, v, at in events])
        # The spine has half days, so that instants are before, at and after events.
        rows = pa.table(
            {
                "user_id": pa.array([key for key, _, _ in spine], pa.int32()),
                "item": pa.array([item for _, item, _ in spine], pa.string()),
                "as_of": pa.array([day(at / 2) for _, _, at in spine], pa.timestamp("us", tz="UTC")),
                "label": pa.array(range(len(spine))),
            }
        )
        options = {"spine": rows, "feature_views": views, "prefer": "arrow"}
        by_database = ematix.training_set(target, **options, engine="database")
        by_spark = ematix.training_set(target, **options, engine="spark")
        assert by_spark.schema == by_database.schema
        assert by_spark.to_pylist() == by_database.to_pylist()

    check()


def load(view: type[FeatureView], target: Connection, rows: list[dict[str, Any]]) -> None:
    sync(target=view, source=rows, target_connection=target, mode="scd2")


@ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="ts", name="everything")
class Everything:
    key: Annotated[UUID, pk()]
    day: Annotated[Date, pk()]
    flag: Boolean | None
    amount: Numeric[20, 6] | None
    ratio: Double | None
    text: Text | None
    note: JSONB | None
    seen: TimestampTZ | None
    ts: TimestampTZ


FULL = {
    "flag": True,
    "amount": Decimal("-12345678901234.000001"),
    "ratio": 0.1,
    "text": "é\u0000'\\ \n".replace("\u0000", ""),
    "note": {"b": [1, 2.5, None], "a": "é", "n": 10**17},
    "seen": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
}
KEY = "6F9619FF-8B86-D011-B42D-00C04FC964FF"


@pytest.fixture
def everything(target: Connection) -> Connection:
    """Return a target with a view of every type."""
    rows = [{"key": KEY, "day": day(0).date(), **FULL, "ts": day(1)}]
    rows += [{"key": KEY, "day": day(0).date(), **dict.fromkeys(FULL), "ts": day(3)}]
    sync(target=Everything, source=rows, target_connection=target, mode="scd2")
    return target


def test_values_of_every_type_are_the_same(everything: Connection) -> None:
    spine = [{"key": KEY, "day": day(0).date(), "as_of": day(at), "nested": [at]} for at in (3, 0, 1, 2)]
    options = {"spine": spine, "feature_views": [Everything], "prefer": "arrow"}
    by_database = ematix.training_set(everything, **options, engine="database")
    by_spark = ematix.training_set(everything, **options, engine="spark")
    assert by_spark.schema == by_database.schema
    assert by_spark.to_pylist() == by_database.to_pylist()
    assert by_spark.column("text").to_pylist() == [None, None, FULL["text"], FULL["text"]]
    assert json.loads(by_spark.column("note")[2].as_py()) == FULL["note"]


@pytest.mark.deep
def test_a_frame_of_spark_stays_one_and_rows_without_an_instant_are_refused(everything: Connection) -> None:
    spark = session_for(Options())()
    rows = [(KEY, day(0).date(), day(at), at) for at in (0, 1, 3)]
    spine = spark.createDataFrame(rows, "key STRING, day DATE, as_of TIMESTAMP, `a.b` INT")
    frame = ematix.training_set(everything, spine=spine, feature_views=[Everything], columns=["ratio"], prefer="spark")
    assert frame.columns == ["a.b", "day", "key", "as_of", "ratio"]
    assert sorted((row["a.b"], row["ratio"]) for row in frame.collect()) == [(0, None), (1, 0.1), (3, None)]
    local = ematix.training_set(everything, spine=spine, feature_views=[Everything], columns=["ratio"])
    assert local["ratio"].to_list() == [None, 0.1, None]
    assert local.columns == frame.columns
    without = spark.createDataFrame([(KEY, day(0).date(), None)], "key STRING, day DATE, as_of TIMESTAMP")
    with pytest.raises(FlowError, match="has no instant in as_of"):
        ematix.training_set(everything, spine=without, feature_views=[Everything])
    text = spine.selectExpr("key", "day", "CAST(as_of AS STRING) AS as_of")
    with pytest.raises(DeclareTypeError, match="is string, and not a timestamp"):
        ematix.training_set(everything, spine=text, feature_views=[Everything])
    with pytest.raises(DeclareError, match="the spine lacks 'day'"):
        ematix.training_set(everything, spine=spine.drop("day"), feature_views=[Everything])


SPINE_OF_ONE = [{"user_id": 1, "as_of": day(2)}]


def test_who_joins_is_chosen_by_size_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, view = DuckDBConnection(name="shop", path=str(tmp_path / "shop.duckdb")), scores(0)
    load(view, shop, [{"user_id": 1, "score": 3, "ts": day(1)}])

    def refusal(spine: Any, connection: Any = shop, **more: Any) -> str:
        return str(ematix.preview_training_set(connection, spine=spine, feature_views=[view], **more))

    assert refusal(SPINE_OF_ONE) == 'join by the database: the settings say engine = "local"'
    monkeypatch.delenv(ENGINE_VARIABLE)
    few = "1 row of the spine x 1 view, about 1 version: too few for Spark"
    assert refusal(SPINE_OF_ONE) == f"join by the database: {few}"
    assert refusal(SPINE_OF_ONE, engine="spark") == "join by Spark: engine= says so"
    monkeypatch.setattr(training_join, "WORTH_SPARK", 1)
    assert refusal(SPINE_OF_ONE).startswith("join by Spark: 1 row of the spine x 1 view, about 1 version: as many that")
    manifest = tmp_path / "set.json"
    frame = ematix.training_set(shop, spine=SPINE_OF_ONE, feature_views=[view], manifest=manifest)
    assert frame["score"].to_list() == [3]
    assert json.loads(manifest.read_text(encoding="utf-8"))["join"]["engine"] == "spark"
    monkeypatch.setattr(training_join, "WORTH_SPARK", 2)
    # The set is the same, whoever joins it.
    assert replay(manifest, shop)["same"] is True
    with closing(opened(shop)) as conn:
        assert refusal(SPINE_OF_ONE, conn) == "join by the database: DuckDB has its file open in this process"
        with pytest.raises(DeclareError, match="engine='spark' cannot join this training set: DuckDB has its file"):
            refusal(SPINE_OF_ONE, conn, engine="spark")
    with pytest.raises(DeclareError, match="engine='duckdb' is not known"):
        refusal(SPINE_OF_ONE, engine="duckdb")


@pytest.mark.deep
def test_a_lake_is_joined_by_spark(tmp_path: Path) -> None:
    lake, view = DeltaLocalConnection(name="lake", path=str(tmp_path / "lake")), scores(1)
    load(view, lake, [{"user_id": 1, "score": score, "ts": day(at)} for score, at in ((1, 1), (2, 3))])
    spine = [{"user_id": key, "as_of": day(at)} for key, at in ((1, 0.9), (1, 1), (1, 4), (2, 4))]
    frame = ematix.training_set(lake, spine=spine, feature_views=[view], prefer="arrow")
    assert frame.column("score").to_pylist() == [None, 1, 2, None]
    assert [row["score"] for row in view.historical_features(lake, spine=spine)] == [None, 1, 2, None]
    with pytest.raises(DeclareError, match="the versions are in a lake, which Spark reads"):
        ematix.training_set(lake, spine=spine, feature_views=[view], engine="database")


def test_estimates_come_from_the_database(target: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    view = scores(2)
    load(view, target, [{"user_id": key, "score": 1, "ts": day(1)} for key in range(3000)])
    monkeypatch.delenv(ENGINE_VARIABLE)
    plan = ematix.preview_training_set(target, spine=SPINE_OF_ONE, feature_views=[view])
    (versions,) = plan.size.versions.values()
    assert 1000 <= versions <= 9000
