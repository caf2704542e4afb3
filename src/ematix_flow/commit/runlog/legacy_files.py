"""SQLite files of earlier versions: what they have is taken over, once; nothing here is about new files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.base.session import Session

_REQUEST = "pipeline, request_id, state, opened_at, host, pid, pid_started"


def prepare(session: Session, existing: Mapping[str, set[str]], create: str) -> None:
    """Keep the newest open request of each pipeline: files of an earlier version have all that there ever were."""
    if "closed_at" not in existing.get("requests", ()) or "version" in existing["requests"]:
        return
    session.begin()
    session.execute("ALTER TABLE requests RENAME TO requests_before")
    session.execute("DROP INDEX IF EXISTS requests_open")
    session.execute(create)
    session.execute(
        f"INSERT INTO requests ({_REQUEST}) SELECT {_REQUEST} FROM requests_before AS r WHERE state = 'open' AND rowid = "
        "(SELECT rowid FROM requests_before WHERE pipeline = r.pipeline AND state = 'open' ORDER BY opened_at DESC LIMIT 1)"
    )
    session.execute("DROP TABLE requests_before")
    session.commit()


def take_over(session: Session, existing: Mapping[str, set[str]]) -> None:
    """Fill the state of pipelines with the last runs and attempts that an earlier version stored."""
    if "run_log" not in existing:
        return
    session.execute(
        "INSERT OR IGNORE INTO pipeline_state (pipeline, last_run_at, last_outcome, last_success_at) "
        "SELECT pipeline_name, last_run_at, CASE success WHEN 1 THEN 'success' ELSE 'failure' END, "
        "CASE success WHEN 1 THEN last_run_at ELSE '' END FROM run_log"
    )
    if "attempt_state" in existing:
        session.execute(
            "UPDATE pipeline_state SET attempt = a.attempt_count, last_attempt_at = a.last_attempt_at, "
            "slot_status = CASE a.gave_up WHEN 1 THEN 'gave_up' ELSE 'failed' END FROM attempt_state AS a "
            "WHERE a.pipeline_name = pipeline_state.pipeline AND a.attempt_count > 0"
        )
