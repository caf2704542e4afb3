"""scd2 by event time is order-proof: any order, repetition or splitting of the same events gives the same history."""

from __future__ import annotations

import itertools
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow import BigInt, DuckDBConnection, SQLiteConnection, Text, TimestampTZ, ematix, pk
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.table import table_of
from tests.contracts.loads import Loader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base import Database


EPOCH = datetime(2025, 6, 1, tzinfo=UTC)
OPTIONS = {"mode": "scd2", "compare_columns": ["value"], "event_timestamp_column": "at"}


@ematix.table(schema="hist")
class Prices:
    key: Annotated[BigInt, pk()]
    value: Text | None
    note: Text | None
    at: TimestampTZ


TABLE = table_of(Prices)

Event = tuple[int, int, str | None, str | None]
"""Key, time, compared value, other value."""

events = st.lists(
    st.tuples(
        st.integers(1, 2), st.integers(1, 6), st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", None])
    ),
    min_size=1,
    max_size=9,
)


def row(event: Event) -> dict[str, Any]:
    key, at, value, note = event
    return {"key": key, "value": value, "note": note, "at": EPOCH + timedelta(days=at)}


def history(given_events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """The plain model: what the table must hold after all events, whatever their order."""
    versions = []
    for key in sorted({event[0] for event in given_events}):
        mine = [event for event in given_events if event[0] == key]
        winners = [max((e for e in mine if e[1] == at), key=_rank) for at in sorted({e[1] for e in mine})]
        kept = [e for before, e in itertools.pairwise([None, *winners]) if before is None or before[2] != e[2]]
        for event, following in itertools.zip_longest(kept, kept[1:]):
            ends = following[1] if following else None
            versions.append((key, event[1], ends, event[2], event[3], ends is None))
    return sorted(versions, key=lambda version: version[:2])


def _rank(event: Event) -> tuple[Any, ...]:
    """Two events at one instant: the greater values win, NULL last."""
    return tuple((value is not None, value or "") for value in event[2:])


def stored(loader: Loader) -> list[tuple[Any, ...]]:
    rows = loader.rows("key", "valid_from", "valid_to", "value", "note", "is_current")
    return sorted(((k, day(f), day(t), v, n, bool(c)) for k, f, t, v, n, c in rows), key=lambda version: version[:2])


def day(value: Any) -> int | None:
    if value is None:
        return None
    at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return (at.replace(tzinfo=UTC) - EPOCH).days if at.tzinfo is None else (at - EPOCH).days


def database(kind: str, folder: str) -> Database:
    if kind == "duckdb":
        return open_database(DuckDBConnection("target", f"{folder}/t.duckdb"))
    return open_database(SQLiteConnection("target", f"{folder}/t.sqlite"))


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_events=events, data=st.data())
def test_any_order_repetition_and_splitting_gives_one_history(kind: str, given_events: Any, data: Any) -> None:
    shuffled = data.draw(st.permutations(given_events))
    again = data.draw(st.lists(st.sampled_from(given_events), max_size=3))
    everything = [*shuffled, *again]
    cut = data.draw(st.integers(0, len(everything)))
    with tempfile.TemporaryDirectory() as folder:
        loader = Loader(database(kind, folder), TABLE, dict(OPTIONS))
        for part in (everything[:cut], everything[cut:]):
            if part:
                loader.load([row(event) for event in part])
        assert stored(loader) == history(given_events)


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_late_event_splits_a_folded_version(kind: str, tmp_path: Path) -> None:
    loader = Loader(database(kind, str(tmp_path)), TABLE, dict(OPTIONS))
    loader.load([row((1, 1, "a", "x")), row((1, 3, "a", "y"))])
    assert stored(loader) == [(1, 1, None, "a", "x", True)]
    loader.load([row((1, 2, "b", None))])
    assert stored(loader) == [(1, 1, 2, "a", "x", False), (1, 2, 3, "b", None, False), (1, 3, None, "a", "y", True)]


def test_the_model_tells_orders_apart() -> None:
    """The oracle itself is sensitive: another value in the middle is another history."""
    assert history([(1, 1, "a", None), (1, 2, "b", None), (1, 3, "a", None)]) != history([(1, 1, "a", None)])
