"""Iceberg's catalogs: their settings for Spark, the location of their metadata, and a check that they answer.

No table is known here.
"""

from __future__ import annotations

import hashlib
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from ematix_flow.connect.base.lake_engine import SparkRequirements
from ematix_flow.connect.iceberg.catalog_probe import probe_database, probe_glue, probe_rest
from ematix_flow.connect.lake.location import at_address, in_bucket, in_folder
from ematix_flow.connect.storage.s3_spark import SDK
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.lake.location import LakeLocation
    from ematix_flow.declare.connection.registry import IcebergConnection

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
DRIVERS = {"jdbc:sqlite": "org.xerial:sqlite-jdbc:3.50.3.0", "jdbc:postgresql": "org.postgresql:postgresql:42.7.8"}
GLUE = SparkRequirements(
    tuple(f"software.amazon.awssdk:{module}:{SDK}" for module in ("glue", "kms", "url-connection-client"))
)
EXTENSIONS = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
_BUCKETS = ("s3://", "s3a://")
_CLIENTS = {"jdbc": ("pyiceberg", "sqlalchemy"), "rest": ("pyiceberg",), "glue": ("pyiceberg", "boto3")}
"""The packages that commit to a catalog without Spark; for one in a folder there is none that keeps our guarantees."""

_LIBPQ = frozenset({"sslmode", "sslrootcert"})
"""Parameters of a JDBC address that the driver of Python knows by the same name."""


class IcebergCatalog:
    """The settings of a catalog, and the location of its warehouse."""

    def __init__(self, connection: IcebergConnection) -> None:
        # A session keeps a catalog as it was first opened: another location requires another name.
        identity = f"{connection.catalog_type}|{connection.uri}|{connection.warehouse}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
        self.name = f"flow_{re.sub(r'[^A-Za-z0-9_]', '_', connection.name)}_{digest}"
        self.type = connection.catalog_type
        self._connection = connection
        self.location = _location(connection)

    @property
    def identity(self) -> tuple[str, ...]:
        """Return what makes two catalogs the same."""
        return (self.type, self._connection.uri, self._connection.warehouse)

    @property
    def spark_requirements(self) -> SparkRequirements:
        """Return the packages and settings that a session needs from its start."""
        drivers = tuple(package for scheme, package in DRIVERS.items() if self._connection.uri.startswith(scheme))
        own = SparkRequirements((PACKAGE, *drivers), tuple(EXTENSIONS.items()), own=self._depends_on_folder)
        return own + self.location.spark_requirements + (GLUE if self.type == "glue" else SparkRequirements())

    @property
    def _depends_on_folder(self) -> bool:
        """Return whether Java has to run in the folder of the command: Iceberg writes relative paths into its tables."""
        connection = self._connection
        locations = (connection.warehouse, connection.uri.removeprefix("jdbc:sqlite:").removeprefix("file:"))
        if self.type not in ("hadoop", "jdbc"):
            return False
        return any(
            location and not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", location) and not location.startswith("/")
            for location in locations
        )

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of the catalog, secrets among them; they are set on a running session only."""
        connection = self._connection
        options = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": self.type,
            ".warehouse": connection.warehouse,
            ".uri": "" if self.type == "glue" else connection.uri,
            ".cache-enabled": "false",
            **(_BY_TYPE[self.type](connection) if self.type in _BY_TYPE else {}),
        }
        if self.location.bucket is not None:
            # One client for everything in the bucket: Hadoop's, whichever scheme an address has.
            options[".io-impl"] = "org.apache.iceberg.hadoop.HadoopFileIO"
            options[".hadoop.fs.s3.impl"] = "org.apache.hadoop.fs.s3a.S3AFileSystem"
        return {key: value for key, value in options.items() if value}

    def prepare(self, engine: LakeEngine) -> None:
        """Make the location and the catalog known to the engine."""
        self.location.prepare(engine)
        engine.catalog(self.name, self.settings)

    @property
    def left_to_spark(self) -> str:
        """Return why tables can be committed to by Spark alone, by settings and packages; empty where not."""
        packages = _CLIENTS.get(self.type, ())
        if not packages:
            return "a catalog in a folder has one safe writer"
        missing = [package for package in packages if not find_spec(package)]
        if missing:
            return f'{missing[0]} is not installed (pip install "ematix-flow-spark[iceberg]")'
        if self._depends_on_folder:
            return "the tables lie at a relative path"
        known = self.type != "jdbc" or database_address(self._connection) is not None
        return "" if known else "only Java has a driver for the catalog's address"

    def exists(self) -> bool:
        """Return whether there is a warehouse; what a database or a service stores, only Spark can query."""
        return self.type != "hadoop" or self.location.store.exists()

    def probe(self) -> str:
        """Check that the catalog and the location of its metadata answer, without Spark."""
        connection = self._connection
        if self.type == "hadoop":
            root = self.location.store.display_address
            missing = "" if self.location.store.exists() else " does not exist yet; the first load creates it"
            return f"warehouse {root}{missing}"
        description = {"jdbc": probe_database, "rest": probe_rest, "glue": probe_glue}[self.type](connection)
        return description if self.location.bucket is None else f"{description}, {self.location.store.probe()}"


def database_address(connection: IcebergConnection) -> dict[str, Any] | None:
    """Return the parts of a JDBC address; None where its driver, or one of its parameters, is known to Java alone."""
    kind, _, address = connection.uri.removeprefix("jdbc:").partition(":")
    if kind == "sqlite":
        file = address.removeprefix("file:")
        return {"drivername": kind, "database": file} if file.startswith("/") and "?" not in file else None
    url = urlsplit(f"{kind}:{address}")
    parameters = dict(parse_qsl(url.query))
    if kind != "postgresql" or not parameters.keys() <= _LIBPQ or "," in url.netloc:
        return None
    login = {"username": connection.user, "password": connection.password}
    at = {"host": url.hostname, "port": url.port, "database": url.path.strip("/")}
    return {"drivername": kind, **login, **at, "query": parameters}


def _jdbc(connection: IcebergConnection) -> dict[str, str]:
    return {
        ".jdbc.schema-version": "V1",
        ".jdbc.user": connection.user or "",
        ".jdbc.password": connection.password or "",
    }


def _rest(connection: IcebergConnection) -> dict[str, str]:
    credential = f"{connection.user or ''}:{connection.password}" if connection.password else ""
    return {".token": connection.token or "", ".credential": credential.removeprefix(":")}


def _glue(connection: IcebergConnection) -> dict[str, str]:
    # Iceberg's own choice of a client needs a newer SDK than Hadoop's.
    return {
        ".glue.endpoint": connection.uri,
        ".client.region": connection.region,
        ".http-client.type": "urlconnection",
    }


_BY_TYPE = {"jdbc": _jdbc, "rest": _rest, "glue": _glue}


def _location(connection: IcebergConnection) -> LakeLocation:
    """Return where the metadata is: the bucket that is named, or the warehouse."""
    if connection.bucket:
        return in_bucket(connection)
    if connection.warehouse.startswith(_BUCKETS):
        return at_address(connection, connection.warehouse)
    if not connection.warehouse or re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:", connection.warehouse):
        address = connection.warehouse or connection.uri
        message = f"the metadata tables of Iceberg tables are stored with the tables, and {address!r} is no folder and no bucket"
        raise UnsupportedError(message, hint="give warehouse= with a folder or s3://bucket/prefix, or bucket=.")
    return in_folder(connection.warehouse)
