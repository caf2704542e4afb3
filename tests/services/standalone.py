"""A standalone Spark cluster from pip's pyspark: a master and workers whose executors have a disk and a Python of their own.

Executors see nothing of the driver's temporary folder and of this source tree, and their Python has every package of this
environment but the product. Both come from a mount namespace and a folder of links, so that no container is needed.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.services.server import Server, ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parents[2]
_OURS = ("ematix_flow", "_editable_impl_ematix_flow")
_OPENED = ("java.base/java.nio", "java.base/java.lang", "java.base/java.util", "java.base/sun.nio.ch",
           "java.base/java.lang.invoke", "java.base/java.net", "java.base/sun.util.calendar")  # fmt: skip
_JAVA_OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# The folders of the server are set aside, the driver's disk is covered, and the folders are put back.
_HIDE = """
hidden=$1; shift
mount -t tmpfs none /mnt
number=0
for kept in "$@"; do
    [ "$kept" = -- ] && break
    number=$((number + 1)); mkdir /mnt/$number && mount --bind "$kept" /mnt/$number || exit 1
done
for folder in $(echo "$hidden" | tr ':' ' '); do
    [ ! -d "$folder" ] || mount -t tmpfs none "$folder" || exit 1
done
number=0
while [ "$1" != -- ]; do
    number=$((number + 1)); mkdir -p "$1" && mount --bind /mnt/$number "$1" || exit 1; shift
done
shift; exec "$@"
"""


class _Daemon(Server):
    """One Java process of the cluster."""

    account = "root"
    stop_signal = signal.SIGTERM

    def __init__(self, conf: Mapping[str, str], host: str = "127.0.0.1") -> None:
        super().__init__()
        self._host = host
        self._variables: dict[str, str] = {}
        self._properties = self.folder / "spark.properties"
        self._properties.touch(mode=0o600)
        self.configure(conf)

    def configure(self, conf: Mapping[str, str], variables: Mapping[str, str] | None = None) -> None:
        """Set what the process reads when it starts."""
        self._variables = dict(variables or {})
        self._properties.write_text("".join(f"{key} {value}\n" for key, value in conf.items()))

    def initialise(self) -> None:
        """Make the working folder."""
        self.data.mkdir()

    def check(self) -> None:
        """Ask whether it listens."""
        socket.create_connection((self._host, self.port), 1).close()

    def environment(self) -> dict[str, str]:
        """Return where Spark and Java are, and none of the driver's variables."""
        spark = {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": self._host}
        return spark | {"JAVA_HOME": java_home()} | self._variables

    def java(self, *arguments: str) -> list[str]:
        """Return the command line of a Java with Spark's classes."""
        java = f"{java_home()}/bin/java"
        own = ["--host", self._host, "--port", str(self.port), "--properties-file", str(self._properties)]
        return [java, *_JAVA_OPTIONS, "-cp", f"{spark_home()}/jars/*", arguments[0], *own, *arguments[1:]]


class Master(_Daemon):
    """The process that gives executors to applications."""

    name = "spark-master"

    @property
    def url(self) -> str:
        """Return the address for drivers and workers."""
        return f"spark://{self._host}:{self.port}"

    def command(self) -> list[str]:
        """Return the command line."""
        return self.java("org.apache.spark.deploy.master.Master", "--webui-port", "0")


class Worker(_Daemon):
    """A machine of the cluster: its executors see neither the driver's disk nor this source tree."""

    name = "spark-worker"
    grouped = True

    def __init__(self, master: Master, conf: Mapping[str, str], readable: Iterable[Path], cores: int = 4) -> None:
        super().__init__(conf)
        self._master = master
        self._readable = tuple(readable)
        self._cores = cores

    def command(self) -> list[str]:
        """Return the command line, inside a disk of its own."""
        options = ["--webui-port", "0", "--cores", str(self._cores), "--memory", "8g", "--work-dir", str(self.data)]
        java = self.java("org.apache.spark.deploy.worker.Worker", *options, self._master.url)
        hidden = ":".join(map(str, (tempfile.gettempdir(), ROOT / "src", ROOT / "tests")))
        folders = [str(folder) for folder in (self.folder, *self._readable)]
        return [*hiding(), "sh", "-c", _HIDE, "hide", hidden, *folders, "--", *java]

    def executors(self) -> list[int]:
        """Return the process ids of the executors that live on this worker."""
        assert self._process is not None
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
        pairs = [tuple(map(int, line.split())) for line in listing.stdout.splitlines()]
        return [pid for pid, parent in pairs if parent == self._process.pid]


class ConnectServer(_Daemon):
    """A Spark Connect server whose tasks run on a cluster."""

    name = "spark-connect"

    def __init__(self, cluster: Standalone) -> None:
        conf = {
            "spark.master": cluster.url,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            **cluster.sized,
            **cluster.conf,
        }
        super().__init__(conf)
        self._python = str(cluster.python)

    @property
    def remote(self) -> str:
        """Return the address for clients."""
        return f"sc://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the Python of executors besides."""
        return super().environment() | {"PYSPARK_PYTHON": self._python}

    def command(self) -> list[str]:
        """Return the command line."""
        options = ["-Xmx768m", *_JAVA_OPTIONS[1:], *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED)]
        submit = ["org.apache.spark.deploy.SparkSubmit", "--properties-file", str(self._properties)]
        submit += ["--conf", f"spark.connect.grpc.binding.port={self.port}"]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        jars = f"{spark_home()}/jars/*"
        return [f"{java_home()}/bin/java", *options, "-cp", jars, *submit, "--class", server, "spark-internal"]


