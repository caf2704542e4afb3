"""Streams of changes that do not run: how far they are behind, what is too far, and who hears of it."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ematix_flow.connect.change_log.lag import LagLimits, LogLag
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.stream.change_lag import LagWatch, change_lags
from ematix_flow.errors import DeclareError
from ematix_flow.events import LogLagMeasured
from ematix_flow.observe.bus import Bus
from ematix_flow.observe.observers import observers
from ematix_flow.serve.cli.main import main
from tests.streams.change_sources import Source
from tests.streams.feeds import drain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.observe.alerts.alert import AlertEvent

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Pager:
    """Keeps what it was notified of."""

    def __init__(self) -> None:
        self.alerts: list[AlertEvent] = []

    def notify(self, event: AlertEvent) -> None:
        """Keep an alert."""
        self.alerts.append(event)


@pytest.fixture(params=["postgres", "mysql"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    with closing(Source(request.getfixturevalue(f"{request.param}_url"))) as source:
        yield source


def test_a_stream_that_is_stopped_falls_behind_and_catches_up(source: Source, tmp_path: Path) -> None:
    source.run("INSERT INTO things VALUES (1, 1, 'a')")
    stream = source.stream(tmp_path / "t.db", max_lag_bytes=50, max_lag_seconds=100_000)
    (before,) = change_lags(stream)
    assert (before.state, before.lag.bytes, before.lag.seconds) == ("healthy", None, None)
    bus, measured = Bus(), []
    bus.subscribe(lambda event: measured.append(event) if isinstance(event, LogLagMeasured) else None)
    drain(stream, bus=bus)
    assert [(one.lag_bytes, one.lag_seconds) for one in measured[-1:]] == [(0, 0.0)]
    (now,) = change_lags(stream)
    assert (now.state, now.lag.bytes, now.lag.seconds) == ("healthy", 0, 0.0)
    source.run("CREATE TABLE others (id int PRIMARY KEY)")
    source.run("INSERT INTO others VALUES (1)")
    (now,) = change_lags(stream)
    assert (now.state, now.lag.bytes) == ("healthy", 0), "changes of other tables are none that it lacks"
    source.run("INSERT INTO things VALUES (2, 2, 'b')")
    (now,) = change_lags(stream)
    assert now.state == "breached"
    assert now.lag.bytes is not None
    assert now.lag.seconds is not None
    assert (now.lag.bytes > 50, 0 <= now.lag.seconds < 600) == (True, True)
    assert "at most 50 are wanted" in now.problem
    drain(stream)
    (now,) = change_lags(stream)
    assert (now.state, now.lag.bytes, now.problem) == ("healthy", 0, "")


def test_a_stream_that_is_too_far_behind_alerts_once_and_recovers(source: Source, tmp_path: Path) -> None:
    stream = source.stream(tmp_path / "t.db", max_lag_bytes=50)
    source.run("INSERT INTO things VALUES (1, 1, 'a')")
    drain(stream)
    PROJECT.add_stream(stream)
    pager, bus = Pager(), Bus()
    with observers([pager]) as active:
        active.subscribe_to(bus)
        watch = LagWatch(bus)
        watch(NOW)
        source.run("INSERT INTO things VALUES (2, 2, 'b')")
        for minutes in (0.5, 1, 2, 3):  # half a minute after the last check there is none
            watch(NOW + timedelta(minutes=minutes))
        drain(stream)
        watch(NOW + timedelta(minutes=4))
    assert [(one.kind, one.pipeline, one.incident) for one in pager.alerts] == [
        ("lagging", "mirror", "lag"),
        ("recovered", "mirror", "lag"),
    ]
    assert "bytes of the log are not applied" in pager.alerts[0].error_message


def test_what_a_server_keeps_for_a_stream_has_a_limit(postgres_url: str, tmp_path: Path) -> None:
    with closing(Source(postgres_url)) as source:
        stream = source.stream(tmp_path / "t.db", max_retained_bytes=1)
        drain(stream)
        source.run("INSERT INTO things VALUES (1, 1, 'a')")
        (now,) = change_lags(stream)
    assert now.state == "breached"
    assert "the server keeps" in now.problem


def test_a_command_says_by_its_exit_code_whether_all_is_well(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_DSN", postgres_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lagging.py").write_text(
        "from ematix_flow import CDC, PostgresCDCConnection, SQLiteConnection, ematix, register_connection\n"
        "from tests.streams.change_sources import THINGS\n"
        "register_connection(PostgresCDCConnection('pg', url='${SHOP_DSN}', max_lag_bytes=50))\n"
        "register_connection(SQLiteConnection('there', path='t.db'))\n"
        "@ematix.streaming_pipeline(source='pg', source_query='things', target=THINGS, target_connection='there', cdc=CDC())\n"
        "def things(): ...\n"
    )
    log = ("--run-log-path", str(tmp_path / "runs.db"))

    def status(*more: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(["cdc", "status", *more, "--module", "lagging", "--format", "json", *log])
        return code, json.loads(capsys.readouterr().out)["streams"]

    with closing(Source(postgres_url)) as source:
        source.run("INSERT INTO things VALUES (1, 1, 'a')")
        assert main(["consume", "things", "--module", "lagging", "--once", *log]) == 0
        code, (shown,) = status()
        assert (code, shown["targets"][0]["state"], shown["changes"]["creates"]) == (0, "healthy", 1)
        source.run("ALTER TABLE things ADD COLUMN colour text")
        source.run("INSERT INTO things VALUES (2, 2, 'b', 'red')")
        code, (shown,) = status("things")
        assert (code, shown["targets"][0]["state"]) == (1, "breached")
        assert main(["consume", "things", "--module", "lagging", "--once", *log]) == 0
        code, (shown,) = status()
        assert (code, shown["changes"]["left_out"]) == (0, 1)
        assert "the column 'colour'" in shown["warnings"][0]
        capsys.readouterr()
        assert main(["cdc", "status", "--module", "lagging", *log]) == 0
        printed = capsys.readouterr()
        assert "healthy" in printed.out
        assert "things: warning: changes have the column 'colour'" in printed.err
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    code, (shown,) = status()
    assert (code, shown["targets"][0]["state"]) == (1, "lost")
    assert "is gone" in shown["targets"][0]["problem"]


def test_limits_are_numbers_from_one_on() -> None:
    with pytest.raises(DeclareError, match="impossible max_lag_seconds"):
        connection_from_fields("c", {"kind": "postgres_cdc", "url": "postgresql://h/d", "max_lag_seconds": 0})
    limits = LagLimits(bytes=100, seconds=10)
    assert limits.exceeded(LogLag(100, 10.0)) == ()
    assert limits.nearly(LogLag(80, 0.0))
    assert not limits.nearly(LogLag(79, 0.0, retained_bytes=10**9))
    assert not limits.exceeded(LogLag())
    assert limits.exceeded(LogLag(101, 11.0)) == (
        "101 bytes of the log are not applied, at most 100 are wanted",
        "a change waits for 11 seconds, at most 10 are wanted",
    )
