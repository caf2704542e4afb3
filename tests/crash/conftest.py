"""A nursery per test process, and an empty target of every database."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.crash.folders import FOLDER
from tests.crash.journey import CrashTarget, create_source
from tests.crash.lakes import LAKE_KINDS, leave
from tests.crash.nursery import Nursery
from tests.depth import deep_but
from tests.lakes.targets import lake_fields
from tests.services.spark import SparkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOADS = 600
KINDS = [
    pytest.param("duckdb", id="duckdb"),
    pytest.param("sqlite", id="sqlite"),
    pytest.param("postgres", id="postgres", marks=pytest.mark.service),
    pytest.param("mysql", id="mysql", marks=pytest.mark.service),
    pytest.param(FOLDER, id="files"),
]
GAPS = {
    "test_a_row_of_64_mebibytes_is_loaded_or_refused": "a merge, which files do not do",
    "test_two_pipelines_write_one_table": "a merge, which files do not do",
    "test_thousands_of_orphans_are_collected": "its first load is a merge; staging is a folder that comes with its first file",
    "test_foreign_staging_is_left_alone": "staging is a folder that comes with its first file",
    "test_a_collection_at_age_zero_spares_what_an_open_run_needs": "staging is a folder that comes with its first file",
}
"""Tests that say nothing about folders of files, each with the reason."""


def on(*quick: str) -> pytest.MarkDecorator:
    """Let a test have a target of these kinds always, and of the others with `--deep` only."""
    return pytest.mark.parametrize("target", deep_but(KINDS, *quick), indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what folders of files do not do."""
    left_out = [item for item in items if _is_gap(item)]
    items[:] = [item for item in items if not _is_gap(item)]
    config.hook.pytest_deselected(items=left_out)


def _is_gap(item: pytest.Item) -> bool:
    given = getattr(getattr(item, "callspec", None), "params", {})
    if given.get("target") != FOLDER:
        return False
    mode, point = given.get("mode", "append"), given.get("point", "")
    return item.originalname in GAPS or mode not in ("append", "truncate") or point.startswith("post.")  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Return the process that forks the children of this test process."""
    opened = Nursery(tmp_path_factory.mktemp("nursery"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def lake_nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Return the process that forks children for lake tables."""
    opened = Nursery(tmp_path_factory.mktemp("nursery"), lakes=True)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    """Return the Spark that outlives the children; a test that crashes it starts it again."""
    server = SparkServer(tmp_path_factory.mktemp("spark"))
    server.start()
    yield server
    leave(server.remote)
    server.close()


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source file that every crash test reads."""
    path = tmp_path_factory.mktemp("events") / "events.sqlite"
    create_source(path, LOADS)
    return path


@pytest.fixture
def target_of(request: pytest.FixtureRequest, events: Path, tmp_path: Path) -> Callable[[str], CrashTarget]:
    """Return the function that creates an empty target of a kind."""

    def create(kind: str) -> CrashTarget:
        if kind in LAKE_KINDS:
            server = request.getfixturevalue("spark_server")
            # A folder that no other test had: the server keeps the database of a catalog open.
            folder = tmp_path / f"{kind}-{uuid4().hex}"
            folder.mkdir()
            log = str(tmp_path / f"{kind}_log.db")
            return CrashTarget(kind, lake_fields(kind, folder), str(events), log, "crash", server.remote)
        if kind == FOLDER:
            fields, schema = {"path": str(tmp_path / "lake"), "format": "parquet"}, "crash"
        elif kind in ("duckdb", "sqlite"):
            fields, schema = {"path": str(tmp_path / f"target.{kind}")}, "crash" if kind == "duckdb" else "main"
        else:
            url = request.getfixturevalue(f"{kind}_url")
            # On MySQL a schema is a database, and only this one goes away with the test.
            fields, schema = {"url": url}, "crash" if kind == "postgres" else url.rsplit("/", 1)[1]
        return CrashTarget(kind, fields, str(events), str(tmp_path / "run_log.db"), schema)

    return create


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, target_of: Callable[[str], CrashTarget]) -> CrashTarget:
    """Return an empty target of each kind in turn."""
    return target_of(request.param)
