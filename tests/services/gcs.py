"""Google Cloud Storage for tests: fake-gcs-server, which asks nobody for credentials."""

from __future__ import annotations

import signal
import uuid
from typing import Any

from tests.services.emulators import gcs_program
from tests.services.server import DatabaseServer


class GcsServer(DatabaseServer):
    """fake-gcs-server with its objects in memory; of writers with a condition one wins."""

    name = "gcs"
    account = "root"
    stop_signal = signal.SIGTERM

    @property
    def endpoint(self) -> str:
        """Return the address of the service."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, database: str = "") -> str:
        """Return the address of a bucket."""
        return f"{self.endpoint}/{database}"

    def execute(self, statement: str) -> None:
        """Make a bucket; any other word only asks whether the service answers."""
        import requests

        verb, _, name = statement.partition(" ")
        url = f"{self.endpoint}/storage/v1/b?project=none"
        try:
            if verb == "bucket":
                requests.post(url, json={"name": name}, timeout=10).raise_for_status()
            else:
                requests.get(url, timeout=10).raise_for_status()
        except requests.ConnectionError as error:
            raise ConnectionError(str(error)) from error

    def create_database(self) -> str:
        """Make an empty bucket and return its name."""
        bucket = f"t-{uuid.uuid4().hex[:16]}"
        self.execute(f"bucket {bucket}")
        return bucket

    def drop_database(self, url: str) -> None:
        """Leave the bucket: the service keeps its buckets in memory."""

    def initialise(self) -> None:
        """Make sure that the service is installed."""
        gcs_program()
        self.data.mkdir()

    def command(self) -> list[str]:
        """Return the command line."""
        options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-external-url", self.endpoint]
        return [gcs_program(), "-backend", "memory", "-log-level", "error", *options]


def gcs_fields(server: GcsServer, bucket: str, **more: object) -> dict[str, Any]:
    """Return the settings of a connection to a bucket."""
    fields = {
        "kind": "object_store_gcs",
        "bucket": bucket,
        "endpoint": server.endpoint,
        "anonymous": True,
        "format": "parquet",
    }
    return {**fields, **more}
