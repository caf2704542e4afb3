# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Windows of a stream as a feature view: what is served online is what a model is trained on, instant by instant."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import CDC, Aggregation, BigInt, Double, StateStore, Text, TimestampTZ, Window, ematix, pk
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.features.registry import loaded_views
from ematix_flow.errors import BadRowsError
from tests.depth import STREAM_STATE, deep
from tests.streams.feeds import BEGIN, Topic, at, drain, duckdb_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.feature_view import FeatureView

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]


@pytest.fixture(autouse=True)
def _own_project() -> Iterator[None]:
    PROJECT.clear()
    yield
    PROJECT.clear()


def activity(**options: Any) -> type[FeatureView]:
    given = {"name": "activity", "event_timestamp_column": "window_end", "online": True, **options}

    @ematix.feature_view(schema="features", feature_version="v1", **given)
    class Activity:
        user: Annotated[Text, pk()]
        n: BigInt
        total: Double
        window_end: TimestampTZ

    return Activity


def by_user(**more: Any) -> Window:
    """Return windows of ten seconds by user."""
    aggregations = (Aggregation(agg="count", as_="n"), Aggregation(agg="sum", column="amount", as_="total"))
    given = {"kind": "tumbling", "duration_ms": 10_000, "event_time_column": "at", "group_by": ("user",)}
    return Window(**{"aggregations": aggregations, **given, **more})


def events(*given: tuple[float, str, float]) -> list[dict[str, Any]]:
    """Return messages of (seconds, user, amount)."""
    return [{"at": at(seconds), "user": user, "amount": amount} for seconds, user, amount in given]


def second(number: float) -> Any:
    return BEGIN + timedelta(seconds=number)


@pytest.fixture(params=["postgres", deep("duckdb")])
def target(request: pytest.FixtureRequest, warehouse: Path) -> Connection:
    if request.param == "duckdb":
        return duckdb_at(warehouse)
    return connection_from_fields("warehouse", {"kind": "postgres", "url": request.getfixturevalue("postgres_url")})


BATCHES = (
    events((1, "a", 5.0), (3, "b", 1.0), (2, "a", 7.0), (12, "a", 1.0)),
    events((15, "a", 2.0), (21, "b", 3.0)),
    events((33, "c", 4.0), (57, "a", 4.0)),
)
CLOSED = (10, 20, 50)
"""The end of the newest window that is given out after each batch."""

KNOWN = {
    "a": [(10, 2, 12.0), (20, 2, 3.0)],
    "b": [(10, 1, 1.0), (30, 1, 3.0)],
    "c": [(40, 1, 4.0)],
}
"""From which second on which values of a user were known."""


def known(user: str, instant: float) -> dict[str, Any] | None:
    past = [{"n": n, "total": total} for since, n, total in KNOWN[user] if since <= instant]
    return past[-1] if past else None


def compared(view: type[FeatureView], target: Connection, stream: Stream, write: Callable[[int], None]) -> None:
    """See after every batch that the online value is that of a training set with the instant up to which windows are closed."""
    served: dict[tuple[str, float], Any] = {}
    for number, end in enumerate(CLOSED):
        write(number)
        drain(stream)
        for user in KNOWN:
            served[user, end] = view.online_features(target, entity_keys={"user": user}, columns=["n", "total"])
            assert served[user, end] == known(user, end)
    spine = [{"user": user, "as_of": second(end), "label": end} for user, end in served]
    frame = ematix.training_set(target, spine=spine, feature_views=[view], columns=["n", "total"], prefer="arrow")
    nothing = {"n": None, "total": None}
    assert frame.select(["n", "total"]).to_pylist() == [values or nothing for values in served.values()]
    instants = [(user, instant / 2) for user in KNOWN for instant in range(0, 120, 5)]
    rows = view.historical_features(target, spine=[{"user": u, "as_of": second(m)} for u, m in instants])
    assert [{"n": row["n"], "total": row["total"]} for row in rows] == [known(*one) or nothing for one in instants]


def test_what_was_served_online_is_what_a_training_set_has_for_the_same_instant(
    topic: Topic, target: Connection
) -> None:
    view = activity()
    stream = topic.stream(target, target_table=view, window=by_user())
    compared(view, target, stream, lambda number: topic.write(BATCHES[number]))


