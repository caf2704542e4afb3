"""Folders as streams: every file is loaded once, whatever its name, and a restart reads nothing again."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import PlanError, RunError
from ematix_flow.events import StreamIdle
from tests.engine.bucket_loads import Bucket
from tests.engine.inboxes import Inbox, content
from tests.services.s3 import s3_fields

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.s3 import S3Server


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    target = {"kind": "sqlite", "path": str(tmp_path / "there.db")}
    return Inbox(str(tmp_path), target, str(tmp_path / "runs.db"))


def stream_of(inbox: Inbox, **more: Any) -> Stream:
    source = inbox.source or {"kind": "object_store_local", "path": inbox.root, "format": "csv"}
    return Stream(
        "inbox",
        (StreamSourceDeclaration(connection_from_fields("source", source), inbox.path, "in"),),
        (StreamTarget(inbox.connection, write(mode="append"), table=inbox.table),),
        **{"idle_pause_ms": 10, **more},
    )


def drained(inbox: Inbox) -> int:
    return run_stream(stream_of(inbox), StreamOptions(available_now=True))["total_rows"]


def test_each_file_is_loaded_once_whatever_its_name(inbox: Inbox) -> None:
    inbox.put("b.csv", 1, 2)
    assert drained(inbox) == 2
    assert drained(inbox) == 0
    inbox.put("a.csv", 3)
    inbox.put("c.csv", 4)
    assert drained(inbox) == 2
    assert drained(inbox) == 0
    assert inbox.ids() == [1, 2, 3, 4]


@pytest.mark.slow
def test_files_that_come_while_it_runs_are_loaded(inbox: Inbox) -> None:
    options = StreamOptions()
    waiting = iter(["b.csv", "a.csv"])

    def hear(event: object) -> None:
        if isinstance(event, StreamIdle):
            name = next(waiting, None)
            if name is None:
                options.stop.set()
            else:
                inbox.put(name, ord(name[0]))

    inbox.put("first.csv", 1)
    options.bus.subscribe(hear)
    guard = threading.Timer(60, options.stop.set)
    guard.start()
    done = run_stream(stream_of(inbox), options)
    guard.cancel()
    assert (done["total_rows"], done["iterations"]) == (3, 3)
    assert inbox.ids() == [1, ord("a"), ord("b")]


def test_an_empty_folder_is_waited_for(inbox: Inbox, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert drained(inbox) == 0
    inbox.put("a.csv", 1)
    assert drained(inbox) == 1


def test_a_file_that_changed_stops_the_stream(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    drained(inbox)
    inbox.put("a.csv", 1, 2)
    with pytest.raises(PlanError, match="changed since it was loaded"):
        drained(inbox)
    assert inbox.ids() == [1]


def test_an_operator_sees_what_waits_and_cannot_move_it(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    stream = stream_of(inbox)
    assert [one.lag for one in stream_status(stream, StreamOptions())] == [1]
    drained(inbox)
    assert [one.lag for one in stream_status(stream, StreamOptions())] == [0]
    with pytest.raises(RunError, match="known file by file"):
        move_stream(stream, "earliest", StreamOptions())


def test_what_streams_of_files_cannot_do_is_said(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    with pytest.raises(RunError, match="no place in a folder"):
        run_stream(stream_of(inbox), StreamOptions(end="2026-01-01"))


@pytest.mark.service
def test_objects_of_a_bucket_are_loaded_once(s3_server: S3Server, s3_bucket: str, inbox: Inbox) -> None:
    bucket = Bucket(s3_fields(s3_server, s3_bucket, prefix="raw", format="csv"))
    inbox = replace(inbox, source=bucket.fields)
    bucket.put("in/b.csv", content(1).encode())
    assert drained(inbox) == 1
    bucket.put("in/a.csv", content(2, 3).encode())
    assert [drained(inbox), drained(inbox)] == [2, 0]
    assert inbox.ids() == [1, 2, 3]
