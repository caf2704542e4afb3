"""One database after the other, for tests that hold for all of them."""

from __future__ import annotations

from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.run_log import SqliteRunLog
from tests.contracts.file_flows import FileFlow
from tests.contracts.flows import Flow
from tests.contracts.lake_flows import LakeFlow
from tests.contracts.system_tables import SystemTable
from tests.contracts.systems import (
    BUCKET,
    DATABASES_ONLY,
    FILES,
    FOLDERS,
    GAP_MODES,
    GAPS,
    PARAMETERS,
    SCHEMAS,
    SYSTEMS,
    Folder,
    Lake,
    lakes_for,
    parameter,
)
from tests.depth import quick_or_deep
from tests.services.engines import CONNECT_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session
    from ematix_flow.declare.table.schema import Table
    from tests.contracts.systems import System


REMOTE_ENGINES = ("cluster", "connect")
"""Engines whose executors see no file of this machine."""


COMPARED = ("test_engines_alike",)
"""Files of tests that compare Spark with threads, and say nothing where threads move the rows anyway."""

OF_THIS_DISK = ("test_files_give_the_same_values_and_rejects",)
"""Tests that read files of this machine."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests on every system; those of flows on folders of files too, in every format if loads are all they are about."""
    chosen = {marker.args[0] for marker in metafunc.definition.iter_markers("parametrize")}
    if "system" not in metafunc.fixturenames or "system" in chosen:
        return
    names = {metafunc.function.__name__, metafunc.function.__module__.rpartition(".")[2]}
    folders = (*FOLDERS, BUCKET) if "test_append_and_truncate" in names else FILES
    assert "flows" in metafunc.fixturenames or names & set(DATABASES_ONLY), "a gap that is not declared"
    if names & {*GAPS, *DATABASES_ONLY}:
        folders = ()
    lakes = lakes_for(names)
    more = [*(parameter(folder) for folder in folders), *(parameter(lake, *_on_spark(lake)) for lake in lakes)]
    metafunc.parametrize("system", [*PARAMETERS, *more], indirect=True)


def _on_spark(lake: Lake) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of a lake: those of a deep run take four sessions a quarter of an hour each, the others one a minute."""
    return pytest.mark.spark, pytest.mark.xdist_group(quick_or_deep("lakes", f"{lake.variant}_contracts"))


@pytest.hookimpl(tryfirst=True)  # before tests that are marked deep are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what says nothing about a system or an engine, and leave variations of systems to `--deep`."""
    engine = config.getoption("contract_engine")
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    left_out = {item for item in ours if not (_applies(item) and _is_reached(item, engine))}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])
    variations = [item for item in ours if _is_variation(item)]
    tried = {item.originalname for item in {*ours} - {*variations}}  # type: ignore[attr-defined]
    for item in variations:
        if item.originalname in tried or _given(item)["system"].kind not in IN_TURN:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.deep)


IN_TURN = ("duckdb", "postgres")
"""Systems of which every run tries the whole suite on one: PostgreSQL stages, DuckDB loads its own rows, and what has one path takes turns."""


LAKE_MODES = {
    "delta": ("test_append_and_truncate", "test_merge", "test_scd2_load_time", "test_scd2_event_time"),
    "iceberg": ("test_append_and_truncate", "test_merge"),
}
"""Tests of modes that every run tries on lakes, by one path: a load of Spark's takes seconds there."""


def _is_variation(item: pytest.Item) -> bool:
    """Return whether other tests show as much in minutes less: two systems in turn, the others by a path per mode."""
    given = _given(item)
    system = given.get("system")
    if system is None or "flows" not in getattr(item, "fixturenames", ()):
        return False
    if item.get_closest_marker("every_system") is not None:
        return isinstance(system, Lake) and (system.server or item.path.stem not in LAKE_MODES[system.kind])
    return system.kind != _turn_of(item, given.get("path"))


def _turn_of(item: pytest.Item, path: str | None) -> str:
    """Return the system that tries a test which is not tried on every one."""
    if path is None:
        return IN_TURN[crc32(item.originalname.encode()) % len(IN_TURN)]  # type: ignore[attr-defined]
    return "duckdb" if path == "same_db" else "postgres"


def _is_reached(item: pytest.Item, engine: str) -> bool:
    """Return whether an engine moves the rows of a test: executors of other machines reach servers, and no files of ours.

    The first engine has every test; the others have not those in which no engine moves anything.
    """
    if engine == "spark":
        return True
    given = _given(item)
    if given.get("path", "staged") == "same_db" or "flows" not in getattr(item, "fixturenames", ()):
        return False
    if engine == "local":
        return item.path.stem not in COMPARED
    servers = getattr(given.get("system"), "kind", "") in ("postgres", "mysql")
    return servers and item.originalname not in OF_THIS_DISK  # type: ignore[attr-defined]


