"""Fixtures that every test may use: real servers, a real Spark session and a process that starts from nothing.

Servers belong to one test process (starting one takes about a second) and start when the first test asks for them.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql import SparkSession

    from tests.services.azure import AzureServer
    from tests.services.debezium import DebeziumServer
    from tests.services.gcs import GcsServer
    from tests.services.kafka import KafkaBroker
    from tests.services.mariadb import MariaDBServer
    from tests.services.postgres import PostgresServer
    from tests.services.pubsub import PubSubServer
    from tests.services.rabbitmq import RabbitMQServer
    from tests.services.registry import RegistryServer
    from tests.services.s3 import S3Server
    from tests.services.server import DatabaseServer, Server
    from tests.services.standalone import ConnectServer, Standalone

ENGINES = ("spark", "local", "cluster", "connect")
STREAM_ENGINES = ("local", "spark")
_SERVERS = pytest.StashKey[dict[str, "Server"]]()
_Server = TypeVar("_Server", bound="Server")
_TESTS = itertools.count()
_ENGINES_VARIABLE = "FLOW_TEST_ENGINES"
"""Where processes of a test run find the folder of the warm engine that they share."""

# No deadline: the machine may be busy with a second test process. No database: tests run in folders that vanish.
hypothesis.settings.register_profile("flow", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("flow")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this suite."""
    parser.addoption("--durable", action="store_true", help="let the database servers wait for the disk (fsync)")
    parser.addoption("--deep", action="store_true", help="run the tests marked deep too, and kill and try more often")
    parser.addoption(
        "--contract-engine",
        choices=ENGINES,
        default="spark",
        help="who moves the rows of contract tests: the warm engine that all test processes share, threads, "
        "a cluster whose executors have another disk, or a Connect server on it",
    )
    parser.addoption(
        "--stream-engine",
        choices=STREAM_ENGINES,
        default="local",
        help="who moves the rows of tests of streams that do not say it themselves: threads, or a Spark of the test process",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the places where running servers and prepared Java classes are kept."""
    config.stash[_SERVERS] = {}
    if config.getoption("deep"):
        os.environ["FLOW_TEST_DEEP"] = "1"  # for tests/depth.py, which nobody may import before this
    # Sessions start quicker from the classes that an earlier one prepared; the user's own cache stays as it is.
    os.environ["XDG_CACHE_HOME"] = str(config.rootpath / ".pytest_cache" / "home")
    if not hasattr(config, "workerinput"):
        os.environ[_ENGINES_VARIABLE] = mkdtemp(prefix="engines-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the warm engine that the test processes shared."""
    if not hasattr(config, "workerinput") and (folder := os.environ.pop(_ENGINES_VARIABLE, "")):
        from tests.services.engines import end_engines

        end_engines(Path(folder))
        rmtree(folder, ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files whose own marks say that none of their tests is wanted; to import them takes seconds."""
    expression: str = config.option.markexpr
    if collection_path.suffix != ".py" or not _EXCLUDING.fullmatch(expression):
        return None
    markers = _FILE_MARKERS.search(collection_path.read_text("utf-8"))
    excluded = set(_EXCLUDED.findall(expression))
    return True if markers is not None and excluded.intersection(_MARKER.findall(markers[0])) else None


_EXCLUDING = re.compile(r"not \w+(?: and not \w+)*")
"""What is wanted, where that only leaves tests out: then further marks of a test change nothing."""
_EXCLUDED = re.compile(r"not (\w+)")
_FILE_MARKERS = re.compile(r"^pytestmark = .*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"pytest\.mark\.(\w+)")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that share a Spark session in one test process, and begin with those that take longest."""
    if not config.getoption("deep"):
        chosen = _in_turn([item for item in items if not item.get_closest_marker("deep")])
        chosen_ones = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen_ones])
        items[:] = chosen
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: _haste(item, config))


