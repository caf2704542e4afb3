"""Connections as they may be written down for another process: references stay references, no secret is stored."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.lookup import find_connection
from ematix_flow.connect.config.sources import REGISTRY_SOURCE
from ematix_flow.declare.connection.registry import Connection
from ematix_flow.declare.masking import is_secret_field, secrets_in

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog

_REFERENCES = re.compile(r"(\$\{[^}]*\})+")


@dataclass(frozen=True, slots=True)
class Written:
    """A connection by name, with its settings unless another process finds them under that name by itself."""

    name: str
    settings: dict[str, Any] | None = None
    lacking: str = ""
    """Why another process cannot find it by itself; empty when it can."""


def written_down(reference: str | Connection | None) -> Written:
    """Return a connection as it may be stored."""
    if isinstance(reference, Connection):
        connection, declared = reference.written or reference, True
    else:
        entry = find_connection("default" if reference is None else reference)
        connection, declared = entry.connection, REGISTRY_SOURCE in entry.config_source
        if declared and entry.config_source != REGISTRY_SOURCE:
            return Written(connection.name, None, f"connection {connection.name!r} is declared in it, in part")
    if not declared:
        return Written(connection.name)
    settings = connection.settings()
    if any(_holds_secret(name, value) for name, value in settings.items()):
        return Written(connection.name, None, f"connection {connection.name!r} has a secret written in it")
    return Written(connection.name, {"kind": connection.kind, **_without_empty(settings)})


def digest_of(database: Catalog) -> str:
    """Return a digest of what makes a system this one and no other."""
    return hashlib.sha256("\x1f".join(database.identity()).encode(errors="surrogatepass")).hexdigest()


def _without_empty(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in settings.items() if v not in (None, "")}


def _holds_secret(name: str, value: object) -> bool:
    """Return whether a setting holds a secret itself, and not only a reference to one."""
    if isinstance(value, Mapping):
        return any(_holds_secret(str(key), item) for key, item in value.items())
    if isinstance(value, Connection):
        return True
    if not isinstance(value, str) or not value:
        return False
    secrets = [value] if is_secret_field(name) else secrets_in(value)
    return any(not _REFERENCES.fullmatch(secret) for secret in secrets)