def _given(item: pytest.Item) -> dict[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _applies(item: pytest.Item) -> bool:
    """Return whether a test can be about its system: files and lakes have no rows of their own to load within."""
    given = _given(item)
    system = given.get("system")
    if isinstance(system, Lake):
        return given.get("path", "staged") == "staged"
    return not isinstance(system, Folder) or (given.get("mode") not in GAP_MODES and given.get("path") != "same_db")


@pytest.fixture
def system(request: pytest.FixtureRequest) -> System:
    """Return each system in turn."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def database(system: System, request: pytest.FixtureRequest) -> Iterator[Database]:
    """Return an empty database of each system in turn."""
    opened = system.open(request)
    yield opened
    _drop_schemas(system, opened)


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    """Return a control connection to the database."""
    with closing(database.session()) as opened:
        yield opened


@pytest.fixture
def path() -> str:
    """Return the path that loads take, unless a test asks for others."""
    return "staged"


@pytest.fixture(scope="session")
def far_spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Return a session on the cluster, by itself or through a Connect server."""
    from ematix_flow.declare.spark_settings import settings_from
    from ematix_flow.run.spark.session import spark_session, stop_session

    variables = request.getfixturevalue("cluster").settings()
    if request.config.getoption("contract_engine") == "connect":
        variables = {"EMATIX_FLOW_SPARK_REMOTE": request.getfixturevalue("connect_server").remote}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield spark_session(settings_from({}, variables))
        stop_session()


@pytest.fixture
def flows(
    system: System, path: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Flow]]:
    """Return the function that makes a flow on each system in turn: its table, and options of its write or its own."""
    connection = system.connect(request)
    source = connection
    if isinstance(system, Lake):
        request.getfixturevalue("quick_lakes")
    if isinstance(system, Folder | Lake):
        source = connection_from_fields(
            "source", {"kind": "duckdb", "path": str(request.getfixturevalue("duckdb_path"))}
        )
    engine = request.config.getoption("contract_engine")
    spark, moves = None, path != "same_db" and engine != "local"
    if moves and isinstance(system, Lake):
        monkeypatch.setenv(ENGINE_VARIABLE, "spark")  # the session that writes the lake moves its rows too
    elif moves:
        spark = request.getfixturevalue("far_spark" if engine in REMOTE_ENGINES else "warm_spark")
        if engine != "cluster":
            monkeypatch.setenv(CONNECT_MODE, "1")
    log = SqliteRunLog(tmp_path / "run_log.db")

    def create(table: Table, name: str = "flow", **options: Any) -> Flow:
        own = {key: options.pop(key) for key in ("source", "declared", "query", "files") if key in options}
        if isinstance(system, Folder):
            return FileFlow(connection, table, options, path, spark, log, name, held=held, origin=source, **own)
        if isinstance(system, Lake):
            return LakeFlow(connection, table, options, path, spark, log, name, held=held, origin=source, **own)
        return Flow(connection, table, options, path, spark, log, name, held=held, **own)

    database = open_database(source)
    # A DuckDB file that stays open is not opened anew for each of a load's sessions; tasks could not open it then.
    with nullcontext() if moves else closing(database.session()) as held:
        yield create
    _drop_schemas(system, database)


@pytest.fixture
def every_table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Table, bool], list[SystemTable]]]:
    """Return the function that empties a table on all systems at once; every other one of them is staged."""
    log = SqliteRunLog(tmp_path / "run_log.db")
    connections = [(system, system.connect(request)) for system in SYSTEMS]
    tables: dict[str, list[SystemTable]] = {}

    def cleared(table: Table, swap: bool) -> list[SystemTable]:
        if table.name not in tables:
            for session, (_, connection) in zip(sessions, connections, strict=True):
                flow = Flow(connection, table, {"mode": "append"}, "staged", None, log, held=session)
                tables.setdefault(table.name, []).append(SystemTable(flow))
        for number, system_table in enumerate(tables[table.name]):
            system_table.staged = number % 2 == swap
            system_table.clear()
        return tables[table.name]

    with ExitStack() as stack:
        opened = [closing(open_database(connection).session()) for _, connection in connections]
        sessions = [stack.enter_context(one) for one in opened]
        yield cleared
    for system, connection in connections:
        _drop_schemas(system, open_database(connection))


def _drop_schemas(system: System, database: Database) -> None:
    if system.schemas_outlive:
        with closing(database.session()) as session:
            for schema in SCHEMAS:
                session.execute(f"DROP DATABASE IF EXISTS `{schema}`")
