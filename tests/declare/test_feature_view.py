# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Declarations of feature views: what they register, what pipelines on them take over, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import CDC, Aggregation, BigInt, KafkaConnection, Text, TimestampTZ, Window, ematix, pk
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.errors import DeclareError, DeclareTypeError
from ematix_flow.feature_view import FeatureView

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _own_project() -> Iterator[None]:
    PROJECT.clear()
    yield
    PROJECT.clear()


def users(**options: Any) -> type[FeatureView]:
    @ematix.feature_view(**{"schema": "features", "feature_version": "v1", **options})
    class UserFeatures:
        user_id: Annotated[BigInt, pk()]
        score: BigInt
        ts: TimestampTZ

    return UserFeatures


def test_a_view_is_registered_and_its_pipelines_take_over_mode_event_column_and_ttl() -> None:
    view = users(event_timestamp_column="ts", ttl=3600, freshness_sla=timedelta(days=1), online=True, owner="risk")
    assert issubclass(view, FeatureView)
    assert PROJECT.feature_view("features.user_features.v1") is table_of(view)

    @ematix.pipeline(target=view)
    def loads(conn: Any) -> str:
        return "SELECT 1"

    written = loads.pipeline.targets[0].write
    assert (written.mode, written.event_timestamp_column, written.ttl) == ("scd2", "ts", timedelta(hours=1))

    @ematix.pipeline(target=view, ttl=timedelta(days=9))
    def other(conn: Any) -> str:
        return "SELECT 1"

    assert other.pipeline.targets[0].write.ttl == timedelta(days=9)
    with pytest.raises(DeclareError, match="stores versions"):
        ematix.pipeline(target=view, mode="append", name="appends")(loads.pipeline.function)


def test_a_stream_into_a_view_takes_them_over_too() -> None:
    view = users(event_timestamp_column="ts", ttl=3600)

    @ematix.streaming_pipeline(
        source=KafkaConnection(name="kafka", bootstrap_servers="127.0.0.1:9092"),
        source_topic="scores",
        target=view,
        target_connection="shop",
    )
    def scores() -> None: ...

    written = PROJECT.stream("scores").targets[0].write
    assert (written.mode, written.event_timestamp_column, written.ttl) == ("scd2", "ts", timedelta(hours=1))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"event_timestamp_column": "tz"}, DeclareError, "is not a column"),
        ({"event_timestamp_column": "score"}, DeclareError, "holds no instants"),
        ({"event_timestamp_column": "user_id"}, DeclareError, "holds no instants"),
        ({"feature_version": ""}, DeclareError, "cannot be a version"),
        ({"feature_version": "1.0"}, DeclareError, "cannot be a version"),
        ({"ttl": 0}, DeclareError, "longer than zero"),
        ({"freshness_sla": "soon"}, DeclareError, "is not a duration"),
        ({"online": True, "name": "n" * 50}, DeclareError, "too long"),
    ],
)
def test_what_no_view_can_be_is_refused(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        users(**options)
    assert "test_feature_view.py" in str(caught.value)


def test_a_view_needs_a_key_and_a_feature() -> None:
    with pytest.raises(TypeError, match="no entity key"):

        @ematix.feature_view(schema="features", feature_version="v1")
        class Keyless:
            score: BigInt

    with pytest.raises(TypeError, match="no feature"):

        @ematix.feature_view(schema="features", feature_version="v1")
        class Bare:
            name: Annotated[Text, pk()]

    with pytest.raises(DeclareTypeError, match="derives from FeatureView"):

        class Derived(FeatureView):
            name: Annotated[Text, pk()]


def test_versions_stand_side_by_side_in_tables_of_their_own() -> None:
    users()
    with pytest.raises(DeclareError, match="declared already"):
        users()
    with pytest.raises(DeclareError, match="would share one table"):
        users(feature_version="v2")
    users(feature_version="v2", name="user_features_v2")
    assert list(PROJECT.feature_views) == ["features.user_features.v1", "features.user_features_v2.v2"]


def of_windows(view: type[FeatureView], **more: Any) -> None:
    """Declare a stream of windows into a view."""
    window = Window(
        **{
            "kind": "tumbling",
            "duration_ms": 1000,
            "event_time_column": "at",
            "group_by": ("user_id",),
            "window_end_column": "ts",
            "aggregations": [Aggregation(agg="count", as_="score")],
            **more,
        }
    )
    kafka = KafkaConnection(name="kafka", bootstrap_servers="127.0.0.1:9092")
    ematix.streaming_pipeline(
        name="scores", source=kafka, source_query="scores", target=view, target_connection="shop", window=window
    )(lambda: None)


def test_windows_are_values_of_a_view_from_their_end_on() -> None:
    of_windows(users(event_timestamp_column="ts"))
    written = PROJECT.stream("scores").targets[0].write
    assert (written.mode, written.event_timestamp_column) == ("scd2", "ts")


@pytest.mark.parametrize(
    ("event", "window", "match"),
    [
        ("ts", {"window_start_column": "ts", "window_end_column": "e"}, "takes 'ts' .* known at its end, 'e'"),
        (None, {}, "has no event_timestamp_column, and a window is known at its end, 'ts'"),
        ("ts", {"group_by": ()}, "grouped by nothing, and the entity keys .* are user_id"),
        ("ts", {"group_by": ("user_id", "page")}, "grouped by user_id, page"),
        ("ts", {"aggregations": [Aggregation(agg="count", as_="n")]}, "a column 'score', which the window does not"),
        (
            "ts",
            {"aggregations": [Aggregation(agg="count", as_=name) for name in ("score", "n")]},
            "gives 'n', which feature view features.user_features does not have",
        ),
        ("ts", {"late_data": "reopen", "allowed_lateness_ms": 5}, "gives a window out again at the same end"),
    ],
)
def test_windows_that_a_view_cannot_hold_are_refused(event: str | None, window: dict[str, Any], match: str) -> None:
    view = users(event_timestamp_column=event)
    with pytest.raises(DeclareError, match=match) as caught:
        of_windows(view, **window)
    assert "test_feature_view.py" in str(caught.value)


def test_changes_of_a_database_are_versions_of_a_view_by_the_time_of_the_change() -> None:
    kafka = KafkaConnection(name="kafka", bootstrap_servers="127.0.0.1:9092")
    given = {"source": kafka, "source_query": "users", "target_connection": "shop", "cdc": CDC()}
    ematix.streaming_pipeline(name="changes", target=users(), **given)(lambda: None)
    assert PROJECT.stream("changes").targets[0].write.mode == "scd2"
    PROJECT.clear()
    with pytest.raises(DeclareError, match="the time of a change is that of its event"):
        ematix.streaming_pipeline(name="changes", target=users(event_timestamp_column="ts"), **given)(lambda: None)