class Standalone:
    """A cluster of a master and two workers; `python` is what executors run tasks with."""

    name = "spark-cluster"

    def __init__(self, conf: Mapping[str, str] | None = None, *, without: Iterable[str] = (), workers: int = 2) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="flow-cluster-"))
        self.python = executor_python(self.home / "python", without)
        self.conf = dict(conf or {})
        self.master = Master(self.conf)
        self.workers = [Worker(self.master, self.conf, [self.home]) for _ in range(workers)]

    @property
    def url(self) -> str:
        """Return the address of the master."""
        return self.master.url

    @property
    def sized(self) -> dict[str, str]:
        """Return the settings of an application with one task slot on each worker."""
        cores = str(len(self.workers))
        return {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": cores}

    def secure(self, conf: Mapping[str, str], variables: Mapping[str, str]) -> None:
        """Set the configuration and the variables of every process, before it starts."""
        self.conf = dict(conf)
        for server in (self.master, *self.workers):
            server.configure(conf, variables)

    def settings(self) -> dict[str, str]:
        """Return the variables of a driver whose loads run on this cluster."""
        conf = self.sized | {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        variables = {f"EMATIX_FLOW_SPARK_CONF_{key.replace('.', '__')}": value for key, value in conf.items()}
        return variables | {
            "EMATIX_FLOW_ENGINE": "spark",
            "EMATIX_FLOW_SPARK_MASTER": self.url,
            "PYSPARK_PYTHON": str(self.python),
        }

    def start(self) -> None:
        """Start what does not run."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Server.start, (self.master, *self.workers)))

    def close(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.close()
        self.master.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def log_tail(self) -> str:
        """Return the last lines of all processes."""
        return "\n".join(server.log_tail() for server in (self.master, *self.workers))


def executor_python(
    folder: Path, without: Iterable[str] = (), *, only: Iterable[str] = (), base: str = sys.executable
) -> Path:
    """Make a Python environment of links to this one's packages but the product: all, those that are named, or the others."""
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*")) / "site-packages"
    missing = (*_OURS, *without)
    for entry in spark_home().parent.iterdir():
        if not entry.name.startswith(missing) and entry.name.startswith(tuple(only) or ""):
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def spark_home() -> Path:
    """Return the folder of the installed pyspark."""
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@functools.cache
def java_home() -> str:
    """Return the Java that the product would use."""
    from ematix_flow.run.spark.java import find_java

    return str(Path(find_java(os.environ).command).parent.parent)


@functools.cache
def hiding() -> tuple[str, ...]:
    """Return the command that starts a program with mounts of its own; executors that saw the driver's disk would show nothing."""
    reason = "there is no unshare"
    for command in (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user")):
        program = shutil.which(command[0])
        if program is None:
            break
        arguments = [program, *command[1:], "mount", "-t", "tmpfs", "none", "/mnt"]
        tried = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return command
        reason = tried.stderr.strip()
    message = (
        f"executors of tests cannot have a disk of their own: {reason}; allow this user mount namespaces, or be root"
    )
    raise ServerError(message)