@pytest.mark.deep
def test_files_feed_a_view_too(tmp_path: Path, warehouse: Path) -> None:
    (tmp_path / "in").mkdir()

    def write(number: int) -> None:
        lines = "".join(json.dumps(event) + "\n" for event in BATCHES[number])
        (tmp_path / "in" / f"{number}.jsonl").write_text(lines, encoding="utf-8")

    target, view = duckdb_at(warehouse), activity()
    folder = connection_from_fields("feed", {"kind": "object_store_local", "path": str(tmp_path), "format": "jsonl"})
    given = {"name": "activity", "source": folder, "source_query": "in", "target": target, "target_table": view}
    compared(view, target, stream_from_keywords({**given, "window": by_user()}, None), write)


@pytest.mark.deep
def test_a_batch_that_fails_leaves_versions_and_online_store_and_the_stream_is_known_to_load_them(
    topic: Topic, target: Connection
) -> None:
    view = activity()
    stream = topic.stream(target, target_table=view, window=by_user())
    PROJECT.add_stream(stream)
    topic.write(BATCHES[0])
    drain(stream)
    (loaded,) = loaded_views("activity")
    assert (loaded.state, loaded.pipelines, loaded.connection) == ("ok", (stream.name,), "warehouse")
    topic.write([*events((13, "a", 9.0)), {"at": at(14), "user": None, "amount": 1.0}, *events((25, "a", 1.0))])
    with pytest.raises(BadRowsError):
        drain(stream)
    row = view.point_in_time(target, entity_keys={"user": "a"}, as_of=second(99), columns=["n", "total"])
    online = view.online_features(target, entity_keys={"user": "a"}, columns=["n", "total"])
    assert row == online == {"n": 2, "total": 12.0}


@pytest.mark.deep
def test_windows_that_hop_and_sessions_are_values_from_their_end_on(topic: Topic, warehouse: Path) -> None:
    view, target = activity(), duckdb_at(warehouse)
    topic.write(events((1, "a", 5.0), (12, "a", 1.0), (99, "b", 1.0)), partition=0)
    drain(topic.stream(target, target_table=view, window=by_user(kind="hopping", duration_ms=20_000, hop_ms=10_000)))
    spine = [{"user": "a", "as_of": second(instant)} for instant in (9.9, 10, 20, 30, 60)]
    assert [row["n"] for row in view.historical_features(target, spine=spine)] == [None, 1, 2, 1, 1]
    PROJECT.clear()
    visits = activity(name="visits", online=False)
    session = {"kind": "session", "duration_ms": 0, "gap_ms": 15_000, "max_session_duration_ms": 60_000}
    store = StateStore(kind="postgres", url="postgres://nowhere/state")
    given = {"name": "visits", "target_table": visits, "window": by_user(**session), "state_store": store}
    drain(topic.stream(target, **given))
    spine = [{"user": "a", "as_of": second(instant)} for instant in (20, 26.9, 27, 60)]
    assert [row["n"] for row in visits.historical_features(target, spine=spine)] == [None, None, 2, 2]


def test_changes_of_a_database_are_versions_by_the_time_of_the_change(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @ematix.feature_view(schema="features", feature_version="v1", online=True)
    class Plans:
        user: Annotated[Text, pk()]
        plan: Text

    def change(op: str, seconds: int, plan: str | None) -> dict[str, Any]:
        row, instant = {"user": "a", "plan": plan}, round(second(seconds).timestamp() * 1000)
        source = {"ts_ms": instant, "lsn": seconds}
        return {"op": op, "before": row, "after": None if op == "d" else row, "source": source, "ts_ms": instant}

    monkeypatch.setenv(ENGINE_VARIABLE, "local")
    target = duckdb_at(warehouse)
    topic.write([change("c", 1, "free"), change("u", 5, "paid"), change("d", 9, None)], partition=0)
    drain(topic.stream(target, target_table=Plans, cdc=CDC()))
    spine = [{"user": "a", "as_of": second(instant)} for instant in (0, 1, 4, 5, 9)]
    assert [row["plan"] for row in Plans.historical_features(target, spine=spine)] == [
        None,
        "free",
        "free",
        "paid",
        None,
    ]
    assert Plans.online_features(target, entity_keys={"user": "a"}) is None
