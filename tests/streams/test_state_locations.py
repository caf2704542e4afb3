"""A state is found by where its target is: not lost by another spelling of a connection, nor taken by another target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.sinks import stateful as sink
from ematix_flow.engine.stream.state import folder
from ematix_flow.engine.stream.state.redeploy import redeploy_stream
from ematix_flow.errors import StreamLostError
from ematix_flow.serve.cli.main import main
from tests.depth import STATE_CHANGES
from tests.streams.feeds import at, drain, rows_in
from tests.streams.test_windows import COUNT, CREATED, TOTAL, events, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow import Aggregation
    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STATE_CHANGES),
    pytest.mark.usefixtures("spark", "stateful"),
]


def stream_into(
    topic: Topic, path: str, name: str = "warehouse", aggregations: tuple[Aggregation, ...] = COUNT, **more: Any
) -> Stream:
    """Declare windows by user that go into a DuckDB file, over a connection of some name."""
    connection = connection_from_fields(name, {"kind": "duckdb", "path": path, **more})
    return topic.stream(connection, window=tumbling(aggregations=aggregations), **CREATED)


def counted(path: Path) -> list[int]:
    """Return how many events each window has."""
    return [n for (n,) in rows_in(path, "SELECT n FROM shop.w ORDER BY window_start")]


def test_a_stream_goes_on_over_a_connection_that_is_written_otherwise(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", str(warehouse))
    topic.write(events((1, "a", 1), (12, "a", 1)), partition=0)
    drain(stream_into(topic, str(warehouse)))
    topic.write(events((13, "a", 1), (21, "a", 1)), partition=0)
    drain(stream_into(topic, "${SHOP}", "shop", timezone="UTC"))
    assert counted(warehouse) == [1, 2]


@pytest.mark.deep
def test_a_stream_whose_target_was_moved_goes_on_where_it_was(topic: Topic, warehouse: Path, tmp_path: Path) -> None:
    topic.write(events((1, "a", 1), (12, "a", 1)), partition=0)
    drain(stream_into(topic, str(warehouse)))
    topic.write(events((13, "a", 1), (21, "a", 1)), partition=0)
    moved = warehouse.rename(tmp_path / "moved.duckdb")
    with pytest.raises(StreamLostError, match="is gone") as refused:
        drain(stream_into(topic, str(moved)))
    assert "if the target was moved, move it back" in str(refused.value.hint)
    moved.rename(warehouse)
    drain(stream_into(topic, str(warehouse)))
    assert counted(warehouse) == [1, 2]


@pytest.mark.deep
def test_one_declaration_in_two_places_has_two_states(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, paths = stream_into(topic, "${SHOP}"), [tmp_path / "test.duckdb", tmp_path / "live.duckdb"]
    topic.write(events((1, "a", 1), (12, "a", 1)), partition=0)
    for path in paths:
        monkeypatch.setenv("SHOP", str(path))
        drain(stream)
    # What one of them forgets, the other one still knows.
    move_stream(stream, "earliest", StreamOptions())
    topic.write(events((13, "a", 1), (21, "a", 1)), partition=0)
    monkeypatch.setenv("SHOP", str(paths[0]))
    drain(stream)
    assert counted(paths[0]) == [1, 2]


@pytest.mark.deep
def test_a_state_of_an_earlier_version_is_gone_on_with_redeployed_and_forgotten(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic.write(events((1, "a", 1), (12, "a", 1)), partition=0)
    with monkeypatch.context() as earlier:
        earlier.setattr(folder, "_location", repr)
        earlier.setattr(sink, "naming", lambda _: {})
        drain(stream_into(topic, str(warehouse)))
    topic.write(events((13, "a", 1), (21, "a", 1)), partition=0)
    drain(stream_into(topic, str(warehouse)))
    assert counted(warehouse) == [1, 2]
    again = stream_into(topic, str(warehouse), aggregations=TOTAL)
    (done,) = redeploy_stream(again, StreamOptions())
    assert done.done
    topic.write(events((31, "a", 1)), partition=0)
    drain(again)
    assert counted(warehouse) == [1, 2, 1]
    move_stream(again, "earliest", StreamOptions())
    assert list((tmp_path / "checkpoints").iterdir()) == []


@pytest.mark.deep
def test_a_stream_of_a_file_is_backfilled_by_its_file(
    topic: Topic, warehouse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.toml"
    window = """
            create_table = true
            primary_key = ["window_start", "user"]
            mode = "merge"
            [transform.window]
            kind = "tumbling"
            duration_ms = 10000
            event_time_column = "at"
            group_by = ["user"]
            max_groups_per_window = 10
            aggregations = [{ agg = "count", as = "n" }]
    """
    file.write_text(topic.toml("by file", warehouse, "w", window))
    topic.write(events((1, "a", 1), (12, "a", 1)), partition=0)
    assert main(["consume", str(file), "--once"]) == 0
    topic.write(events((2, "a", 1)), partition=0)
    assert main(["consume", str(file), "--once"]) == 0
    assert counted(warehouse) == [1]
    assert main(["backfill", str(file), "--from", at(0), "--to", at(10)]) == 0
    assert "shop.w" in capsys.readouterr().out
    assert counted(warehouse) == [2]
