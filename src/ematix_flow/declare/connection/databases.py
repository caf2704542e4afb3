"""The connections to databases and lake tables, with the settings each takes; none of them is opened here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

from ematix_flow.declare.aliases import URL_SCHEMES
from ematix_flow.declare.connection.base import Connection, is_open

if TYPE_CHECKING:
    from collections.abc import Mapping

S3_KEYS = ("endpoint", "access_key_id", "secret_access_key")
_S3_SCHEMES = ("s3://", "s3a://")
_CLOUD_SCHEMES = ("gs://", "abfs://", "abfss://", "az://", "azure://", "wasb://", "wasbs://")
_PASSWORD = re.compile(r"(?i)[?&;]password=|://[^/@:]*:[^/@]+@")


@dataclass(frozen=True, slots=True, repr=False)
class _Database(Connection):
    """A database; `timezone` is the zone of its timestamps without one."""

    timezone: str | None = field(default=None, kw_only=True)

    def _check_family(self) -> None:
        if self.timezone and not is_open(self.timezone):
            from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

            try:
                ZoneInfo(self.timezone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise self._wrong("has an unknown timezone", "use a name such as 'UTC' or 'Europe/Berlin'.") from None


@dataclass(frozen=True, slots=True, repr=False)
class _UrlDatabase(_Database):
    required: ClassVar[tuple[str, ...]] = ("url",)

    url: str = ""

    def _check(self) -> None:
        scheme, separator, _ = self.url.partition("://")
        other = URL_SCHEMES.get(scheme.lower(), self.kind)
        if separator and other != self.kind:
            raise self._wrong(f"has a URL of {other}", f"say kind = {other!r}, or give a {self.kind} URL.")


@dataclass(frozen=True, slots=True, repr=False)
class _FileDatabase(_Database):
    required: ClassVar[tuple[str, ...]] = ("path",)

    path: str = ""
    """A file or `:memory:`; a URL is taken too: three slashes before a relative file, four before an absolute one."""

    def _check(self) -> None:
        scheme, separator, file = self.path.partition("://")
        if not separator or is_open(self.path):
            return
        if file not in {"", "/", ":memory:"} and not file.startswith("/"):
            raise self._wrong("has a URL with a host", f"say {self.kind}:///relative or {self.kind}:////absolute.")
        if URL_SCHEMES.get(scheme.lower()) != self.kind:
            raise self._wrong("has a URL of another kind", f"give a {self.kind} URL or a file.")
        self._set("path", file.removeprefix("/") or ":memory:")


@dataclass(frozen=True, slots=True, repr=False)
class PostgresConnection(_UrlDatabase):
    """A PostgreSQL database."""

    kind: ClassVar[str] = "postgres"


@dataclass(frozen=True, slots=True, repr=False)
class MySQLConnection(_UrlDatabase):
    """A MySQL or MariaDB database."""

    kind: ClassVar[str] = "mysql"


@dataclass(frozen=True, slots=True, repr=False)
class SQLiteConnection(_FileDatabase):
    """A SQLite database."""

    kind: ClassVar[str] = "sqlite"


@dataclass(frozen=True, slots=True, repr=False)
class DuckDBConnection(_FileDatabase):
    """A DuckDB database."""

    kind: ClassVar[str] = "duckdb"


@dataclass(frozen=True, slots=True, repr=False)
class SnowflakeConnection(_Database):
    """A Snowflake database."""

    kind: ClassVar[str] = "snowflake"
    required: ClassVar[tuple[str, ...]] = ("account", "user")

    account: str = ""
    user: str = ""
    password: str | None = None
    private_key: str | None = None
    warehouse: str | None = None
    database: str | None = None
    schema: str | None = None
    role: str | None = None

    def _check(self) -> None:
        if not self.password and not self.private_key:
            raise self._wrong("needs password or private_key")


@dataclass(frozen=True, slots=True, repr=False)
class BigQueryConnection(_Database):
    """A BigQuery dataset."""

    kind: ClassVar[str] = "bigquery"
    required: ClassVar[tuple[str, ...]] = ("project", "dataset")

    project: str = ""
    dataset: str = ""
    credentials_path: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RedshiftConnection(_Database):
    """A Redshift database."""

    kind: ClassVar[str] = "redshift"
    required: ClassVar[tuple[str, ...]] = ("host", "database", "user", "password")

    host: str = ""
    port: int = 5439
    database: str = ""
    user: str = ""
    password: str = ""
    s3_staging_dir: str | None = None
    iam_role: str | None = None

    def to_postgres_url(self) -> str:
        """Return the URL under which a PostgreSQL driver reaches this database."""
        user, password = quote(self.user, safe=""), quote(self.password, safe="")
        return f"postgresql://{user}:{password}@{self.host}:{self.port}/{self.database}"


_NO_LAKE = (
    "cannot keep its tables in Google Cloud Storage or Azure",
    "lake tables lie in folders and in buckets of S3; plain files can go there (object_store_gcs, object_store_azure).",
)


@dataclass(frozen=True, slots=True, repr=False)
class DeltaLocalConnection(Connection):
    """Delta tables in a local folder."""

    kind: ClassVar[str] = "delta_local"
    required: ClassVar[tuple[str, ...]] = ("path",)

    path: str = ""

    def _check(self) -> None:
        if self.path.startswith(_CLOUD_SCHEMES):
            raise self._wrong(*_NO_LAKE)


@dataclass(frozen=True, slots=True, repr=False)
class DeltaS3Connection(Connection):
    """Delta tables in a bucket."""

    kind: ClassVar[str] = "delta_s3"
    required: ClassVar[tuple[str, ...]] = ("endpoint", "bucket", "region", "access_key_id", "secret_access_key")

    endpoint: str = ""
    bucket: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    prefix: str = ""
    default_credentials: bool = field(default=False, kw_only=True)
    """Take the endpoint and the keys from where the AWS libraries look for them."""
    profile: str | None = field(default=None, kw_only=True)
    """Take the keys from this profile of the AWS configuration."""
    path_style: bool | None = field(default=None, kw_only=True)
    """Name the bucket in the path of a request instead of its host; by default everywhere but at Amazon."""

    def _required_fields(self) -> tuple[str, ...]:
        chain = self.default_credentials or bool(self.profile)
        return tuple(n for n in self.required if not (chain and n in S3_KEYS))

    def _check(self) -> None:
        if self.profile and self.access_key_id:
            raise self._wrong("has a profile and keys", "give one of them.")


@dataclass(frozen=True, slots=True, repr=False)
class IcebergConnection(Connection):
    """Iceberg tables of one catalog; a table's schema is its namespace."""

    kind: ClassVar[str] = "iceberg"
    required: ClassVar[tuple[str, ...]] = ("catalog_type",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {"catalog_type": ("hadoop", "jdbc", "rest", "glue")}
    )

    catalog_type: str = "hadoop"
    warehouse: str = ""
    uri: str = ""
    user: str | None = None
    password: str | None = None
    token: str | None = None
    endpoint: str = ""
    bucket: str = ""
    """Where the metadata is stored, and the tables too where no catalog names their location."""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    prefix: str = ""
    default_credentials: bool = field(default=False, kw_only=True)
    """Take the keys from where the AWS libraries look for them, as without keys and profile."""
    profile: str | None = field(default=None, kw_only=True)
    """Take the keys from this profile of the AWS configuration."""
    path_style: bool | None = field(default=None, kw_only=True)
    """Name the bucket in the path of a request instead of its host; by default everywhere but at Amazon."""

    def _check(self) -> None:
        if self.warehouse.startswith(_CLOUD_SCHEMES):
            raise self._wrong(*_NO_LAKE)
        if self.bucket and not self.warehouse and self.catalog_type != "rest":
            self._set("warehouse", f"s3://{self.bucket}/{self.prefix.strip('/')}".rstrip("/"))
        required = {"hadoop": ("warehouse",), "jdbc": ("uri", "warehouse"), "rest": ("uri",), "glue": ("warehouse",)}
        missing = [name for name in required.get(self.catalog_type, ()) if not getattr(self, name)]
        if missing:
            raise self._wrong(f"of catalog_type {self.catalog_type!r} needs {', '.join(missing)}")
        if self.catalog_type == "hadoop" and self.warehouse.startswith(_S3_SCHEMES):
            # A bucket has no rename, which is how such a catalog lets one of two writers win.
            raise self._wrong(
                "of catalog_type 'hadoop' cannot be in a bucket, where loads could replace each other's commits",
                "use catalog_type 'jdbc', 'rest' or 'glue'.",
            )
        if _PASSWORD.search(self.uri):
            raise self._wrong("has a password in its uri", "give user= and password=, which are shown nowhere.")
        self._check_keys()

    def _check_keys(self) -> None:
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise self._wrong("needs access_key_id and secret_access_key together")
        if self.access_key_id and (self.profile or self.default_credentials):
            raise self._wrong("has keys and another way to find keys", "give one of them.")
        if self.catalog_type == "glue" and self.access_key_id:
            raise self._wrong(
                "of catalog_type 'glue' takes no access_key_id: the catalog looks for keys where the AWS libraries do",
                "leave the keys out, and put them into the environment or the default profile.",
            )
