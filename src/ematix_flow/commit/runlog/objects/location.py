"""Opens the folder or the bucket of a run log; credentials are those of the address, a connection or the libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.commit.runlog.objects.backend import ObjectBackend
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.urls import Address
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.declare.connection.registry import Connection

_FORMAT = "json_lines"
_KINDS = {"s3": "object_store_s3", "gcs": "object_store_gcs", "azure": "object_store_azure"}
_OWN_CREDENTIALS = ("access_key_id", "profile", "credentials_path", "anonymous", "account_key", "sas_token")


def folder_backend(folder: Path) -> ObjectBackend:
    """Return the backend in a folder of this machine, or one that is mounted on it."""
    return ObjectBackend(LocalStore(str(folder)), folder)


def object_backend(address: Address) -> ObjectBackend:
    """Return the backend in the bucket that an address names."""
    return connection_backend(bucket_at(address, "run_log"))


def bucket_at(address: Address, name: str) -> Connection:
    """Return the connection to the bucket of an address."""
    from ematix_flow.connect.config.lookup import resolve_connection
    from ematix_flow.declare.connection.registry import connection_from_fields

    fields = {"kind": _KINDS[address.kind], "format": _FORMAT, **_bucket_fields(address), **_options(address)}
    return resolve_connection(connection_from_fields(name, fields))


def connection_backend(connection: Connection) -> ObjectBackend:
    """Return the backend in the folder or the bucket of a connection."""
    if connection.kind == "object_store_local":
        return folder_backend(Path(str(getattr(connection, "path", ""))))
    from ematix_flow.connect.registry import target_of

    return ObjectBackend(cast("Store", cast("Any", target_of(connection)).store))


def _bucket_fields(address: Address) -> dict[str, Any]:
    """Return the bucket and the prefix; an address of Azure begins with the account."""
    parts = [part for part in address.location.split("/") if part]
    names = ("account", "container") if address.kind == "azure" else ("bucket",)
    if len(parts) < len(names):
        raise DeclareError(f"the address of the run log lacks its {names[len(parts)]}")
    fields: dict[str, Any] = dict(zip(names, parts, strict=False))
    return {**fields, "prefix": "/".join(parts[len(names) :])}


def _options(address: Address) -> dict[str, Any]:
    own = ("create_tables", "retention_days")
    options: dict[str, Any] = {name: value for name, value in address.options.items() if name not in own}
    options |= {name: address.switch(name, default=False) for name in ("path_style", "anonymous") if name in options}
    if address.kind == "s3":
        where = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        options.setdefault("region", where)
    if not any(options.get(name) for name in _OWN_CREDENTIALS):
        options["default_credentials"] = True
    return options
