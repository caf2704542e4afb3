"""Checks this machine and whether the connections answer, each within a few seconds; it changes nothing."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ematix_flow.connect.config.lookup import list_connections, resolve_connection
from ematix_flow.connect.config.redact import redact, safe_text
from ematix_flow.connect.registry import DATABASES, FILES, LAKES, open_database, open_system
from ematix_flow.declare.pipeline.warehouse import WAREHOUSES
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.warehouse.open import open_warehouse
from ematix_flow.errors import FlowError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.connection.registry import Connection

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 15.0
"""After this a connection counts as one that does not answer, whatever its driver waits for."""


class Skipped(Exception):  # noqa: N818 - not an error: nothing can be said
    """A connection that cannot be checked from this machine."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of one component."""

    name: str
    kind: str
    status: str
    """ok, fail or skip."""
    detail: str
    elapsed_ms: int = 0
    extras: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


def run_doctor() -> list[HealthReport]:
    """Return a report on every named connection, by name; they are checked in parallel."""
    waiting = [(name, listed.kind, _start_check(name)) for name, listed in list_connections().items()]
    return [_answer(name, kind, answers) for name, kind, answers in waiting]


def check_health(name: str) -> HealthReport:
    """Return a report on one connection."""
    return _answer(name, "unknown", _start_check(name))


def machine_health() -> list[HealthReport]:
    """Return reports on Python, Java, Spark, the run log and the scheduler of this machine."""
    checks = (("python", _python), ("java", _java), ("spark", _spark), ("run log", _run_log), ("scheduler", _scheduler))
    return [_timed(name, "machine", probe) for name, probe in checks]


def _start_check(name: str) -> SimpleQueue[HealthReport]:
    """Check a connection in a thread of its own, since some drivers have no timeout."""
    answers: SimpleQueue[HealthReport] = SimpleQueue()
    Thread(target=lambda: answers.put(_connection_health(name)), name=f"asking {name}", daemon=True).start()
    return answers


def _answer(name: str, kind: str, answers: SimpleQueue[HealthReport]) -> HealthReport:
    try:
        return answers.get(timeout=ANSWER_SECONDS)
    except Empty:
        return HealthReport(name, kind, "fail", f"no answer within {ANSWER_SECONDS:.0f} s", int(ANSWER_SECONDS * 1000))


def _connection_health(name: str) -> HealthReport:
    try:
        connection = resolve_connection(name)
    except FlowError as error:
        kind = list_connections()[name].kind if name in list_connections() else "unknown"
        return HealthReport(name, kind, "fail", redact(error.what))
    return _timed(name, connection.kind, lambda: _probe(connection))


def _timed(name: str, kind: str, probe: Callable[[], str]) -> HealthReport:
    started = time.perf_counter()
    try:
        status, detail = "ok", probe()
    except Skipped as why:
        status, detail = "skip", str(why)
    except FlowError as error:
        status, detail = "fail", " ".join(filter(None, (error.what, error.hint)))
    except Exception as error:  # noqa: BLE001 - the engine's boundary: drivers have exceptions of their own
        status, detail = "fail", safe_text(error)
    elapsed = int((time.perf_counter() - started) * 1000)
    return HealthReport(name, kind, status, redact(" ".join(detail.split())), elapsed)


def _probe(connection: Connection) -> str:
    """Return a message about a connection that answers."""
    kind = connection.kind
    if kind in DATABASES:
        return _database(connection)
    if kind in FILES or kind in LAKES:
        return str(open_system(connection).probe())
    if kind in _BROKERS:
        return _broker(connection)
    if kind == "schema_registry":
        return _registry(connection)
    if kind in WAREHOUSES:
        return _warehouse(connection)
    raise Skipped(f"{kind} can be checked by its own service's tools only")


def _database(connection: Connection) -> str:
    path = str(getattr(connection, "path", ""))
    if path and path != ":memory:" and not Path(path).exists():
        # Opening the file would create it, and a check changes nothing.
        if not os.access(_existing(Path(path).absolute().parent), os.W_OK):
            raise OSError(f"{path} does not exist and cannot be created")
        return f"{path} does not exist yet; the first run creates it"
    return str(open_database(connection).probe())


def _warehouse(connection: Connection) -> str:
    """Log in at a warehouse and run a query that reads nothing; without its package it is not checked."""
    try:
        session = open_warehouse(connection, connection.kind)
    except MissingExtraError as missing:
        raise Skipped(f"{missing.what}; {missing.hint}") from None
    with closing(session):
        session.query("SELECT 1")
    return f"{connection.kind} lets us in"


