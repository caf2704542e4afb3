"""Azure Blob Storage for tests: Azurite, with an account whose key must never be seen in an output."""

from __future__ import annotations

import base64
import signal
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.services.emulators import azurite_command
from tests.services.server import DatabaseServer

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNT = "flowcanary"
KEY = base64.b64encode(b"canary-azure-key-7Kq2 of thirty-two bytes and more").decode()


class AzureServer(DatabaseServer):
    """Azurite, which checks signatures and keeps everything in memory."""

    name = "azure"
    account = "root"
    stop_signal = signal.SIGTERM

    @property
    def endpoint(self) -> str:
        """Return the address of the account's blob service."""
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def url(self, database: str = "") -> str:
        """Return the address of a container."""
        return f"{self.endpoint}/{database}"

    def client(self) -> Any:
        """Return a client that may do everything."""
        from azure.storage.blob import BlobServiceClient

        credential = {"account_name": ACCOUNT, "account_key": KEY}
        return BlobServiceClient(self.endpoint, credential=credential, retry_total=0)

    def execute(self, statement: str) -> None:
        """Make a container; any other word only asks whether the service answers."""
        from azure.core.exceptions import ServiceRequestError, ServiceResponseError

        verb, _, container = statement.partition(" ")
        try:
            if verb == "container":
                self.client().create_container(container)
            else:
                self.client().get_service_properties()
        except (ServiceRequestError, ServiceResponseError) as error:
            raise ConnectionError(str(error)) from error

    def create_database(self) -> str:
        """Make an empty container and return its name."""
        container = f"t-{uuid.uuid4().hex[:16]}"
        self.execute(f"container {container}")
        return container

    def drop_database(self, url: str) -> None:
        """Leave the container: the service keeps its containers in memory."""

    def initialise(self) -> None:
        """Make sure that the service is installed."""
        azurite_command()
        self.data.mkdir()

    def command(self) -> list[str]:
        """Return the command line."""
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        address = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        return ["env", f"AZURITE_ACCOUNTS={ACCOUNT}:{KEY}", *azurite_command(), *options, *address]


class TlsAzureServer(AzureServer):
    """The same with a certificate of its own, which lets it take tokens of a directory."""

    @property
    def endpoint(self) -> str:
        """Return the address of the account's blob service."""
        return f"https://127.0.0.1:{self.port}/{ACCOUNT}"

    @property
    def certificate(self) -> Path:
        """Return the file that clients trust."""
        return self.folder / "certificate.pem"

    def client(self) -> Any:
        """Return a client that may do everything."""
        from azure.storage.blob import BlobServiceClient

        credential = {"account_name": ACCOUNT, "account_key": KEY}
        return BlobServiceClient(
            self.endpoint, credential=credential, retry_total=0, connection_verify=str(self.certificate)
        )

    def initialise(self) -> None:
        """Make the certificate."""
        super().initialise()
        named = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        files = ["-keyout", str(self.folder / "key.pem"), "-out", str(self.certificate)]
        self.run(["openssl", "req", "-x509", *kind, *named, *files])

    def command(self) -> list[str]:
        """Return the command line."""
        files = ["--cert", str(self.certificate), "--key", str(self.folder / "key.pem")]
        return [*super().command(), "--oauth", "basic", *files]


def sas_token() -> str:
    """Return a token that may do everything with the account for an hour."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    may = AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True, add=True)
    kinds = ResourceTypes(service=True, container=True, object=True)
    return str(generate_account_sas(ACCOUNT, KEY, kinds, may, datetime.now(UTC) + timedelta(hours=1)))


def azure_fields(server: AzureServer, container: str, **more: object) -> dict[str, Any]:
    """Return the settings of a connection to a container."""
    fields = {
        "kind": "object_store_azure",
        "account": ACCOUNT,
        "container": container,
        "account_key": KEY,
        "endpoint": server.endpoint,
        "format": "parquet",
    }
    return {**fields, **more}
