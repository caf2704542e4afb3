"""Writes the log configuration of the Java process: errors only, without credentials, for the logs of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_REPORTED_ANYWAY = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.scheduler.DAGScheduler",
    "org.apache.spark.api.python.PythonRunner",
)
"""What these log of a failed task reaches the caller as an exception, once instead of once per attempt."""

_SHELL = "org.apache.spark.api.python.PythonGatewayServer"
"""Spark prints advice about log levels unless this logger agrees with the root."""

DETAIL_PREFIX = "\x01"
"""Begins every line of an error that Java logs by default: what matters of it reaches the caller as an exception."""

_CREDENTIALS = r"://[^/\s:@]*:[^/\s@]+@"

_TWICE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""What pyspark writes about an error of SQL on stderr, besides raising it."""


def quieten_errors(level: str) -> None:
    """Keep pyspark from writing what it raises, unless more than errors is requested."""
    from pyspark.logger import PySparkLogger

    for name in _TWICE if level in ("ERROR", "OFF") else ():
        PySparkLogger.getLogger(name).disabled = True


def write_log_config(folder: Path, level: str, environ: Mapping[str, str]) -> Path:
    """Return the file with the log settings: the installation's own where there is one, else ours."""
    if (installed := environ.get("SPARK_CONF_DIR")) and (own := Path(installed, "log4j2.properties")).is_file():
        return own
    file = folder / "log4j2.properties"
    quiet = dict.fromkeys(_REPORTED_ANYWAY, "off") if level == "ERROR" else {}
    loggers = [(f"q{i}", name, at) for i, (name, at) in enumerate({_SHELL: level.lower(), **quiet}.items())]
    pattern = f"%d{{HH:mm:ss}} spark %p %c{{1}}: %replace{{%m%n%ex}}{{{_CREDENTIALS}}}{{://***@}}"
    marked = f"%replace{{{pattern}}}{{(?m)^}}{{{DETAIL_PREFIX}}}" if level == "ERROR" else pattern
    lines = [
        "status = off",
        f"rootLogger.level = {level.lower()}",
        "rootLogger.appenderRef.err.ref = err",
        "appender.err.type = Console",
        "appender.err.name = err",
        "appender.err.target = SYSTEM_ERR",
        "appender.err.layout.type = PatternLayout",
        # log4j reads this file as Java properties, where a backslash is written twice.
        "appender.err.layout.pattern = " + marked.replace("\\", "\\\\"),
        # Or every stack is added once more, with the credentials.
        "appender.err.layout.alwaysWriteExceptions = false",
        *(line for key, name, at in loggers for line in (f"logger.{key}.name = {name}", f"logger.{key}.level = {at}")),
    ]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file
