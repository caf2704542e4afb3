"""Brings up a session on a Java process of our own and takes it down again; session decides which one is used."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.base.scratch import open_scratch
from ematix_flow.errors import RunError
from ematix_flow.run.spark import class_archive as archives
from ematix_flow.run.spark.conf import EXECUTOR_PYTHON, secret_conf, session_conf
from ematix_flow.run.spark.java import find_java
from ematix_flow.run.spark.java_process import await_gateway, end_driver, spark_jars, start_driver
from ematix_flow.run.spark.log_conf import quieten_errors
from ematix_flow.run.spark.packages.resolved import remember_jars, with_known_jars
from ematix_flow.run.spark.packages.substitutes import with_substitutes
from ematix_flow.run.spark.worker_daemon import IMPORTS_VARIABLE, SYS_PATH_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from ematix_flow.connect.base.scratch import Scratch
    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.run.spark.class_archive import Archive
    from ematix_flow.run.spark.java import Java
    from ematix_flow.run.spark.java_process import Driver

_gateway_lock = threading.Lock()


@dataclass(slots=True)
class Classic:
    """A Java process with its private folder, on its way to a session or carrying one."""

    settings: SparkSettings
    java: Java
    requested_conf: dict[str, str]
    """The configuration from the settings."""
    conf: dict[str, str]
    """The same with packages replaced by jars that are known already."""
    scratch: Scratch
    driver: Driver
    archive: Archive | None
    ending: bool = False
    lost: str = ""
    """Why Java was ended in the middle of its work."""

    @property
    def alive(self) -> bool:
        """True while Java runs."""
        return self.driver.alive

    @property
    def ends_at_once(self) -> bool:
        """True when nothing outside this process and its folder hears of an orderly stop, which takes most of a second."""
        return self.settings.is_local and self.conf.get("spark.eventLog.enabled", "false") == "false"


def launch(settings: SparkSettings, record: Path | None = None) -> Classic:
    """Start Java and return it without waiting for it; with `record` it writes a class archive when it ends."""
    java = find_java(os.environ)
    scratch = open_scratch("spark")
    try:
        requested_conf = session_conf(settings, scratch.folder, os.environ)
        known = (
            with_known_jars(requested_conf, archives.cache_folder(os.environ)) if settings.is_local else requested_conf
        )
        conf = with_substitutes(known, java, scratch.folder)
        archive = _archive(settings, java, conf)
        options = archives.options_to_record(record) if record else archives.options_to_use(archive)
        driver = start_driver(java, settings, conf, scratch.folder, options)
    except BaseException:
        scratch.remove()
        raise
    return Classic(settings, java, requested_conf, conf, scratch, driver, archive)


def open_session(classic: Classic) -> SparkSession:
    """Wait for Java and return the session on it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = _gateway(*_await_port(classic))
    _choose_python(classic.settings)
    SparkContext._gateway = None  # noqa: SLF001 - an earlier Connect server of this process may have left one
    SparkContext(conf=_spark_conf(classic, gateway), gateway=gateway)
    session = SparkSession.builder.getOrCreate()
    _expect_the_end(session)
    quieten_errors(classic.settings.log_level)
    if classic.settings.is_local and classic.conf.get("spark.jars.packages"):
        remember_jars(
            classic.requested_conf, session.conf.get("spark.jars", "") or "", archives.cache_folder(os.environ)
        )
    return session


def stop_context(session: SparkSession, classic: Classic) -> None:
    """Stop Spark inside Java, if it is there; what pyspark keeps in this process is the business of `forget`."""
    from py4j.protocol import Py4JError

    context: Any = session.sparkContext
    with contextlib.suppress(Py4JError, OSError):
        if not classic.ends_at_once:
            context._jsc.stop()  # noqa: SLF001 - the public stop() waits a second, which no command has at its end
        context._gateway.shutdown()  # noqa: SLF001 - or py4j would still talk to Java when objects die


