"""Changes of PostgreSQL as streams: a log of envelopes in the target gives the rows of the source, whatever happens meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.options import StreamOptions
from tests.crash.changing import Workload, create, drain, events, replayed, rows_of, stream_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]


def test_rows_then_changes_while_the_source_works(postgres_url: str, tmp_path: Path) -> None:
    tables = ("public.a", "public.b")
    create(postgres_url, *tables)
    stream = stream_of(postgres_url, "public.*", tmp_path / "t.db", max_rows_per_batch=200)
    with Workload(postgres_url, tables, seed=1) as workload:
        for transactions in range(2, 10, 2):
            drain(stream)
            workload.reach(transactions)
    drain(stream)
    assert replayed(tmp_path / "t.db") == rows_of(postgres_url, *tables)
    assert drain(stream) == 0
    (status,) = stream_status(stream, StreamOptions())
    assert (status.lag, status.problem) == (0, None)
    assert status.source["slot_status"] == "reserved"
    assert int(str(status.source["retained_wal_bytes"])) < 100_000_000


def test_a_stream_is_shown_before_it_runs_and_can_read_the_rows_again(postgres_url: str, tmp_path: Path) -> None:
    create(postgres_url, "public.a")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    stream = stream_of(postgres_url, "a", tmp_path / "t.db")
    (status,) = stream_status(stream, StreamOptions())
    assert (status.position, status.lag, status.source["slot_status"]) == (None, 61, "not created yet")
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,), "nothing was created"
    assert drain(stream) == 61
    move_stream(stream, "earliest", StreamOptions())
    assert drain(stream) == 62
    assert [event["op"] for event in events(tmp_path / "t.db")] == ["r"] * 61 + ["t"] + ["r"] * 61