def _in_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests without the combinations that are left to deep runs: every value of each parameter stays, in turn."""
    chosen = {item: _parameters(item) for item in items if item.get_closest_marker("in_turn")}
    values: dict[str, dict[str, list[str]]] = {}
    for item, parameters in chosen.items():
        for name, value in parameters.items():
            known = values.setdefault(_function(item), {}).setdefault(name, [])
            if value not in known:
                known.append(value)
    turns = {
        function: [{name: known[turn % len(known)] for name, known in axes.items()} for turn in range(_most(axes))]
        for function, axes in values.items()
    }
    return [item for item in items if item not in chosen or chosen[item] in turns[_function(item)]]


def _most(axes: dict[str, list[str]]) -> int:
    return max(map(len, axes.values()))


def _parameters(item: pytest.Item) -> dict[str, str]:
    return {name: repr(value) for name, value in item.callspec.params.items()}  # type: ignore[attr-defined]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _haste(item: pytest.Item, config: pytest.Config) -> int:
    """Return the place of a test in the run: one that takes minutes must not be the last to begin."""
    path = str(item.path.relative_to(config.rootpath))
    if item.get_closest_marker("xdist_group"):
        return 0
    return 1 if path.startswith("tests/crash") else 2 if path.startswith("tests/contracts") else 3


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the servers that a failed test used."""
    report = yield
    if report.failed:
        used = getattr(item, "fixturenames", ())
        for fixture, server in item.config.stash[_SERVERS].items():
            if fixture in used:
                report.sections.append((f"log of {server.name}", server.log_tail()))
    return report


def _last_module() -> str:
    return next(reversed(sys.modules))


