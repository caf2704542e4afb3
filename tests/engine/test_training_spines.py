# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Spines in every type that frames have: replayed as they were, instants never rounded up, and keys of every year."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ematix_flow import BigInt, SQLiteConnection, Timestamp, TimestampTZ, ematix, pk
from ematix_flow.engine.features.manifest import replay, table_hash
from ematix_flow.engine.features.spine import instants_of
from ematix_flow.errors import DeclareError
from ematix_flow.pipeline import sync

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.feature_view import FeatureView

AT = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture
def lite(tmp_path: Path) -> SQLiteConnection:
    return SQLiteConnection(name="lite", path=str(tmp_path / "lite.db"))


def users(lite: SQLiteConnection, *events: tuple[int, datetime]) -> type[FeatureView]:
    @ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="ts", name="users")
    class Users:
        user_id: Annotated[BigInt, pk()]
        score: BigInt
        ts: TimestampTZ

    rows = [{"user_id": 1, "score": score, "ts": at} for score, at in events]
    sync(target=Users, source=rows, target_connection=lite, mode="scd2")
    return Users


SPINES: dict[str, Any] = {
    "lists": pl.DataFrame({"user_id": [1], "as_of": [AT], "more": [[1.0, 2.0]]}),
    "seconds": pa.table({"user_id": [1], "as_of": pa.array([AT], pa.timestamp("s", "UTC"))}),
    "other seconds": pa.table({"user_id": [1], "as_of": [AT], "more": pa.array([AT], pa.timestamp("s", "UTC"))}),
    "date64": pa.table({"user_id": [1], "as_of": pa.array([AT.date()], pa.date64())}),
    "maps": pa.table({"user_id": [1], "as_of": [AT], "more": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}),
    "lists in a struct": pa.table({"user_id": [1], "as_of": [AT], "more": pa.array([{"x": [1]}])}),
    "categories": pd.DataFrame({"user_id": [1], "as_of": [AT], "more": pd.Categorical(["a"])}),
}


@pytest.mark.slow
def test_a_set_is_the_same_whatever_types_its_spine_has(lite: SQLiteConnection) -> None:
    view, replays = users(lite, (1, datetime(2026, 1, 2, tzinfo=UTC))), {}
    for name, spine in SPINES.items():
        ematix.training_set(lite, spine=spine, feature_views=[view], manifest="set.json")
        replays[name] = replay("set.json", lite)["differences"]
    assert replays == {name: [] for name in SPINES}


def test_a_manifest_gets_its_folder_and_is_refused_where_it_cannot_be(lite: SQLiteConnection, tmp_path: Path) -> None:
    view, spine = users(lite, (1, datetime(2026, 1, 2, tzinfo=UTC))), [{"user_id": 1, "as_of": AT}]
    file = tmp_path / "sets" / "may" / "set.json"
    ematix.training_set(lite, spine=spine, feature_views=[view], manifest=file)
    assert replay(file, lite)["same"] is True
    (tmp_path / "no_folder").write_text("", encoding="utf-8")
    for refused in (tmp_path / "sets", tmp_path / "no_folder" / "set.json"):
        with pytest.raises(DeclareError, match="cannot be written"):
            ematix.training_set(lite, spine=spine, feature_views=[view], manifest=refused)
    file.with_name("set.json.spine.parquet").unlink()
    with pytest.raises(DeclareError, match=r"the spine .* cannot be read"):
        replay(file, lite)


def test_hashes_of_manifests_that_were_written_before_stay_what_they_were() -> None:
    table = pa.table({"a": pa.array([[1.5]]), "b": pa.array([date(2026, 1, 2)], pa.date64())})
    assert table_hash(table) == "ed51cf0a7f21b369048aec4f550c872b144d381897e462c7b0352fe2e30a6025"


@pytest.mark.slow
def test_an_instant_before_1970_is_not_rounded_up_to_what_comes_after_it(lite: SQLiteConnection) -> None:
    view = users(lite, (7, datetime(1970, 1, 1, tzinfo=UTC)))
    before = pd.to_datetime(["1969-12-31T23:59:59.999999999", "1970-01-01T00:00:00.000000999"], utc=True)
    frame = ematix.training_set(lite, spine=pd.DataFrame({"user_id": [1, 1], "as_of": before}), feature_views=[view])
    assert frame["score"].to_list() == [None, 7]


def test_parts_of_a_microsecond_are_dropped_in_every_zone() -> None:
    numbers = [-1, -1000, -1001, 0, 999, 1000]
    for zone in (None, "UTC", "Europe/Berlin"):
        spine = pa.table({"as_of": pa.array(numbers).cast(pa.timestamp("ns", zone))})
        assert instants_of(spine).cast(pa.int64()).to_pylist() == [-1, -1, -2, 0, 0, 1]
    twice = 1761438600_000_000_001  # 02:30 of the day on which Berlin has that hour twice
    spine = pa.table({"as_of": pa.array([twice, twice + 3600 * 10**9]).cast(pa.timestamp("ns", "Europe/Berlin"))})
    assert instants_of(spine).cast(pa.int64()).to_pylist() == [1761438600_000_000, 1761442200_000_000]


@pytest.mark.slow
def test_keys_of_the_first_thousand_years_are_found(lite: SQLiteConnection) -> None:
    @ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="ts", name="eras", online=True)
    class Eras:
        instant: Annotated[TimestampTZ, pk()]
        clock: Annotated[Timestamp, pk()]
        score: BigInt
        ts: TimestampTZ

    keys = {"instant": datetime(999, 1, 1, tzinfo=UTC), "clock": datetime(33, 4, 3, 15, 0, 0, 1)}  # noqa: DTZ001
    sync(target=Eras, source=[{**keys, "score": 5, "ts": AT}], target_connection=lite, mode="scd2")
    assert Eras.point_in_time(lite, entity_keys=keys, as_of=AT, columns=["score"]) == {"score": 5}
    assert Eras.online_features(lite, entity_keys=keys, columns=["score"]) == {"score": 5}
    frame = ematix.training_set(lite, spine=[{**keys, "as_of": AT}], feature_views=[Eras], columns=["score"])
    assert frame["score"].to_list() == [5]
