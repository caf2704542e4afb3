"""A Spark Connect server that outlives its clients: Java with the packages of the lakes, started, crashed and started again.

Run as a program it starts Java, says where it listens and who it is, and ends when its standard input closes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.services.server import ServerError, free_port

ROOT = Path(__file__).parent.parent.parent

CONF = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    # Loads of five rows: planning and compiling is all that takes time.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "0",
    "spark.sql.maxPlanStringLength": "0",
}


class SparkServer:
    """A Java process of its own, which clients find under `remote`."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self._home = home
        self._process: subprocess.Popen[str] | None = None
        self._java = 0

    @property
    def remote(self) -> str:
        """Return the address for clients."""
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start Java, if it does not run, and come back when it listens."""
        if self._process is not None:
            return
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYSPARK_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.services.spark", str(self.port)],
            cwd=self._home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise ServerError("the Spark Connect server did not start")
        self._java = json.loads(line)["java"]

    def crash(self) -> None:
        """Kill Java with everything that it is about to do."""
        os.kill(self._java, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End Java."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


def _serve(port: int) -> None:
    from ematix_flow.connect.base.lake_engine import SparkRequirements
    from ematix_flow.connect.delta import table as delta
    from ematix_flow.connect.iceberg import catalog as iceberg_catalog
    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.engine.spark.session import with_requirements
    from ematix_flow.run.spark import launch as classic

    conf: dict[str, Any] = {**CONF, "spark.connect.grpc.binding.port": str(port)}
    packages = (iceberg_catalog.PACKAGE, iceberg_catalog.DRIVERS["jdbc:sqlite"])
    requirements = (delta.REQUIREMENTS, SparkRequirements(packages, tuple(iceberg_catalog.EXTENSIONS.items())))
    started = classic.launch(
        with_requirements(SparkSettings(master="local[2, 4]", log_level="OFF", conf=conf), requirements)
    )
    session = classic.open_session(started)
    print(json.dumps({"java": started.driver.process.pid}), flush=True)  # noqa: T201 - the protocol
    sys.stdin.read()
    classic.stop_context(session, started)
    classic.end(started)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