def _broker(connection: Any) -> str:
    """Log in at a broker; without its package only whether its port accepts connections is checked."""
    try:
        return _BROKERS[connection.kind](connection)
    except MissingExtraError as missing:
        listening = {
            "kafka": lambda: _tcp(connection.bootstrap_servers.split(",")[0].strip(), 9092),
            "rabbitmq": lambda: _tcp(urlsplit(connection.amqp_url).netloc.rpartition("@")[2], 5672),
        }
        if connection.kind not in listening:
            raise Skipped(f"{missing.what}; {missing.hint}") from None
        return f"{listening[connection.kind]()}; the login was not checked: {missing.what}"


def _kafka(connection: Any) -> str:
    from ematix_flow.connect.kafka.cluster import Kafka

    return Kafka(connection).probe()


def _rabbitmq(connection: Any) -> str:
    from ematix_flow.connect.rabbitmq.client import RabbitMQBackend

    backend = RabbitMQBackend.open(connection.amqp_url)
    backend.ping()
    backend.close()
    return "the broker lets us in"


def _pubsub(connection: Any) -> str:
    from ematix_flow.connect.pubsub.client import PubSubBackend

    login = {"endpoint": connection.endpoint, "anonymous_auth": connection.anonymous_auth}
    PubSubBackend.open(connection.project_id, **login).ping()
    return f"project {connection.project_id} lets us in"


def _kinesis(connection: Any) -> str:
    from ematix_flow.connect.kinesis.client import KinesisBackend

    fields = ("region", "endpoint", "access_key_id", "secret_access_key")
    KinesisBackend.open(connection.stream_name, **{name: getattr(connection, name) for name in fields}).ping()
    return f"stream {connection.stream_name} is there"


def _postgres_cdc(connection: Any) -> str:
    from ematix_flow.connect.postgres.cdc.probe import probe

    return probe(connection)


def _mysql_cdc(connection: Any) -> str:
    try:
        from ematix_flow.connect.mysql.cdc.probe import probe
    except ModuleNotFoundError as error:
        message = f"reading the log of MySQL needs the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint='pip install "ematix-flow-spark[mysql-cdc]"') from None

    return probe(connection)


_BROKERS: dict[str, Callable[[Any], str]] = {
    "kafka": _kafka,
    "rabbitmq": _rabbitmq,
    "pubsub": _pubsub,
    "kinesis": _kinesis,
    "postgres_cdc": _postgres_cdc,
    "mysql_cdc": _mysql_cdc,
}
"""Kind -> its check."""


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _tcp(address: str, port: int) -> str:
    host, _, explicit_port = address.rpartition(":") if ":" in address else (address, "", "")
    with socket.create_connection((host.strip("[]"), int(explicit_port or port)), CONNECT_SECONDS):
        return f"{host}:{explicit_port or port} accepts connections"


def _registry(connection: Any) -> str:
    from ematix_flow.connect.schema_registry.confluent import probe

    return probe(connection, CONNECT_SECONDS)


def _python() -> str:
    return f"{sys.version.split()[0]} at {sys.executable}"


def _java() -> str:
    from ematix_flow.run.spark.java import find_java

    java = find_java(os.environ)
    return f"{java.major} at {java.command}"


def _spark() -> str:
    from ematix_flow.engine.spark.session import spark_settings

    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        raise OSError("pyspark is not installed; pip install 'pyspark==4.1.*'") from None
    settings = spark_settings()
    return f"pyspark {installed}, {'a Spark Connect server' if settings.remote else settings.master}"


def _run_log() -> str:
    import warnings

    from ematix_flow.commit.runlog.open import open_run_log

    with warnings.catch_warnings():
        # A run goes on without its run log and warns; here the warning is the finding.
        warnings.simplefilter("error")
        log = open_run_log()
        return f"{log.display_address}, for project {log.project.name}" if log.project.name else log.display_address


def _scheduler() -> str:
    """Return the health of the scheduler; none is required where nothing is scheduled."""
    if not PROJECT.has_schedules:
        raise Skipped("no module with a schedule is loaded")
    from ematix_flow.commit.runlog.open import open_run_log
    from ematix_flow.engine.schedule.heartbeat import scheduler_liveness

    liveness = scheduler_liveness(open_run_log(required=True))
    if not liveness.alive:
        raise Skipped(f"{liveness.text}; nothing that is due runs until flow scheduler or flow run-due does")
    return liveness.text