def _forget_modules(folder: Path, last: str) -> None:
    """Forget modules that a test wrote and imported after the last one: the next test has others under their names."""
    sys.path[:] = [path for path in sys.path if not path.startswith(str(folder))]
    # Newest first, and a copy only where there is something new: collected garbage may import something meanwhile.
    newest_first = reversed(sys.modules.copy()) if _last_module() != last else ()
    for name in itertools.takewhile(lambda name: name != last, newest_first):
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def blank_surroundings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Begin each test with an empty home, an empty working folder, no settings in the environment and no declarations."""
    # Not by mktemp, which looks at all folders that there are for a free number: a third of the time of quick tests.
    folder = tmp_path_factory.getbasetemp() / "each" / str(next(_TESTS))
    for name in ("home", "cwd"):
        (folder / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.chdir(folder / "cwd")
    for name in [name for name in os.environ if name.startswith("EMATIX_FLOW_")]:
        monkeypatch.delenv(name)
    # Most tests are about something else than the engine, and a session of Spark for each would take hours; tests with
    # `on_spark` and the contract suite move rows through Spark.
    streams = "streams" in {request.path.stem.rpartition("_")[2], request.path.parent.name}
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", request.config.getoption("stream_engine") if streams else "local")
    monkeypatch.setenv("EMATIX_FLOW_SPARK_WARM", "off")
    if request.node.get_closest_marker("spark") and not request.config.getoption("deep"):
        _be_quick(monkeypatch, QUICK)
    _forget_declarations()
    last = _last_module()
    yield
    _forget_declarations()
    _forget_modules(tmp_path_factory.getbasetemp(), last)
    if (sessions := sys.modules.get("ematix_flow.engine.spark.session")) is not None:
        sessions.share_engine(share=False)  # as a command that was called in this process had wished


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    """Return the PostgreSQL of this test process; a test that crashes it may leave it down."""
    from tests.services.postgres import PostgresServer

    server = PostgresServer(durable=pytestconfig.getoption("durable"))
    yield from _running(server, "postgres_server", pytestconfig)


@pytest.fixture(scope="session")
def mysql_server(pytestconfig: pytest.Config) -> Iterator[MariaDBServer]:
    """Return the MariaDB of this test process; a test that crashes it may leave it down."""
    from tests.services.mariadb import MariaDBServer

    server = MariaDBServer(durable=pytestconfig.getoption("durable"))
    yield from _running(server, "mysql_server", pytestconfig)


@pytest.fixture(scope="session")
def s3_server(pytestconfig: pytest.Config) -> Iterator[S3Server]:
    """Return the S3 service of this test process; a test that crashes it finds it empty."""
    from tests.services.s3 import S3Server

    yield from _running(S3Server(), "s3_server", pytestconfig)


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Iterator[KafkaBroker]:
    """Return the Kafka broker of this test process; a test that crashes it starts it again."""
    from tests.services.kafka import KafkaBroker

    yield from _running(KafkaBroker(), "kafka_broker", pytestconfig)


@pytest.fixture(scope="session")
def debezium_server(kafka_broker: KafkaBroker, pytestconfig: pytest.Config) -> Iterator[DebeziumServer]:
    """Return Debezium, which writes into the Kafka of this test process; a test that crashes it starts it again."""
    from tests.services.debezium import DebeziumServer

    yield from _running(DebeziumServer(kafka_broker), "debezium_server", pytestconfig)


@pytest.fixture(scope="session")
def registry_server(pytestconfig: pytest.Config) -> Iterator[RegistryServer]:
    """Return the schema registry of this test process; a test that crashes it finds it empty."""
    from tests.services.registry import RegistryServer

    yield from _running(RegistryServer(), "registry_server", pytestconfig)


@pytest.fixture(scope="session")
def rabbitmq_server(pytestconfig: pytest.Config) -> Iterator[RabbitMQServer]:
    """Return the RabbitMQ of this test process; a test that crashes it starts it again."""
    from tests.services.rabbitmq import RabbitMQServer

    yield from _running(RabbitMQServer(), "rabbitmq_server", pytestconfig)


@pytest.fixture(scope="session")
def pubsub_server(pytestconfig: pytest.Config) -> Iterator[PubSubServer]:
    """Return the Pub/Sub server of this test process; a test that crashes it finds it empty."""
    from tests.services.pubsub import PubSubServer

    yield from _running(PubSubServer(), "pubsub_server", pytestconfig)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Standalone]:
    """Return the standalone Spark cluster of this test process, whose executors see neither our disk nor our source tree."""
    from tests.services.standalone import Standalone

    standalone = Standalone()
    try:
        standalone.start()
        yield standalone
    finally:
        standalone.close()


@pytest.fixture(scope="session")
def connect_server(cluster: Standalone) -> Iterator[ConnectServer]:
    """Return a Spark Connect server whose tasks run on the cluster."""
    from tests.services.standalone import ConnectServer

    server = ConnectServer(cluster)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> Iterator[str]:
    """Return the name of an empty bucket."""
    yield from _database(s3_server)


@pytest.fixture(scope="session")
def azure_server(pytestconfig: pytest.Config) -> Iterator[AzureServer]:
    """Return the Azure Blob Storage of this test process; a test that crashes it finds it empty."""
    from tests.services.azure import AzureServer

    yield from _running(AzureServer(), "azure_server", pytestconfig)


@pytest.fixture
def azure_bucket(azure_server: AzureServer) -> Iterator[str]:
    """Return the name of an empty container."""
    yield from _database(azure_server)


@pytest.fixture(scope="session")
def gcs_server(pytestconfig: pytest.Config) -> Iterator[GcsServer]:
    """Return the Google Cloud Storage of this test process; a test that crashes it finds it empty."""
    from tests.services.gcs import GcsServer

    yield from _running(GcsServer(), "gcs_server", pytestconfig)


@pytest.fixture
def gcs_bucket(gcs_server: GcsServer) -> Iterator[str]:
    """Return the name of an empty bucket."""
    yield from _database(gcs_server)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the URL of an empty PostgreSQL database, dropped after the test."""
    yield from _database(postgres_server)


@pytest.fixture
def mysql_url(mysql_server: MariaDBServer) -> Iterator[str]:
    """Return the URL of an empty MariaDB database, dropped after the test."""
    yield from _database(mysql_server)


@pytest.fixture
def duckdb_path(tmp_path: Path) -> Path:
    """Return the path of a DuckDB file that does not exist yet."""
    return tmp_path / "test.duckdb"


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    """Return the path of an SQLite file that does not exist yet."""
    return tmp_path / "test.sqlite"


@pytest.fixture
def spark(blank_surroundings: None) -> SparkSession:
    """Return the Spark session of this test process, the one that a flow with the settings of the test gets too.

    It is the one of the test before, unless that had another one or ended it.
    """
    from ematix_flow.engine.spark.session import session_settings
    from ematix_flow.run.spark.session import spark_session

    return spark_session(session_settings())


