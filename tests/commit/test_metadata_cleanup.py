from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit import metadata_cleanup
from ematix_flow.commit.ledger import HistoryRow, Ledger, transaction
from ematix_flow.connect.registry import open_target
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.records import Fence, Token

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KEEP = metadata_cleanup.LoadRetention(5, timedelta(days=1))


def filled(kind: str, batches: int, age: timedelta) -> Database:
    """Return a database with batches of two streams, one minute apart, the newest so old."""
    database = open_target(connection_from_fields("place", {"kind": kind, "path": str(Path.cwd() / "books")}))
    ledger = Ledger(database)
    with closing(database.session()) as session:
        ledger.ensure(session)
        with transaction(session):
            for number in range(batches):
                at = NOW - age - timedelta(minutes=batches - number)
                for stream in ("mine", "other"):
                    token = Token(stream, "place:orders", str(number))
                    ledger.insert_token(session, token, Fence(stream, number), "", at)
                    row = HistoryRow(token.run_id, stream, "main", "orders", "append", "here", at, "success", at)
                    ledger.record(session, row)
    return database


def slots(database: Database, stream: str) -> list[int]:
    ledger = Ledger(database)
    with closing(database.session()) as session:
        rows = session.query(f"SELECT slot FROM {ledger.name('ledger')} WHERE pipeline_name = ?", (stream,))
        runs = session.query(f"SELECT COUNT(*) FROM {ledger.name('run_history')} WHERE pipeline_name = ?", (stream,))
    assert runs[0][0] == len(rows)
    return sorted(int(row[0]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_old_batches_of_one_stream_are_forgotten(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cleanup, "BATCHES", KEEP)
    database = filled(kind, 8, timedelta(days=2))
    assert metadata_cleanup.forget_batches(database, "mine", "mine", NOW) == {"tokens": 3, "history": 3}
    assert slots(database, "mine") == [3, 4, 5, 6, 7]
    assert slots(database, "other") == list(range(8))


def test_young_batches_stay_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cleanup, "BATCHES", KEEP)
    database = filled("sqlite", 8, timedelta(hours=1))
    assert metadata_cleanup.forget_batches(database, "mine", "mine", NOW) == {"tokens": 0, "history": 0}


def test_a_stream_keeps_a_thousand_batches_and_a_day() -> None:
    assert metadata_cleanup.LoadRetention(1_000, timedelta(days=1)) == metadata_cleanup.BATCHES
