"""`flow cdc status` where a database does not answer: its streams are unknown, with the reason, and all others are shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from ematix_flow.connect.change_log.lag import LagLimits
from ematix_flow.declare.connection.change_logs import PostgresCDCConnection
from ematix_flow.declare.connection.databases import SQLiteConnection
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream import change_lag
from ematix_flow.engine.stream.change_lag import ChangeLag, LagWatch, change_lags
from ematix_flow.events import LogLagChecked
from ematix_flow.observe.bus import Bus
from tests.streams.change_sources import THINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from ematix_flow.declare.stream.stream import Stream

    Flow = Callable[..., Any]

CANARY = "c4n4ry-status"
AWAY = f"postgresql://reader:{CANARY}@127.0.0.1:1/shop"
MIRRORS = f"""
from ematix_flow import CDC, KafkaConnection, PostgresCDCConnection, SQLiteConnection, ematix, register_connection
from tests.streams.change_sources import THINGS

register_connection(PostgresCDCConnection("away", url="{AWAY}"))
register_connection(PostgresCDCConnection("nameless", url="${{NO_SUCH_DSN}}"))
register_connection(KafkaConnection("events", bootstrap_servers="127.0.0.1:1"))
register_connection(SQLiteConnection("there", path="t.db"))
into = dict(target=THINGS, target_connection="there", cdc=CDC())


@ematix.streaming_pipeline(source="away", source_query="public.things", **into)
def from_away(): ...


@ematix.streaming_pipeline(source="nameless", source_query="public.things", **into)
def from_nameless(): ...


@ematix.streaming_pipeline(source="events", source_query="things", **into)
def from_events(): ...


ematix.replicate("away", tables="public.*", into="there", name="all_of_it")
"""


def test_what_does_not_answer_is_unknown_and_the_others_are_shown(flow: Flow, project: Path) -> None:
    del project
    Path("mirrors.py").write_text(MIRRORS)
    result = flow("cdc", "status", "-m", "mirrors", "--format", "json")
    shown = {one["stream"]: one["targets"] for one in json.loads(result.out)["streams"]}
    assert {name: [one["state"] for one in targets] for name, targets in shown.items()} == {
        "all_of_it": ["unknown"],
        "from_away": ["unknown"],
        "from_events": [],
        "from_nameless": ["unknown"],
    }
    assert result.code == 1
    assert "NO_SUCH_DSN" in shown["from_nameless"][0]["problem"]
    assert all("away" in shown[name][0]["problem"] for name in ("from_away", "all_of_it"))
    printed = flow("cdc", "status", "-m", "mirrors")
    assert printed.out.count(" unknown ") == 3
    assert CANARY not in result.out + result.err + printed.out + printed.err


def _stream(name: str) -> Stream:
    into = {"target_connection": SQLiteConnection("there", path="t.db"), "target_table": THINGS}
    source = PostgresCDCConnection("away", url=AWAY, max_lag_bytes=50)
    return stream_from_keywords({"name": name, "source": source, "source_query": "public.things", **into}, None)


def test_an_error_of_a_driver_is_a_state_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        message = f"the file is locked by another process ({AWAY})"
        raise duckdb.IOException(message)

    monkeypatch.setattr(change_lag, "position_of", busy)
    (lag,) = change_lags(_stream("mirror"))
    assert (lag.state, lag.target, lag.limits.bytes) == ("unknown", "main.things", 50)
    assert "is locked by another process" in lag.problem
    assert CANARY not in lag.problem


def test_a_watch_goes_on_with_the_other_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    def lags(stream: Stream, _: object) -> list[ChangeLag]:
        if stream.name == "broken":
            raise duckdb.IOException("nobody answers")
        return [ChangeLag(stream.name, "t", "s", "breached", limits=LagLimits(bytes=50), problem="too far")]

    monkeypatch.setattr(change_lag, "_lags_of", lags)
    for name in ("broken", "mirror"):
        PROJECT.add_stream(_stream(name))
    bus, heard = Bus(), list[Any]()
    bus.subscribe(heard.append)
    LagWatch(bus)(datetime(2026, 1, 1, tzinfo=UTC))
    assert heard == [LogLagChecked("mirror", "", "too far")]
