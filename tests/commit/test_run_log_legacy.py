"""SQLite files: those of earlier versions are made complete and what they know counts; lists are read off indexes."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from ematix_flow.commit.runlog.records import RequestRow
from ematix_flow.records import RunRecord
from ematix_flow.run_log import AttemptState, Claim, SqliteRunLog

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

FIRST = """
CREATE TABLE run_log (pipeline_name TEXT PRIMARY KEY, last_run_at TEXT, success INTEGER);
CREATE TABLE attempt_state (pipeline_name TEXT PRIMARY KEY, attempt_count INTEGER, last_attempt_at TEXT, gave_up INTEGER);
CREATE TABLE pipeline_claims (pipeline_name TEXT PRIMARY KEY, claim_token TEXT, worker_id TEXT, claimed_at TEXT,
    expires_at TEXT);
CREATE TABLE run_records (run_id TEXT PRIMARY KEY, pipeline TEXT, status TEXT, started_at TEXT, finished_at TEXT,
    attempt INTEGER, failed_step TEXT, failed_watermark TEXT, error_summary TEXT, kind TEXT, extras TEXT);
INSERT INTO run_log VALUES ('p', '2026-01-02T03:04:05Z', 1), ('q', '2026-01-02T03:04:05Z', 0);
INSERT INTO attempt_state VALUES ('q', 3, '2026-01-02T03:04:05Z', 1);
INSERT INTO pipeline_claims VALUES ('p', 'token', 'old worker', '2026-01-02T03:04:05Z', '2100-01-02T03:04:05Z');
INSERT INTO run_records (run_id, pipeline, status, started_at, attempt, kind)
    VALUES ('p-1', 'p', 'succeeded', '2026-01-02T03:04:05Z', 1, 'batch');
"""

SECOND = """
CREATE TABLE requests (request_id TEXT PRIMARY KEY, pipeline TEXT NOT NULL, state TEXT NOT NULL, opened_at TEXT NOT NULL,
    closed_at TEXT, host TEXT, pid INTEGER, pid_started TEXT);
CREATE INDEX requests_open ON requests (pipeline, state);
INSERT INTO requests VALUES ('req-1', 'p', 'done', '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:01+00:00', 'h', 1, '2'),
    ('req-2', 'p', 'abandoned', '2026-01-02T00:00:00+00:00', NULL, 'h', 1, '2'),
    ('req-3', 'p', 'open', '2026-01-03T00:00:00+00:00', NULL, 'h', NULL, '2'),
    ('req-4', 'q', 'done', '2026-01-04T00:00:00+00:00', '2026-01-04T00:00:00+00:00', 'h', NULL, '2');
"""


def file(script: str) -> Path:
    with closing(sqlite3.connect("old.db")) as connection:
        connection.executescript(script)
    return Path("old.db")


def test_what_the_first_version_kept_is_taken_over() -> None:
    log = SqliteRunLog(file(FIRST))
    states = log.restore_into_process()
    assert (states["p"].last_outcome, states["p"].last_success_at) == ("success", "2026-01-02T03:04:05Z")
    assert (states["q"].last_outcome, states["q"].last_success_at) == ("failure", "")
    assert log.attempt_state("q") == AttemptState(3, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), gave_up=True)
    assert log.attempt_state("p") is None
    assert log.get_run("p-1") == RunRecord("p-1", "p", "succeeded", "2026-01-02T03:04:05Z")
    log.record_run("q", NOW, success=True)
    assert SqliteRunLog("old.db").restore_into_process()["q"].last_outcome == "success", "it is taken over once"


def test_a_lease_of_the_first_version_counts() -> None:
    log = SqliteRunLog(file(FIRST))
    assert log.claim("p", "new", 9).holder == "old worker"
    (held,) = log.all(Claim)
    assert (held.claim_token, held.epoch, held.version) == ("token", 0, 1)
    assert log.heartbeat("token", 9)
    assert log.release("token")
    assert log.claim("p", "new", 9).epoch == 1


def test_an_open_request_of_the_second_version_is_resumed() -> None:
    log = SqliteRunLog(file(SECOND))
    resumed = log.open_request("p", NOW)
    assert (resumed.id, resumed.resumed, resumed.opened_at) == ("req-3", True, "2026-01-03T00:00:00+00:00")
    row = log.find(RequestRow, "p")
    assert row is not None
    assert (row.host, row.pid) == (socket.gethostname(), os.getpid())
    assert not log.open_request("q", NOW).resumed
    log.close_request(resumed, NOW)
    assert not SqliteRunLog("old.db").open_request("p", NOW).resumed


def test_a_file_of_both_versions_is_opened() -> None:
    log = SqliteRunLog(file(FIRST + SECOND))
    assert log.open_request("p", NOW).resumed
    assert log.list_runs()[1] == 1


def test_lists_of_runs_are_read_off_indexes() -> None:
    backend = SqliteRunLog("new.db").backend.everything
    newest = "ORDER BY started_at DESC, run_id DESC LIMIT 20"
    with closing(sqlite3.connect("new.db")) as connection:
        for where in ("", "WHERE pipeline = 'p'", "WHERE status = 'failed'"):
            sql = f"EXPLAIN QUERY PLAN {backend._select_runs()} {where} {newest}"  # type: ignore[attr-defined]
            (step,) = connection.execute(sql).fetchall()
            assert "USING INDEX run_records_" in step[3]
