"""A schema registry for tests that speaks Confluent's protocol; it keeps its schemas in memory."""

from __future__ import annotations

import os
import signal
import uuid
from urllib.request import urlopen

from ematix_flow.run.spark.java import find_java
from tests.services.fetched import java_files
from tests.services.programs import MissingServerError
from tests.services.server import Server

_JAVA = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class RegistryServer(Server):
    """Apicurio; subjects are for everybody, so tests give them names of their own."""

    name = "registry"
    account = "root"
    stop_signal = signal.SIGTERM

    @property
    def url(self) -> str:
        """Return the address for clients of Confluent's protocol."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def subject(self) -> str:
        """Return the name of a subject that nobody else uses."""
        return f"t-{uuid.uuid4().hex[:16]}-value"

    def check(self) -> None:
        """Ask whether the registry answers."""
        with urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310 - our own address
            answer.read()

    def initialise(self) -> None:
        """Make sure that the registry is there."""
        if not java_files("Apicurio"):
            raise MissingServerError("Apicurio")
        self.data.mkdir()

    def command(self) -> list[str]:
        """Return the command line."""
        (runner,) = java_files("Apicurio")
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.log.level": "WARN",
            "quarkus.banner.enabled": "false",
            "java.io.tmpdir": self.data,
        }
        options = [f"-D{key}={value}" for key, value in settings.items()]
        return [find_java(os.environ).command, *_JAVA, *options, "-jar", runner]
