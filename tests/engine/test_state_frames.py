"""Which frame shows what a stream remembers: that of what follows deduplication, where both are declared."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import LongType, StructType

from ematix_flow import Aggregation, Dedupe, KafkaConnection, SQLiteConnection, Window
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.state import contents
from ematix_flow.engine.stream.state.manifest import Manifest
from ematix_flow.run.streams import remembered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.declare.stream.stream import Stream

COUNT = Window("tumbling", (Aggregation("count", "n"),), duration_ms=1000)


def declare(**more: Any) -> Stream:
    """Declare a stream with state."""
    given = {"source": KafkaConnection("kafka", "localhost:9092"), "source_query": "events"}
    target = {"target": SQLiteConnection("there", "there.db"), "target_table": ("main", "w")}
    return stream_from_keywords({"name": "s", **given, **target, **more}, None)


@pytest.mark.parametrize(("more", "shown"), [({"window": COUNT}, "window"), ({}, "keys")])
def test_a_window_is_shown_also_behind_deduplication(
    more: dict[str, Any], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "window_frame", lambda *_: "window")
    monkeypatch.setattr(remembered, "key_frame", lambda *_: "keys")
    manifest = Manifest(
        {}, {}, {}, None, {"": StructType().add("n", LongType()).json()}, rejects=False, files={}, definition={}
    )
    stored: Any = None
    frame: Any = contents._frame(declare(deduplicate=Dedupe("id", 5), **more), stored, manifest, None)
    assert frame == shown


@pytest.mark.usefixtures("zone_of_tokyo")
def test_instants_that_are_remembered_are_shown_in_utc() -> None:
    local, ours = datetime(2026, 3, 1, 9), {name: 0 for name in remembered._OURS if name != remembered._ROW}  # noqa: DTZ001
    row = Row(newest=local, oldest=None, plain=local, **ours)
    shown = remembered._remembered(row, ["newest", "oldest", "plain"], ["newest", "oldest"])
    assert shown.columns == {"newest": datetime(2026, 3, 1, tzinfo=UTC), "oldest": None, "plain": local}


@pytest.fixture
def zone_of_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this machine be in another zone."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()
