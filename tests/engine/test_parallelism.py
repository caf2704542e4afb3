"""How many parts and tasks a load has: by the engine's slots and by what databases allow."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import psycopg
import pytest

from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.session import Split
from ematix_flow.connect.base.stage import StageColumn, StageSpec
from ematix_flow.connect.postgres import splits as postgres_splits
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.connect.registry import open_database
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.connection.registry import DuckDBConnection, PostgresConnection, SQLiteConnection
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.spark.parallelism import DEFAULT_CONNECTIONS, most_connected, slots_of
from ematix_flow.engine.spark.session import session_for
from ematix_flow.run.local import threads
from ematix_flow.run.read.frames import database_frame
from ematix_flow.run.spark.slots import session_slots
from ematix_flow.run.stage import tasks
from ematix_flow.run.stage.conform import Rules
from ematix_flow.run.stage.tasks import StageWork, stage_frame, stage_partitions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ematix_flow.records import TaskReport

ROWS = 4_000


@pytest.mark.parametrize(
    ("setting", "value", "slots"),
    [
        ("MASTER", "local[3, 4]", 3),
        ("MASTER", "local[*, 4]", os.cpu_count()),
        ("CONF_SPARK__DEFAULT__PARALLELISM", "7", 7),
    ],
)
def test_the_slots_of_this_machine_are_known_before_spark_runs(
    setting: str, value: str, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"EMATIX_FLOW_SPARK_{setting}", value)
    monkeypatch.setattr("ematix_flow.run.spark.session.spark_session", lambda _: pytest.fail("Spark was started"))
    assert slots_of(session_for(Options())) == slots


@pytest.mark.spark
def test_a_session_of_somebody_else_is_asked_for_its_slots(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_SPARK_MASTER", "local[7, 4]")
    assert slots_of(session_for(Options(spark=spark))) == session_slots(spark) == spark.sparkContext.defaultParallelism
    assert slots_of(lambda: spark) == session_slots(spark)


@pytest.mark.spark
def test_spark_stages_all_pieces_in_as_few_tasks_as_may_be_connected(spark: SparkSession, tmp_path: Path) -> None:
    def partition(attempt: tuple[int, int]) -> TaskReport:
        from ematix_flow.records import TaskReport

        busy = tmp_path / "busy"
        busy.touch(exist_ok=False)  # two at a time would find it there
        busy.unlink()
        return TaskReport(*attempt, rows=attempt[0])

    parts = stage_partitions(spark, [partition] * 5, 1)
    assert [(part.partition, part.rows) for part in parts] == [(number, number) for number in range(5)]
    assert len({part.attempt for part in parts}) == 5


@pytest.mark.spark
def test_a_task_that_fails_between_its_pieces_reports_each_of_them_once(spark: SparkSession, tmp_path: Path) -> None:
    def partition(attempt: tuple[int, int]) -> TaskReport:
        from ematix_flow.records import TaskReport

        began = tmp_path / f"{attempt[0]}-{attempt[1]}"
        began.touch(exist_ok=False)  # no number is used twice
        if attempt[0] == 2 and len(list(tmp_path.glob("2-*"))) == 1:
            raise RuntimeError("in passing")
        return TaskReport(*attempt, rows=1)

    parts = stage_partitions(spark, [partition] * 4, 1)
    assert [part.partition for part in parts] == [0, 1, 2, 3]
    began = {tuple(map(int, file.name.split("-"))) for file in tmp_path.iterdir()}
    assert len(began) == 3 + 4, "three pieces of the first attempt, all of the second"
    assert {(part.partition, part.attempt) for part in parts} <= began
    assert len({part.attempt for part in parts}) == 4


@pytest.mark.spark
def test_frames_are_read_and_staged_by_as_few_tasks_as_may_be_connected(
    spark: SparkSession, duckdb_path: Path, sqlite_path: Path
) -> None:
    columns = (StageColumn("a", BigInt()),)
    target = open_database(DuckDBConnection("dst", path=str(duckdb_path)))
    schema = staged_schema(columns).serialize().to_pybytes()
    with closing(target.session()) as session:
        spec = target.open_stage(session, StageSpec("stg_1", schema, columns=columns))
    work = StageWork(target, spec, Rules(columns, frozenset()))
    parts = stage_frame(spark.range(0, 80, 1, 8).toDF("a"), work, 2)
    assert [(part.partition, part.rows) for part in parts] == [(0, 40), (1, 40)]
    assert len(stage_frame(spark.range(0, 80, 1, 8).toDF("a"), work)) == 8
    source = open_database(SQLiteConnection("src", path=str(sqlite_path)))
    source.session().close()
    splits = tuple(Split(f"SELECT {number} AS a") for number in range(5))
    frame = database_frame(spark, source, splits, (SourceColumn("a", "integer"),), 2)
    assert frame.rdd.getNumPartitions() == 2
    assert sorted(row.a for row in frame.collect()) == [0, 1, 2, 3, 4]


@pytest.mark.service
def test_a_database_says_how_many_tasks_it_can_take(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Postgres(PostgresConnection("pg", url=postgres_url))
    with closing(database.session()) as session:
        limit, free = most_connected(database, session), session.free_connections()
        assert limit is not None
        assert 1 <= limit <= free // 3
        name = session.query("SELECT current_database()")[0][0]
        session.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 1')
        assert most_connected(database, session) == 1, "a load needs one, and says itself when it cannot have it"
        monkeypatch.setenv("EMATIX_FLOW_SPARK_MAX_CONNECTIONS", "3")
        assert most_connected(database, session) == 3
        monkeypatch.delenv("EMATIX_FLOW_SPARK_MAX_CONNECTIONS")
        monkeypatch.setattr("ematix_flow.connect.postgres.session.FREE_SQL", "SELECT nothing")
        assert most_connected(database, session) == DEFAULT_CONNECTIONS


@pytest.mark.service
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize(("allowed", "workers"), [("", 4), ("2", 1)], ids=["free", "limited"])
def test_a_load_is_split_by_the_slots_and_connects_as_often_as_it_may(
    postgres_url: str,
    allowed: str,
    workers: int,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
        monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    monkeypatch.setenv("EMATIX_FLOW_SPARK_MAX_CONNECTIONS", allowed)
    monkeypatch.setattr(postgres_splits, "MIN_PAGES", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE items AS SELECT g AS id, repeat('x', 100) AS name FROM generate_series(1, {ROWS}) AS g"
        )
    ematix.connection(type("shop", (), {"kind": "postgres", "url": postgres_url}))
    table = ematix.table(schema="copies", name="items")(
        type("Items", (), {"__annotations__": {"id": Annotated[BigInt, pk()], "name": Text}})
    )
    calls: list[tuple[int, int | None]] = []
    in_threads, in_tasks = threads.stage_in_threads, tasks.stage_partitions

    def watch(partitions: Any, at_once: int | None) -> None:
        calls.append((len(partitions), at_once))
        # What comes now belongs to none of the parts: all of them read one snapshot.
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("INSERT INTO items SELECT g, 'late' FROM generate_series(-400, 0) AS g")

    def watched(partitions: Any, at_once: int | None = None) -> Any:
        watch(partitions, at_once)
        return in_threads(partitions, at_once)

    def watched_on_spark(spark: Any, partitions: Any, at_once: int | None, carrier: Any) -> Any:
        watch(partitions, at_once)
        return in_tasks(spark, partitions, at_once, carrier)

    monkeypatch.setattr(threads, "stage_in_threads", watched)
    monkeypatch.setattr(tasks, "stage_partitions", watched_on_spark)

    @ematix.pipeline(
        target=table, source_connection="shop", target_connection="shop", mode="append", force_path="cross_db"
    )
    def copies(conn: object) -> str:
        return "SELECT id, name FROM items"

    result = copies()
    assert (result["engine"], result["rows_inserted"]) == (engine, ROWS)
    ((partitions, at_once),) = calls
    assert partitions == 4
    assert at_once is not None
    assert min(partitions, at_once) == workers
