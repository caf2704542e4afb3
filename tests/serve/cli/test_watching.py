from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from ematix_flow.events import BatchLoaded, StreamFailed, StreamIdle, StreamLag
from ematix_flow.observe.bus import Bus
from ematix_flow.records import Counts
from ematix_flow.serve.cli.common import log_files
from ematix_flow.serve.cli.common import stream_progress as watching
from ematix_flow.serve.cli.common.stream_progress import watched
from tests.serve.cli.streaming import SRC, create_project, running, stopped, wait_for, wait_for_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.kafka import KafkaBroker

BATCH = BatchLoaded("orders", "main.orders", Counts(staged=1234, rejected=2), 0.25, messages=1236, new_messages=1236)
LAG = StreamLag("orders", "main.orders", {"0": 3, "1": 4})

WATCHED = """
import sys, time
from ematix_flow.events import StreamFailed, StreamLag, BatchLoaded
from ematix_flow.observe.bus import Bus
from ematix_flow.records import Counts
from ematix_flow.serve.cli.common.stream_progress import watched

bus = Bus()
with watched(bus, ["orders"]):
    bus.emit(BatchLoaded("orders", "main.orders", Counts(staged=1234, rejected=2), 0.25, 1236, 1236))
    bus.emit(StreamLag("orders", "main.orders", {"0": 3, "1": 4}))
    bus.emit(StreamFailed("orders", "main.copies", "the database is away", 1.5, "Traceback of it\\n"))
"""
CAPTURED = (
    'with watched(bus, ["orders"]):',
    """from ematix_flow.engine.batch.events import emitting_attempt
from ematix_flow.serve.cli.common.capture import captured
with watched(bus, ["orders"]), captured(bus), emitting_attempt("orders", "run-1", 1, bus, of_stream=True):
    sys.stderr.write("said by the user\\n")""",
)


def test_away_from_a_terminal_the_first_batch_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    bus = Bus()
    with watched(bus, ["orders"]):
        bus.emit(LAG)
        bus.emit(BATCH)
        bus.emit(BATCH)
        bus.emit(StreamIdle("orders", ""))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("orders: 1,234 rows written, ")
    assert line.endswith("/s, 2 rejected, 7 waiting, last batch 0.25 s")


def test_then_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LINE_EVERY", timedelta(0))
    bus = Bus()
    with watched(bus, ["orders"]):
        for _ in range(3):
            bus.emit(BATCH)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" rows")[0] for line in lines] == ["orders: 1,234", "orders: 2,468", "orders: 3,702"]


def test_a_failure_is_told_at_once_with_its_pause(capsys: pytest.CaptureFixture[str]) -> None:
    bus = Bus()
    with watched(bus, ["orders"]):
        bus.emit(StreamFailed("orders", "main.orders", "it is away\nHint: wait.", 1.5))
        bus.emit(StreamFailed("orders", "", "it is gone"))
    assert capsys.readouterr().err.splitlines() == [
        "orders (main.orders): it is away; trying again in 1.5 s.",
        "orders: it is gone",
    ]


def on_a_terminal(program: str) -> str:
    """Return what a program shows on a terminal."""
    mine, theirs = pty.openpty()
    os.set_inheritable(theirs, True)
    environ = {**os.environ, "PYTHONPATH": SRC, "TERM": "xterm", "COLUMNS": "120", "NO_COLOR": ""}
    process = subprocess.Popen([sys.executable, "-c", program], env=environ, stderr=theirs)
    os.close(theirs)
    received = b""
    while block := _read(mine):
        received += block
    os.close(mine)
    assert process.wait(60) == 0
    return received.decode()


def test_on_a_terminal_there_is_a_table_that_moves() -> None:
    text = on_a_terminal(WATCHED)
    for shown in ("STREAM", "WAITING", "main.orders", "1,234", "0.25 s", "loading", "the database is away"):
        assert shown in text


def test_a_log_has_what_was_said_and_not_the_table_that_moves() -> None:
    text = on_a_terminal(WATCHED.replace(*CAPTURED))
    assert "STREAM" in text
    assert "said by the user" in text
    (file,) = (one for one in log_files.log_folder().glob("orders-*.log") if not one.is_symlink())
    begun, message, failed, traceback, done = file.read_text("utf-8").splitlines()
    assert (message, traceback) == ("said by the user", "Traceback of it")
    assert [line[21:] for line in (begun, failed, done)] == [
        "orders: run-1, attempt 1", "orders (main.copies): the database is away; trying again in 1.5 s.", "orders: done",
    ]  # fmt: skip


def _read(end: int) -> bytes:
    try:
        return os.read(end, 4096)
    except OSError:  # the other end was closed
        return b""


def scraped(url: str, prefix: str) -> list[str]:
    """Return the lines at an address as soon as one of them is there; who prints a batch may hear of it before who counts it."""
    lines: list[str] = []
    until = time.monotonic() + 20
    while prefix not in lines and time.monotonic() < until:
        with urlopen(url, timeout=10) as answer:  # noqa: S310 - the address is our own
            lines = answer.read().decode().splitlines()
    return lines


@pytest.mark.service
@pytest.mark.slow
def test_a_running_stream_can_be_scraped(kafka_broker: KafkaBroker, project: Path) -> None:
    streams = create_project(kafka_broker)
    streams.send(range(10))
    with running("orders", "--metrics-port", "0", "--format", "lines") as process:
        url = wait_for("metrics: ", process.stderr).split()[1]
        wait_for_rows(process.stdout, 10)
        lines = scraped(url, 'ematix_streaming_rows_consumed_total{pipeline="orders"} 10.0')
        code, _, _ = stopped(process)
    assert code == 0
    assert 'ematix_streaming_rows_consumed_total{pipeline="orders"} 10.0' in lines
    assert any(
        line.startswith('ematix_streaming_watermark_seconds{pipeline="orders",source="_global"} 1.') for line in lines
    )
    assert 'ematix_streaming_batches_total{pipeline="orders"} 1.0' in lines
