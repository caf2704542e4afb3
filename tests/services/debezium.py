"""Debezium in a Kafka Connect worker for tests: it reads the log of a PostgreSQL and writes what it reads into topics."""

from __future__ import annotations

import json
import os
import signal
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from ematix_flow.run.spark.java import find_java
from tests.services.fetched import java_files
from tests.services.programs import MissingServerError
from tests.services.server import Server

if TYPE_CHECKING:
    from tests.services.kafka import KafkaBroker

_JAVA = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
         "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")  # fmt: skip
_JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True)
class Connector:
    """A connector that reads some tables of a database; its topics are named after it and the tables."""

    url: str
    tables: str
    schemas: bool = True
    """Whether messages tell their schema."""
    name: str = field(default_factory=lambda: f"t_{uuid.uuid4().hex[:16]}")

    @property
    def config(self) -> dict[str, Any]:
        """Return its settings: what Debezium leaves out unless it is told not to, and numbers that can be read without a schema."""
        parts = urlsplit(self.url)
        converters = {
            f"{part}.converter{setting}": value
            for part in ("key", "value")
            for setting, value in (("", _JSON), (".schemas.enable", self.schemas))
        }
        return converters | {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": parts.hostname,
            "database.port": parts.port,
            "database.user": parts.username,
            "database.password": parts.password,
            "database.dbname": parts.path[1:],
            "topic.prefix": self.name,
            "slot.name": self.name,
            "publication.name": self.name,
            "table.include.list": self.tables,
            "skipped.operations": "none",
            "decimal.handling.mode": "precise" if self.schemas else "string",
            "poll.interval.ms": 50,
        }


class DebeziumServer(Server):
    """A worker of Kafka Connect with Debezium's connector for PostgreSQL, as people run it."""

    name = "debezium"
    account = "root"
    stop_signal = signal.SIGTERM

    def __init__(self, broker: KafkaBroker) -> None:
        super().__init__()
        self._broker = broker

    def connect(self, connector: Connector) -> None:
        """Begin to read tables; after a crash of the worker the same connector goes on behind what it has noted down."""
        self._request("connectors", {"name": connector.name, "config": connector.config})

    def disconnect(self, connector: Connector) -> None:
        """End a connector, which leaves its slot behind."""
        self._request(f"connectors/{connector.name}", method="DELETE")

    def problem(self, connector: Connector) -> str:
        """Return why a connector has failed; empty for one that has not."""
        tasks = self._request(f"connectors/{connector.name}/status")["tasks"]
        return "".join(task.get("trace", "") for task in tasks)

    def check(self) -> None:
        """Ask whether the worker answers."""
        self._request("connectors")

    def initialise(self) -> None:
        """Make sure that Debezium is there."""
        if not java_files("Debezium"):
            raise MissingServerError("Debezium")
        self.data.mkdir()

    def command(self) -> list[str]:
        """Return the command line."""
        settings = {
            "bootstrap.servers": self._broker.address,
            "listeners": f"http://127.0.0.1:{self.port}",
            "offset.storage.file.filename": self.data / "offsets",
            "offset.flush.interval.ms": 500,
            "key.converter": _JSON,
            "value.converter": _JSON,
            "plugin.discovery": "service_load",
        }
        file = self.folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        jars = os.pathsep.join(java_files("Debezium"))
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return [find_java(os.environ).command, *_JAVA, "-cp", jars, main, str(file)]

    def _request(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}/{path}"
        request = Request(url, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
            return json.loads(answer.read() or b"null")