def end(classic: Classic, timeout: float = 0, *, started: bool = True) -> None:
    """End Java, remove its files, and see to it that the next start is quick, unless this one did not even start.

    Java is killed unless there is a `timeout`: after Spark stopped only an archive is left to lose, and an orderly exit
    would wait for idle threads.
    """
    classic.ending = True
    if not timeout:
        classic.driver.process.kill()
    end_driver(classic.driver, timeout)
    classic.scratch.remove()
    if started:
        archives.build_in_background(classic.archive)


def forget() -> None:
    """Clear what pyspark keeps of a session whose Java has ended; it expects one Java for a whole process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - there is no other way that does not start one
    if context is not None:
        context._jsc = None  # noqa: SLF001 - so that stop() does not talk to Java
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def configure_workers(session: SparkSession, imports: Sequence[str]) -> None:
    """Let workers that start from now on find the modules that this process finds.

    What an earlier call named stays: Spark starts a daemon for every environment, and has workers for each.
    """
    environment = session.sparkContext.environment
    known = json.loads(environment.get(IMPORTS_VARIABLE, "[]"))
    environment |= _worker_environment([*known, *(name for name in imports if name not in known)])


def _archive(settings: SparkSettings, java: Java, conf: dict[str, str]) -> Archive | None:
    """Return the archive that fits, if one may be used: a class path that begins otherwise than Spark's cannot have one."""
    if settings.archive == "off" or "spark.driver.extraClassPath" in conf:
        return None
    return archives.archive_for(java, spark_jars(os.environ), os.environ)


def _await_port(classic: Classic) -> tuple[int, str]:
    """Wait for Java; should it die on an archive that is damaged in spite of its stamp, start it again without."""
    try:
        return await_gateway(classic.driver)
    except RunError:
        if classic.ending or classic.archive is None or not classic.archive.usable:
            raise
    classic.driver = start_driver(classic.java, classic.settings, classic.conf, classic.scratch.folder)
    answered = await_gateway(classic.driver)
    # Only now is it certain that the archive was to blame, and not the settings.
    archives.discard(classic.archive)
    return answered


def _gateway(port: int, secret: str) -> JavaGateway:
    """Return pyspark's connection to a Java that it did not start, leaving no trace in the environment of later processes."""
    from pyspark.java_gateway import launch_gateway

    with _gateway_lock:
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        try:
            return cast("JavaGateway", launch_gateway())  # type: ignore[no-untyped-call]
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _spark_conf(classic: Classic, gateway: JavaGateway) -> SparkConf:
    """Return the configuration inside Java, where a submitted driver has resolved the packages already."""
    from pyspark import SparkConf

    conf = SparkConf(_jvm=gateway.jvm)
    submitted = bool(classic.conf.get("spark.jars.packages")) or not classic.settings.is_local
    for key, value in classic.conf.items():
        # Java has a local session's jars on its class path; as a setting they would be copied to every task.
        if not (key == "spark.jars" and (submitted or classic.settings.is_local)):
            conf.set(key, value)
    for key, value in secret_conf(classic.conf, os.environ).items():
        conf.set(key, value)
    if classic.settings.is_local:
        for name, value in _worker_environment(classic.settings.worker_imports).items():
            conf.set(f"spark.executorEnv.{name}", value)
    return conf


def _expect_the_end(session: SparkSession) -> None:
    """Keep pyspark's accumulator server from printing a traceback when Java ends before Python does."""
    server: Any = session.sparkContext._accumulatorServer  # noqa: SLF001 - it has no setting for this
    server.handle_error = lambda *_: None


def _worker_environment(imports: Sequence[str]) -> dict[str, str]:
    paths = [os.path.abspath(path) for path in sys.path]  # noqa: PTH100 - Path would also follow links
    return {SYS_PATH_VARIABLE: json.dumps(paths), IMPORTS_VARIABLE: json.dumps(list(imports))}


def _choose_python(settings: SparkSettings) -> None:
    """Make workers use this very Python; on a cluster its path may differ, so there the operator's choice wins."""
    if settings.is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif EXECUTOR_PYTHON in settings.conf:
        os.environ["PYSPARK_PYTHON"] = settings.conf[EXECUTOR_PYTHON]
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
