"""Starts the Java process of a Spark driver directly, without the launcher's shell scripts and second Java; knows nothing of sessions.

The process ends when the pipe to its standard input closes, so it cannot outlive a Python that was killed.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.errors import MissingExtraError, RunError
from ematix_flow.run.spark.log_conf import write_log_config
from ematix_flow.run.spark.packages.log import relay_talk

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.run.spark.java import Java

_GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_OPENED = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
    *(f"java.base/java.util.{name}" for name in ("concurrent", "concurrent.atomic")),
    *(f"java.base/{name}" for name in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs")),
    *(f"java.base/sun.{name}" for name in ("security.action", "util.calendar")),
    "java.security.jgss/sun.security.krb5",
)
_G1_PAYS_FROM = 4 << 30
_POLL_SECONDS = 0.005
_TALK_SECONDS = 1.0
"""How long the last words of a process that has ended are waited for: its workers may live a little longer."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A started Java process and the private folder that it keeps its files in."""

    process: subprocess.Popen[bytes]
    folder: Path
    talk: threading.Thread
    """Passes on what the process prints."""

    @property
    def alive(self) -> bool:
        """True until the process has ended."""
        return self.process.poll() is None


def spark_jars(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return Spark's own jars in a fixed order: SPARK_HOME's, or those of the installed pyspark."""
    home = Path(environ.get("SPARK_HOME") or _installed_spark())
    jars = sorted(map(str, (home / "jars").glob("*.jar")))
    if not jars:
        raise MissingExtraError(
            f"There is no Spark below {home}.", hint="install it with: pip install 'pyspark==4.1.*'"
        )
    # Some jars bring an older copy of slf4j along; the first one on the class path wins.
    return tuple(sorted(jars, key=lambda jar: not Path(jar).name.startswith("slf4j-api")))


def start_driver(
    java: Java, settings: SparkSettings, conf: Mapping[str, str], folder: Path, extra: Sequence[str] = ()
) -> Driver:
    """Start Java for these settings and return it at once; `extra` are options about class archives."""
    direct = settings.is_local and not conf.get("spark.jars.packages")
    options = [*_java_options(settings, conf), f"-Djava.io.tmpdir={folder}", *extra]
    options += [f"-Dlog4j2.configurationFile={write_log_config(folder, settings.log_level, os.environ)}"]
    options += ["-cp", os.pathsep.join(_class_path(conf, with_jars=direct))]
    arguments = folder / "java.args"
    arguments.write_text("".join(f'"{_escaped(option)}"\n' for option in options), "utf-8")
    main = [_GATEWAY] if direct else [_SUBMIT, "--properties-file", str(_properties(conf, folder)), "pyspark-shell"]
    process = subprocess.Popen(
        [java.command, f"@{arguments}", *main],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,  # what Java prints is never part of a command's own output
        stderr=subprocess.STDOUT,
        env=_environment(settings, folder),
        process_group=0,  # Ctrl-C is for Python, which then ends Java
    )
    return Driver(process, folder, relay_talk(process, "" if direct else conf.get("spark.jars.packages", "")))


def await_gateway(driver: Driver) -> tuple[int, str]:
    """Wait until Java listens; return its port and the token it expects."""
    file = _connection_file(driver.folder)
    while not file.exists():
        if not driver.alive:
            driver.talk.join(_TALK_SECONDS)
            raise RunError(
                f"Java ended with code {driver.process.returncode} before Spark was ready.",
                hint="what it had to say stands above this message.",
            )
        time.sleep(_POLL_SECONDS)
    content = file.read_bytes()
    file.unlink()
    port, length = struct.unpack_from(">ii", content)
    return port, content[8 : 8 + length].decode()


def end_driver(driver: Driver, timeout: float) -> None:
    """Close Java's standard input, wait that many seconds for it to finish, and kill it if it does not."""
    if driver.process.stdin is not None:
        driver.process.stdin.close()
    try:
        driver.process.wait(timeout)
    except subprocess.TimeoutExpired:
        driver.process.kill()
        driver.process.wait()
    driver.talk.join(_TALK_SECONDS)


def memory_bytes(text: str) -> int:
    """Return the bytes of a size as Java spells it, such as `900m` or `2g`."""
    digits = text.rstrip("bBkKmMgGtT")
    power = " kmgt".find((text[len(digits) :] or " ")[0].lower())
    return int(digits) << (10 * max(power, 0))


def _java_options(settings: SparkSettings, conf: Mapping[str, str]) -> list[str]:
    memory = conf["spark.driver.memory"]
    if settings.runs_long:
        tuning = ["-XX:+UseG1GC" if memory_bytes(memory) >= _G1_PAYS_FROM else "-XX:+UseParallelGC"]
    else:
        # With the first compiler alone, Java reserves 48 MB for what it compiles. Spark fills that within an hour of small
        # loads, and then more than a quarter of its time goes into making room.
        tuning = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    wished = (conf.get(f"spark.driver.{kind}JavaOptions", "") for kind in ("default", "extra"))
    return [
        f"-Xmx{memory}",
        *tuning,
        "-XX:-UsePerfData",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        "--enable-native-access=ALL-UNNAMED",
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",  # as Spark's launcher: its own TLS decides
        *(option for text in wished for option in shlex.split(text)),
    ]


def _class_path(conf: Mapping[str, str], *, with_jars: bool) -> list[str]:
    """Return the class path: Spark's jars come before all folders, or no archive of classes would fit it."""
    before = [path for path in conf.get("spark.driver.extraClassPath", "").split(os.pathsep) if path]
    added = [jar for jar in conf.get("spark.jars", "").split(",") if jar and with_jars]
    folders = [os.environ.get(f"{name}_CONF_DIR") for name in ("SPARK", "HADOOP", "YARN")]
    return [*before, *spark_jars(os.environ), *added, *(folder for folder in folders if folder)]


def _environment(settings: SparkSettings, folder: Path) -> dict[str, str]:
    """Return Java's environment, which local Python workers inherit."""
    environ = dict(os.environ) | {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_connection_file(folder)),
        "PYTHONSAFEPATH": "1",
    }
    environ["PYTHONPATH"] = package_root() or ""
    if settings.is_local:
        # With a SPARK_HOME, workers would import pyspark from a zip file without byte code: a second more each.
        environ.pop("SPARK_HOME", None)
        environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        environ.setdefault("SPARK_HOME", _installed_spark())
    return environ


def package_root() -> str | None:
    """Return the folder above this package, unless every Python of this installation imports from it anyway."""
    root = Path(__file__).resolve().parents[3]
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return None if root in installed else str(root)


def _installed_spark() -> str:
    """Return the folder of the pyspark package without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtraError("pyspark is not installed.", hint="install it with: pip install 'pyspark==4.1.*'")
    return str(Path(spec.origin).parent)


def _connection_file(folder: Path) -> Path:
    return folder / "gateway"


def _properties(conf: Mapping[str, str], folder: Path) -> Path:
    """Write the configuration to a file that only this user can read: a command line is public."""
    file = folder / "spark.properties"
    file.touch(mode=0o600)
    file.write_text("".join(f"{key} {_escaped(value)}\n" for key, value in conf.items()), "utf-8")
    return file


def _escaped(text: str) -> str:
    """Return the text as both of Java's file formats used here require it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
