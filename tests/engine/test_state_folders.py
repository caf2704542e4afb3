"""The folder of a state: one for each place that a target can be at, however its connection is called and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow import Aggregation, Window
from ematix_flow.commit.stream_offsets import STATE
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.state.folder import DEPLOYMENT, first_folder, naming, state_folder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ematix_flow.declare.stream.stream import Stream


def windows_into(name: str = "shop", kind: str = "duckdb", **settings: Any) -> Stream:
    """Declare windows that go into a table of a database."""
    return stream_from_keywords(
        {
            "name": "clicks",
            "source": connection_from_fields("events", {"kind": "kafka", "bootstrap_servers": "nowhere:1"}),
            "source_query": "clicks",
            "target": connection_from_fields(name, {"kind": kind, **settings}),
            "target_table": ("shop", "w"),
            "window": Window(kind="tumbling", duration_ms=1, aggregations=(Aggregation(agg="count", as_="n"),)),
        },
        None,
    )


def folder(stream: Stream) -> str:
    """Return where a new state is."""
    return state_folder(stream, stream.targets[0], stream.name)


def test_the_same_target_has_the_same_state_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", str(tmp_path / "shop.duckdb"))
    monkeypatch.chdir(tmp_path)
    same = [
        windows_into(path=str(tmp_path / "shop.duckdb")),
        windows_into(path="shop.duckdb"),
        windows_into(path="${SHOP}", timezone="UTC"),
        windows_into("another name", path="${SHOP}"),
    ]
    assert len(set(map(folder, same))) == 1


def test_a_login_and_options_of_a_url_do_not_say_which_target_it_is() -> None:
    urls = ("postgresql://ann:one@host/shop", "postgresql://bob:two@host/shop?connect_timeout=3")
    one, same = (folder(windows_into(kind="postgres", url=url)) for url in urls)
    assert one == same
    others = ("postgresql://ann:one@host/other", "postgresql://ann:one@elsewhere/shop", "postgresql://host?dbname=shop")
    assert len({one, *(folder(windows_into(kind="postgres", url=url)) for url in others)}) == 4


def test_two_targets_that_are_written_alike_do_not_share_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = set()
    for name in ("test", "live"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("SHOP", f"{name}.duckdb")
        folders |= {folder(windows_into(path="${SHOP}")), folder(windows_into(path="shop.duckdb"))}
    assert len(folders) == 4


def test_a_state_of_an_earlier_version_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CHECKPOINT_ROOT", "/checkpoints")
    monkeypatch.setenv("SHOP", "/a.duckdb")
    stream = windows_into(path="${SHOP}")
    target, known = stream.targets[0], {"id": "a", "batch": 1, "range": "1"}
    before = "/checkpoints/clicks-shop.w-1eaf484e5caf"
    assert state_folder(stream, target, "clicks", {STATE: known}) == before
    redeployed = {STATE: known | {DEPLOYMENT: "b"}}
    assert state_folder(stream, target, "clicks", redeployed) == f"{before}/deployments/b"
    assert first_folder(stream, target, "clicks", redeployed) == before
    assert naming(redeployed[STATE]) == {DEPLOYMENT: "b"}
    # A new one is known by its position from the first batch on.
    assert state_folder(stream, target, "clicks", {STATE: known | naming(None)}) == folder(stream) != before
