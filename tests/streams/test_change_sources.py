"""Tables that mirror those of another database, read from its log without a broker, while its rows change."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow import CDC
from ematix_flow.connect.base.retry import XA_PREPARED
from ematix_flow.connect.mysql.cdc import source as cdc_source
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.engine.review.stream import validate_stream
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import BadRowsError, PlanError, TransientError
from tests.connect.test_mysql_cdc import Distributed
from tests.depth import deep
from tests.streams.change_sources import Source, Work, begin_life, mirrored
from tests.streams.feeds import drain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]


@pytest.fixture(params=["postgres", "mysql"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    source = Source(request.getfixturevalue(f"{request.param}_url"))
    yield source
    source.close()


def test_a_mirror_has_the_rows_of_its_source_while_they_change(source: Source, tmp_path: Path) -> None:
    for number in range(60):
        source.run("INSERT INTO things VALUES (%s, 0, %s)", number, "y" * 5000)
    stream, file = source.stream(tmp_path / "t.db"), tmp_path / "t.db"
    with Work(source, seed=7) as work:
        for transactions in range(2, 10, 2):
            drain(stream)
            work.reach(transactions)
    drain(stream)
    assert mirrored(file) == source.rows()
    source.run("TRUNCATE TABLE things")
    source.run("INSERT INTO things VALUES (1, 2, 'after')")
    drain(stream)
    assert mirrored(file) == [(1, 2, "after")]
    assert drain(stream)["total_rows"] == 0


def test_a_mirror_does_not_begin_behind_a_transaction_that_is_in_doubt(
    mysql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file = Source(mysql_url), tmp_path / "t.db"
    stream = source.stream(file, auto_offset_reset="latest")
    monkeypatch.setattr(cdc_source, "XA_PREPARED", replace(XA_PREPARED, seconds=0))
    doubt = Distributed(mysql_url, "'doubt'", "INSERT INTO things VALUES (1, 1, 'a')")
    try:
        with pytest.raises(TransientError, match="prepared transactions"):
            drain(stream)
    finally:
        doubt.end("COMMIT")
    drain(stream)
    source.run("INSERT INTO things VALUES (2, 2, 'b')")
    drain(stream)
    assert mirrored(file) == [(2, 2, "b")], "what was committed before the stream began is not its"
    source.close()


def test_new_columns_have_the_types_of_the_source(source: Source, tmp_path: Path) -> None:
    stream, file = replace(source.stream(tmp_path / "t.db"), cdc=CDC(schema_evolution="evolve")), tmp_path / "t.db"
    source.run("INSERT INTO things VALUES (1, 1, 'a')")
    drain(stream)
    source.run(
        "ALTER TABLE things ADD COLUMN price numeric(20, 4), ADD COLUMN ratio double precision, ADD COLUMN day date"
    )
    source.run("INSERT INTO things VALUES (2, 2, 'b', 1234567890123456.7891, 1.5, '2026-01-02')")
    drain(stream)
    with closing(sqlite3.connect(file)) as connection:
        (row,) = connection.execute("SELECT price, ratio, day FROM things WHERE id = 2").fetchall()
        types = {name: kind for _, name, kind, *_ in connection.execute("PRAGMA table_info(things)")}
    assert row == ("1234567890123456.7891", 1.5, "2026-01-02")
    assert [types[name] for name in ("price", "ratio", "day")] == ["DECIMALTEXT(20,4)", "DOUBLE", "DATE"]


def test_a_mirror_that_missed_deletes_is_made_right_by_reading_the_rows_again(source: Source, tmp_path: Path) -> None:
    source.run("INSERT INTO things VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    stream, file = source.stream(tmp_path / "t.db"), tmp_path / "t.db"
    drain(stream)
    source.run("DELETE FROM things WHERE id = 2")
    move_stream(stream, "latest", StreamOptions())  # which the target never hears of
    source.run("UPDATE things SET n = 9 WHERE id = 3")
    drain(stream)
    assert mirrored(file) == [(1, 1, "a"), (2, 2, "b"), (3, 9, "c")]
    move_stream(stream, "earliest", StreamOptions())
    drain(stream)
    assert mirrored(file) == [(1, 1, "a"), (3, 9, "c")]
    source.run("INSERT INTO things VALUES (2, 0, 'again')")
    drain(stream)
    assert mirrored(file) == [(1, 1, "a"), (2, 0, "again"), (3, 9, "c")]


def test_the_rows_of_several_tables_are_not_made_one_table(source: Source, tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    drain(source.stream(file, tables="things"))
    source.run("CREATE TABLE things_2 (id bigint PRIMARY KEY, n bigint, big text)")
    source.run("INSERT INTO things VALUES (1, 1, 'a')")
    source.run("INSERT INTO things_2 VALUES (1, 2, 'b')")
    both = source.stream(file, tables="things, things_2")
    with pytest.raises(PlanError, match=r"one table of the rows of several: .*\bthings, .*\bthings_2"):
        drain(both)
    assert not validate_stream(both).ok
    log = source.stream(tmp_path / "log.db", tables="things, things_2", mode="append")
    assert drain(log)["total_rows"] == 2


@pytest.mark.parametrize("source", ["postgres"], indirect=True)
def test_a_row_that_is_written_before_its_key_is_free_is_the_later_one(source: Source, tmp_path: Path) -> None:
    source.run("CREATE UNIQUE INDEX ON things (n)")  # compared before the key, which is the younger index
    source.run("ALTER TABLE things DROP CONSTRAINT things_pkey, ADD PRIMARY KEY (id)")
    source.run("INSERT INTO things VALUES (1, 1, 'old')")
    stream, file = source.stream(tmp_path / "t.db"), tmp_path / "t.db"
    drain(stream)
    with closing(source.connect()) as first, closing(source.connect()) as second:
        first.execute("INSERT INTO things VALUES (2, 5, 'never')")
        writer = threading.Thread(target=second.execute, args=("INSERT INTO things VALUES (1, 5, 'new')",))
        writer.start()
        while source.run("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            time.sleep(0.02)
        source.run("DELETE FROM things WHERE id = 1")
        first.rollback()
        writer.join(30)
        second.commit()
    drain(stream)
    assert mirrored(file) == source.rows() == [(1, 5, "new")]


@pytest.mark.parametrize("source", ["postgres"], indirect=True)
def test_a_large_value_moves_with_its_row_or_the_change_is_refused(source: Source, tmp_path: Path) -> None:
    source.run("ALTER TABLE things ALTER big SET STORAGE EXTERNAL")
    source.run("INSERT INTO things VALUES (1, 1, %s)", "y" * 9000)
    stream, file = source.stream(tmp_path / "t.db"), tmp_path / "t.db"
    drain(stream)
    source.run("UPDATE things SET id = 2")
    with pytest.raises(BadRowsError, match="REPLICA IDENTITY FULL"):
        drain(stream)
    assert mirrored(file) == [(1, 1, "y" * 9000)]
    source.run("ALTER TABLE things REPLICA IDENTITY FULL")
    move_stream(stream, "earliest", StreamOptions())
    drain(stream)
    source.run("UPDATE things SET id = 3, n = 3")
    drain(stream)
    assert mirrored(file) == source.rows() == [(3, 3, "y" * 9000)]


@pytest.mark.parametrize(
    "point",
    [
        deep("stage.before_task_commit=kill@1"),
        deep("commit.before_commit=kill@1"),
        deep("commit.after_commit=kill@1"),
        deep("stream.after_batch=kill@1"),
        deep("commit.applied=kill@2"),
        deep("commit.after_commit=kill@2"),
    ],
)
def test_a_mirror_that_is_killed_ends_with_the_rows_of_its_source(source: Source, tmp_path: Path, point: str) -> None:
    for number in range(60):
        source.run("INSERT INTO things VALUES (%s, 0, %s)", number, "y" * 50)
    file = tmp_path / "t.db"
    if point.endswith("@2"):
        drain(source.stream(file))
        point = point.replace("@2", "@1")
    # In a task of Spark it is the process of the task that dies there, and the stream fails with it.
    in_task = point.startswith("stage.") and os.environ[ENGINE_VARIABLE] == "spark"
    with Work(source, seed=9) as work:
        work.reach(3)  # there are changes then, whatever the life begins with
        assert begin_life(source.url, file, point).wait(120) == (1 if in_task else -signal.SIGKILL)
        drain(source.stream(file))
    drain(source.stream(file))
    assert mirrored(file) == source.rows()