@pytest.fixture(scope="session")
def warm_spark() -> Iterator[SparkSession]:
    """Return a session of this test process on the warm engine that all test processes share."""
    from tests.services.engines import shared_session

    with shared_session(Path(os.environ[_ENGINES_VARIABLE])) as session:
        yield session


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of the warm engine that the commands of a file of tests share, and end it after them."""
    from tests.services.engines import end_engines

    folder = tmp_path_factory.mktemp("engines")
    yield folder
    end_engines(folder)


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every retry follow its failure at once, as often as its policy says."""
    from ematix_flow.connect.base.retry import RetryPolicy

    monkeypatch.setattr(RetryPolicy, "wait_after", lambda *_: 0.0)


@pytest.fixture
def quick_lakes(blank_surroundings: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let lake tables of all kinds share one Spark session, which does not write Java for every query of a few rows."""
    from ematix_flow.connect.base.lake_engine import SparkRequirements
    from ematix_flow.connect.delta import table as delta
    from ematix_flow.connect.iceberg import catalog as iceberg_catalog
    from ematix_flow.connect.storage import s3_spark
    from ematix_flow.engine.spark.session import require

    packages = (iceberg_catalog.PACKAGE, *iceberg_catalog.DRIVERS.values())
    tables = (
        delta.REQUIREMENTS
        + delta.LOG_STORE_REQUIREMENTS
        + SparkRequirements(packages, tuple(iceberg_catalog.EXTENSIONS.items()))
    )
    require(tables + s3_spark.REQUIREMENTS + iceberg_catalog.GLUE)
    _be_quick(monkeypatch, QUICK)
    yield
    _forget_delta_tables()


@pytest.fixture
def quick_streams(blank_surroundings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams run in the session that tests of a few messages share."""
    _be_quick(monkeypatch, QUICK_STREAMS)


def _forget_delta_tables() -> None:
    """Let the session of this process forget its tables, which Delta keeps for an hour: hundreds of them fill the heap."""
    pyspark = sys.modules.get("pyspark")
    context = pyspark.SparkContext._active_spark_context if pyspark is not None else None
    if context is None or context._jvm is None:
        return
    from py4j.protocol import Py4JError

    with suppress(Py4JError, TypeError):  # its Java has died, or has no Delta
        context._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def _be_quick(monkeypatch: pytest.MonkeyPatch, conf: dict[str, str]) -> None:
    # What the second compiler of Java makes of tiny queries is never worth its time.
    monkeypatch.setenv("EMATIX_FLOW_SPARK_PROFILE", "short")
    for key, value in conf.items():
        monkeypatch.setenv(f"EMATIX_FLOW_SPARK_CONF_{key.replace('.', '__')}", value)


QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Spark writes down every plan, and the plans with which Delta reads its log are long.
    "spark.sql.debug.maxToStringFields": "0",
    # A session of tests has hundreds of catalogs and buckets, each with a configuration of thousands of entries.
    "spark.driver.memory": "2g",
}
"""What makes tiny queries cheap and large ones slow."""

QUICK_STREAMS = QUICK | {"spark.sql.shuffle.partitions": "2"}
"""The same for streams, whose state is in more than one place."""


def _forget_declarations() -> None:
    from ematix_flow.connect.config.secrets import forget_secrets
    from ematix_flow.declare.connection.registry import clear_registry
    from ematix_flow.declare.project import PROJECT

    forget_secrets()
    clear_registry()
    PROJECT.clear()


def _running(server: _Server, fixture: str, config: pytest.Config) -> Iterator[_Server]:
    config.stash[_SERVERS][fixture] = server
    try:
        server.start()
        yield server
    finally:
        server.close()


def _database(server: DatabaseServer) -> Iterator[str]:
    server.start()
    url = server.create_database()
    yield url
    server.start()
    server.drop_database(url)


@pytest.fixture
def stateful(quick_streams: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave the engine to the product, and keep the state of streams below the folder of the test."""
    monkeypatch.delenv("EMATIX_FLOW_ENGINE")
    monkeypatch.setenv("EMATIX_FLOW_CHECKPOINT_ROOT", str(tmp_path / "checkpoints"))
    # What windows may need by their limits is no matter of the rows that they give out.
    monkeypatch.setenv("EMATIX_FLOW_STATE_SIZE_WARN_BYTES", "0")
