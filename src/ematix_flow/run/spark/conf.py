"""What a session is configured with, as plain text pairs.

Refuses secrets, because Spark shows its configuration to every user of its pages.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.declare.spark_settings import SparkSettings

_USERINFO = r"://[^/\s:@]*:[^/\s@]+@"
_SECRET_NAMES = r"password|passwd|pwd|secret|token|access[._-]?key|secret[._-]?key|keystore[._]key|credentials?|jaas(?:[._]config)?|dsn"  # noqa: S105
_SECRET_KEY = re.compile(rf"(?i)(?:{_SECRET_NAMES})$")
_SECRET_VALUE = re.compile(rf"(?i){_USERINFO}|(?:password|passwd|pwd|secret|token)\s*=\s*[^\s;&,]+")
_REFERENCE = re.compile(r"\$\{[^}]+\}")
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")

_DAEMON = "ematix_flow.run.spark.worker_daemon"
_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_QUERY = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Of wide rows, as messages may be, ten thousand at a time would not fit into a small heap.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.inMemoryColumnarStorage.batchSize": "1000",
    # A text is JSON for every database when a key is twice in it.
    "spark.sql.variant.allowDuplicateKeys": "true",
    # A Python data source that defines pushFilters fails while this is off.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Both are frozen into a checkpoint by its first batch.
    "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To count its rows, a state looks up each of them before it writes it.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}

_SECRET = "spark.authenticate.secret"  # noqa: S105 - the name of a setting

_SMALL_HEAP = 1 << 30
_LARGE_HEAP = 4 << 30

_PROCESS = {
    "spark.app.name": "ematix-flow",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark writes every plan down for its pages, which are off; the long form costs small queries a good part of their time.
    "spark.sql.ui.explainMode": "simple",
    # It keeps them, too: a thousand of each are a tenth of the heap of a process that loads for days.
    **dict.fromkeys(("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions"), "200"),
    "spark.ui.retainedTasks": "5000",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.worker.reuse": "true",
    "spark.redaction.regex": rf"(?i){_SECRET_NAMES}|{_USERINFO}",
    "spark.redaction.string.regex": rf"(?i){_USERINFO}|(?:{_SECRET_NAMES})\s*[=:]\s*[^\s;&,]+",
}


EXECUTOR_PYTHON = "spark.pyspark.python"
"""Spark's name for the Python of executors, which pyspark itself only takes from the environment."""


def query_conf(settings: SparkSettings) -> dict[str, str]:
    """Return what can be set on a session that already runs, a Connect server's too."""
    return _QUERY | {k: v for k, v in _refuse_secrets(settings.conf).items() if k.startswith("spark.sql.")}


def session_conf(settings: SparkSettings, folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the whole configuration of a session that this process starts, files going below `folder`."""
    conf = _PROCESS | _QUERY | {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    conf["spark.driver.memory"] = f"{heap_bytes(settings, machine_memory()) >> 20}m"
    if settings.is_local:
        conf |= {
            "spark.local.dir": str(folder),
            # Executors of other machines have it only after their daemon runs, which would not start without it.
            "spark.python.daemon.module": _DAEMON,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * local_cores(settings.master)),
        }
    conf |= _spark_defaults(environ) | _refuse_secrets(settings.conf) | _java_packages(settings)
    return conf | {"spark.master": settings.master}


def secret_conf(conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secret of a cluster out of the file or the variable that the settings name; it goes into Java's memory only.

    Spark itself reads the file on Kubernetes alone, and would take the text of a reference for the secret.
    """
    reference, file = conf.get(_SECRET), conf.get(f"{_SECRET}.file")
    if reference is not None:
        name = reference.removeprefix("${").removesuffix("}").removeprefix("env:")
        if not environ.get(name):
            raise DeclareError(f"The variable {name!r}, which {_SECRET!r} names, is not set.")
        return {_SECRET: environ[name]}
    if file is None:
        return {}
    try:
        return {_SECRET: Path(file).expanduser().read_text("utf-8").strip()}
    except OSError as error:
        raise DeclareError(f"The secret of the cluster cannot be read: {file}: {error.strerror}.") from None


def heap_bytes(settings: SparkSettings, machine: int) -> int:
    """Return the heap of a driver: little, or for long work on this machine a quarter of its memory, within limits."""
    if not (settings.runs_long and settings.is_local):
        return _SMALL_HEAP
    return min(max(machine // 4, _SMALL_HEAP), _LARGE_HEAP)


def machine_memory() -> int:
    """Return the bytes of memory that this machine has, or none where it does not report that."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def local_cores(master: str) -> int:
    """Return how many tasks a local master runs at a time."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        raise DeclareError(f"{master!r} is not a local Spark master.", hint="write it as `local[*, 4]`.")
    cores = match[1] or "1"
    return os.cpu_count() or 1 if cores == "*" else int(cores)


def local_slots(settings: SparkSettings) -> int:
    """Return the `defaultParallelism` of a Spark of this machine, without a query to it."""
    written = settings.conf.get("spark.default.parallelism", "")
    return int(written) if written.isdecimal() and int(written) else local_cores(settings.master)


def _java_packages(settings: SparkSettings) -> dict[str, str]:
    lists = {
        "spark.jars.packages": settings.packages,
        "spark.jars.excludes": settings.excludes,
        "spark.jars.repositories": settings.repositories,
        "spark.jars": settings.jars,
    }
    return {key: ",".join(items) for key, items in lists.items() if items}


def _refuse_secrets(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs, or refuse them by name: the value stays out of the message."""
    for key, value in conf.items():
        if _REFERENCE.fullmatch(value):
            continue
        if _SECRET_KEY.search(key) or _SECRET_VALUE.search(value):
            raise DeclareError(
                f"The Spark setting {key!r} looks like a secret.",
                hint="Spark shows its settings in logs and process lists: put the secret in a connection, "
                "or let the setting name a file or a `${...}` reference that is resolved where it is used.",
            )
    return dict(conf)


def _spark_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs of the installation's spark-defaults.conf, where there is one."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    file = Path(folder, "spark-defaults.conf") if folder else None
    if file is None or not file.is_file():
        return {}
    lines = (line.strip() for line in file.read_text("utf-8").splitlines())
    pairs = (re.split(r"\s*[=:]\s*|\s+", line, maxsplit=1) for line in lines if line.startswith("spark."))
    return {key: values[0] if values else "" for key, *values in pairs}
