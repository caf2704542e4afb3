"""Every accepted spelling and the one internal name it stands for; it decides nothing else about a declaration."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# --- connections -----------------------------------------------------------------------------------------------------

KIND_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        "postgresql": "postgres",
        "pg": "postgres",
        "mariadb": "mysql",
        "sqlite3": "sqlite",
        "delta": "delta_local",
        "files": "object_store_local",
        "local_files": "object_store_local",
        "s3": "object_store_s3",
        "s3_files": "object_store_s3",
        "gcs": "object_store_gcs",
        "azure": "object_store_azure",
        "azure_blob": "object_store_azure",
        "rabbit": "rabbitmq",
        "amqp": "rabbitmq",
        "pub_sub": "pubsub",
        "glue": "glue_schema_registry",
    }
)

KIND_IMPLIES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {spelling: {"format": "parquet", "default_credentials": True} for spelling in ("s3", "gcs", "azure")}
)
"""Fields that a spelling of a kind fills in where the user gave none."""

OTHER_CREDENTIALS = (
    "access_key_id",
    "credentials_path",
    "anonymous",
    "account_key",
    "sas_token",
    "connection_string",
)
"""Fields that turn off the search for default credentials."""

_URL = MappingProxyType({"dsn": "url"})
_FILE = MappingProxyType({"url": "path", "dsn": "path"})

FIELD_SPELLINGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "postgres": _URL,
        "mysql": _URL,
        "postgres_cdc": _URL,
        "mysql_cdc": _URL,
        "sqlite": _FILE,
        "duckdb": _FILE,
        "kafka": MappingProxyType({"brokers": "bootstrap_servers"}),
        "rabbitmq": MappingProxyType({"url": "amqp_url", "dsn": "amqp_url"}),
    }
)
"""Kind -> spelling -> field."""

URL_SCHEMES: Mapping[str, str] = MappingProxyType(
    {
        "postgres": "postgres",
        "postgresql": "postgres",
        "mysql": "mysql",
        "mysql+pymysql": "mysql",
        "mariadb": "mysql",
        "sqlite": "sqlite",
        "duckdb": "duckdb",
        "amqp": "rabbitmq",
        "amqps": "rabbitmq",
        "gs": "object_store_gcs",
        "abfs": "object_store_azure",
        "abfss": "object_store_azure",
        "az": "object_store_azure",
    }
)

FILE_FORMATS: Mapping[str, str] = MappingProxyType(
    {"jsonl": "json_lines", "json": "json_lines", "ndjson": "json_lines", "pq": "parquet"}
)

SCRAM_MECHANISMS: Mapping[str, str] = MappingProxyType(
    {
        "sha256": "sha-256",
        "sha512": "sha-512",
        "scram-sha-256": "sha-256",
        "scram-sha-512": "sha-512",
    }
)


def kind_named(spelling: str, fields: Mapping[str, object]) -> str:
    """Return the internal name of a kind; `delta` with a bucket is the one on S3."""
    kind = spelling.strip().lower().replace("-", "_")
    if kind == "delta" and "bucket" in fields:
        return "delta_s3"
    return KIND_SPELLINGS.get(kind, kind)
