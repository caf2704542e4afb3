"""Every engine keeps the protocol: pieces are staged once each, under numbers of their own, and errors come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow.errors import RunError
from ematix_flow.run.engine import SparkEngine, Tasks
from ematix_flow.run.local.threads import LocalEngine
from ematix_flow.run.spark.errors import reason_of
from ematix_flow.run.spark.slots import session_slots
from tests.services.sail import sail_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ematix_flow.records import TaskReport
    from ematix_flow.run.engine import Engine

PARTITIONS = 7


@pytest.fixture(scope="module")
def on_sail() -> Iterator[SparkSession]:
    """Return a session on a server of Sail."""
    with sail_session() as session:
        yield session


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark), "sail"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return each engine in turn."""
    if request.param == "local":
        return LocalEngine()
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    session = request.getfixturevalue("warm_spark" if request.param == "spark" else "on_sail")
    return SparkEngine(lambda _imports=(): session, lambda: session_slots(session))


def staged_in(folder: str) -> Callable[..., TaskReport]:
    """Return a piece that writes a file under its numbers, and fails if another one did already."""

    def part(position: tuple[int, int], *, cancel_check: Callable[[], None] | None = None) -> TaskReport:
        from pathlib import Path

        from ematix_flow.records import TaskReport

        del cancel_check
        partition, attempt = position
        with Path(folder, f"{partition}-{attempt}").open("x") as file:
            file.write("rows")
        return TaskReport(partition, attempt, 3)

    return part


def that_fails() -> Callable[..., TaskReport]:
    """Return a piece that fails for good; workers have no modules of tests, so it is made here."""

    def part(attempt: tuple[int, int], *, cancel_check: Callable[[], None] | None = None) -> TaskReport:
        from ematix_flow.errors import RunError

        del attempt, cancel_check
        raise RunError("this piece cannot be read")

    return part


@pytest.mark.parametrize("at_once", [None, 2])
def test_every_piece_is_staged_once_under_numbers_of_its_own(
    engine: Engine, at_once: int | None, tmp_path: Path
) -> None:
    parts = engine.stage_partitions([staged_in(str(tmp_path))] * PARTITIONS, Tasks(at_once=at_once))
    assert sorted(f"{part.partition}-{part.attempt}" for part in parts) == sorted(
        one.name for one in tmp_path.iterdir()
    )
    assert [len(parts), sum(part.rows for part in parts)] == [PARTITIONS, 3 * PARTITIONS]


def test_nothing_is_staged_of_nothing(engine: Engine) -> None:
    assert engine.stage_partitions([], Tasks()) == ()


def test_an_engine_says_how_many_pieces_it_stages_at_a_time(engine: Engine) -> None:
    assert engine.slots() >= 1


def test_a_piece_that_fails_for_good_fails_the_load_with_its_words(engine: Engine, tmp_path: Path) -> None:
    partitions = [staged_in(str(tmp_path)), that_fails()]
    with pytest.raises(RunError, match="this piece cannot be read"):
        staged_with_error(engine, partitions)


def staged_with_error(engine: Engine, partitions: list[Callable[..., TaskReport]]) -> None:
    """Stage pieces; an error comes as a load tells it."""
    try:
        engine.stage_partitions(partitions, Tasks())
    except Exception as error:  # noqa: BLE001 - of Spark, of Sail or of ours
        raise reason_of(error) from None
