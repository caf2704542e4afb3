"""The executors in `flow doctor --spark`: their environment compared with this machine; it changes nothing."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ematix_flow.background import in_background
from ematix_flow.connect.config.lookup import list_connections, resolve_connection
from ematix_flow.connect.registry import DATABASES, open_database
from ematix_flow.engine.doctor import HealthReport
from ematix_flow.engine.spark.session import session_settings
from ematix_flow.errors import FlowError, TransientError

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.run.spark.executor_probe import Questions

ANSWER_SECONDS = 120.0
"""After this a cluster counts as one without executors."""

SKEW_SECONDS = 2.0
_ALWAYS = ("pyspark", "pyarrow", "pandas", "sqlglot")
_BY_KIND = {
    "postgres": ("psycopg", "adbc-driver-postgresql"),
    "mysql": ("PyMySQL",),
    "duckdb": ("duckdb",),
    "object_store_s3": ("boto3", "duckdb"),
    "object_store_gcs": ("google-cloud-storage", "duckdb"),
    "object_store_azure": ("azure-storage-blob", "duckdb"),
    "object_store_local": ("duckdb",),
    "delta_s3": ("boto3",),
    "kafka": ("confluent-kafka", "duckdb"),
    "rabbitmq": ("pika",),
    "pubsub": ("google-cloud-pubsub",),
    "kinesis": ("boto3", "duckdb"),
    "postgres_cdc": ("psycopg", "duckdb"),
    "mysql_cdc": ("mysql-replication", "duckdb"),
}
"""Kind of a connection -> packages that tasks need which read from it or stage there."""

_PORTS = {"postgres": 5432, "mysql": 3306, "kafka": 9092, "rabbitmq": 5672, "amqps": 5671, "http": 80, "https": 443}


def executor_health() -> list[HealthReport]:
    """Return a report on every executor, or one on why there is none."""
    started = time.perf_counter()
    settings = session_settings()
    where = settings.remote_address or settings.master
    try:
        answers = in_background(_query_executors, "asking-executors").result(ANSWER_SECONDS)
    except TimeoutError:
        why = f"no task ran within {ANSWER_SECONDS:.0f} s: the cluster has no free executors"
        return [HealthReport("executors", "spark", "fail", why, int(ANSWER_SECONDS * 1000))]
    except FlowError as error:
        return [HealthReport("executors", "spark", "fail", " ".join(filter(None, (error.what, error.hint))))]
    elapsed = int((time.perf_counter() - started) * 1000)
    count = len(answers)
    whole = HealthReport("executors", "spark", "ok", f"{count} answered on {where}", elapsed)
    return [whole, *(_report(answer) for answer in answers)]


def _query_executors() -> list[dict[str, Any]]:
    from ematix_flow.run.spark.errors import reason_of
    from ematix_flow.run.spark.executor_probe import probe_executors
    from ematix_flow.run.spark.session import spark_session

    try:
        return probe_executors(spark_session(session_settings()), _questions())
    except FlowError:
        raise
    except Exception as error:
        reason = reason_of(error)
        raise (reason if isinstance(reason, FlowError) else TransientError(str(reason))) from error


def _questions() -> Questions:
    from ematix_flow.run.spark.executor_probe import Questions

    packages = dict.fromkeys(_ALWAYS)
    addresses: dict[str, tuple[str, int]] = {}
    for name, listed in list_connections().items():
        packages |= dict.fromkeys(_BY_KIND.get(listed.kind, ()))
        try:
            address = _address_of(resolve_connection(name))
        except FlowError:
            continue  # the report on the connection itself says why
        if address is not None:
            addresses[name] = address
    return Questions(tuple(packages), addresses)


def _address_of(connection: Connection) -> tuple[str, int] | None:
    """Return the host and the port of a connection; none for files and for services without an address."""
    kind = connection.kind
    if kind in DATABASES:
        info = open_database(connection).info()
        return (str(info["host"]), int(str(info["port"] or _PORTS[kind]))) if info["host"] and kind in _PORTS else None
    address = getattr(connection, "bootstrap_servers", "").split(",")[0].strip()
    address = address or getattr(connection, "amqp_url", "") or getattr(connection, "endpoint", None) or ""
    parts = urlsplit(address if "://" in address else f"//{address}")
    if not parts.hostname:
        return None
    return parts.hostname, parts.port or _PORTS.get(parts.scheme) or _PORTS.get(kind, 443)


def _report(answer: dict[str, Any]) -> HealthReport:
    wrong = _wrong(answer)
    same = (
        f"Python {answer['python']}, {len(answer['packages'])} packages, clock and scratch {answer['scratch']} are fine"
    )
    name = f"{answer['host']}:{answer['process']}"
    return HealthReport(name, "executor", "fail" if wrong else "ok", "; ".join(wrong) or same, 0, answer)


def _wrong(answer: dict[str, Any]) -> list[str]:
    from ematix_flow.run.spark.executor_probe import installed

    problems: list[str] = []
    if _minor(answer["python"]) != _minor(platform.python_version()):
        problems.append(f"Python {answer['python']} there, {platform.python_version()} here")
    for name, there in answer["packages"].items():
        local_version = installed(name)
        if local_version is not None and there is None:
            problems.append(f"package {name} is missing")
        elif local_version is not None and there is not None and local_version.split(".")[0] != there.split(".")[0]:
            problems.append(f"{name} {there} there, {local_version} here")
    if answer["skew"] > SKEW_SECONDS:
        problems.append(f"its clock differs by {answer['skew']:.0f} s")
    problems += [f"connection {name} is out of reach ({why})" for name, why in answer["unreached"].items()]
    if answer["scratch_error"]:
        problems.append(f"scratch {answer['scratch']} cannot be written: {answer['scratch_error']}")
    return problems


def _minor(python: str) -> list[str]:
    return python.split(".")[:2]
