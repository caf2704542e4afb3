"""What a caller may pass as a connection: a name, a URL, a declared connection or an open handle."""

from __future__ import annotations

from typing import Any

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.registry import DATABASES, FILES, LAKES, open_database, open_system
from ematix_flow.declare.connection.registry import (
    Connection as Declared,
)
from ematix_flow.declare.connection.registry import (
    connection_from_fields,
    connection_from_url,
    register_connection,
    registered_connections,
)
from ematix_flow.engine.connection import Connection
from ematix_flow.errors import DeclareTypeError, FlowError

MEMORY = ":memory:"
URL_CONNECTION = "given"
"""Name of a connection that a caller spelled out as a URL."""

_remembered: dict[str, Declared] = {}
"""What `connect` itself put into the registry, by name."""


def reference_to(value: Any) -> str | Declared | None:
    """Return a name or a declared connection for what the caller passed."""
    if value is None or isinstance(value, Declared):
        return value
    if isinstance(value, Connection):
        return value.connection_ref
    if not isinstance(value, str):
        message = f"{type(value).__name__} is not a connection"
        raise DeclareTypeError(message, hint="use a name, a URL, a typed connection or what connect() gave.")
    return connection_from_url(URL_CONNECTION, value) if value == MEMORY or "://" in value else value


def declared_connection(value: Any) -> Declared:
    """Return the declared connection that a caller means; without a value, the one named `default`."""
    return resolve_connection(reference_to(value) or "default")


def connect(name: str = "default", *, url: str | None = None, **fields: Any) -> Connection:
    """Return a handle on one database: by its name, or by a URL or fields of this call.

    The URL or fields are also registered under the name until the next such call, unless the name was declared.
    """
    settings = {**fields, **({"url": url} if url is not None else {})}
    if not settings:
        return opened(name)
    declared = connection_from_fields(name, settings)
    known = registered_connections().get(name)
    if known is None or known is _remembered.get(name):
        _remembered[name] = register_connection(declared)
    return opened(declared)


def open_url(url: str) -> Connection:
    """Return a handle on the database of a URL."""
    return opened(connection_from_url(URL_CONNECTION, url))


def opened(reference: str | Declared | None) -> Connection:
    """Return a handle on a database; no connection is opened before its first use."""
    declared = resolve_connection("default" if reference is None else reference)
    return Connection(open_database(declared), declared)


def check_connection(name: str) -> tuple[bool, str]:
    """Return whether a connection works, with a message about it that holds no secret."""
    try:
        declared = resolve_connection(name)
        if declared.kind not in {*DATABASES, *FILES, *LAKES}:
            return False, f"connection {name!r} is {declared.kind}, which only `flow doctor` can check"
        system = open_system(declared)
    except FlowError as error:
        return False, safe_text(error)
    try:
        return True, str(system.probe())
    except (FlowError, OSError, *getattr(system, "errors", ())) as error:
        return False, safe_text(error)
