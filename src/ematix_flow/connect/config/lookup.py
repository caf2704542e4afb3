"""Finds what a connection's name means: environment, files, then this process; it opens no connection."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from ematix_flow.connect.config.redact import redact
from ematix_flow.connect.config.secrets import expand, prefixes_in, resolved
from ematix_flow.connect.config.sources import (
    FOLDER_SOURCE,
    PROJECT_SOURCE,
    REGISTRY_SOURCE,
    USER_SOURCE,
    Entry,
    dsn_entry,
    dsn_variables,
    env_key,
    file_entries,
    names_in_environment,
    property_entry,
    user_file,
)
from ematix_flow.connect.config.writer import write_entry
from ematix_flow.declare.aliases import kind_named
from ematix_flow.declare.connection.base import masked
from ematix_flow.declare.connection.registry import (
    Connection,
    GlueSchemaRegistryConnection,
    KafkaConnection,
    SchemaRegistryConnection,
    canonical_fields,
    connection_from_fields,
    dsn_of,
    fields_of_url,
    is_open,
    registered_connections,
)
from ematix_flow.errors import (
    ConnectionMissingError,
    DeclareError,
    DeclareTypeError,
    FlowError,
    MissingSecretError,
    nearest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HIDDEN = "***"
"""What listings show instead of a secret."""


@dataclass(frozen=True, slots=True)
class ConnectionEntry:
    """A connection as it is written, and where."""

    connection: Connection
    config_source: str


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a listing; nothing in it is secret."""

    kind: str
    config_source: str
    display_text: str


# --- finding ---------------------------------------------------------------------------------------------------------


def find_connection(name: str) -> ConnectionEntry:
    """Return the connection that a name means, unexpanded, with the config source that declares it."""
    entry = _entry(name)
    return ConnectionEntry(_build(name, entry), entry.config_source)


def resolve_connection(name_or_connection: str | Connection) -> Connection:
    """Return a connection ready to be opened: every reference filled in, the schema registry looked up."""
    if isinstance(name_or_connection, Connection):
        entry = ConnectionEntry(name_or_connection, "given")
    else:
        entry = find_connection(name_or_connection)
    try:
        connection = resolved(entry.connection)
    except MissingSecretError as error:
        message = f"connection {entry.connection.name!r} ({entry.config_source}): {error.what}"
        raise MissingSecretError(message, hint=error.hint, origin=entry.connection.origin) from None
    if isinstance(connection, KafkaConnection) and isinstance(connection.schema_registry, str):
        return replace(connection, schema_registry=_registry_named(connection.schema_registry, connection))
    return connection


def travelling_connections(*extra: Connection) -> dict[str, Connection]:
    """Return every connection that a name means, and those given, filled in from the environment, for a process that has no such environment.

    One that needs a secret store, or a variable that is missing, stays as it is written: the process that opens it
    raises the error.
    """
    connections = {}
    for name in sorted(_all_names()):
        with suppress(FlowError):
            connections[name] = _filled(find_connection(name).connection)
    return connections | {connection.name: _filled(connection) for connection in extra}


def resolve_dsn(name: str = "default") -> str:
    """Return the URL of a connection, expanded."""
    connection = resolve_connection(name)
    dsn = dsn_of(connection)
    if dsn is None:
        raise ConnectionMissingError(f"connection {name!r} has no URL", hint=f"kind {connection.kind} has none.")
    return dsn


def _entry(name: str) -> Entry:
    """Return what the strongest config source declares; variables fill in or override fields of the same kind."""
    dsn, properties = dsn_entry(name), _property_entry(name)
    if dsn is not None:
        return dsn if properties is None else _over(name, dsn, properties)
    below = _file_entry(name) or _registry_entry(name)
    if properties is not None:
        return properties if below is None else _over(name, properties, below)
    return below or _not_found(name)


def _property_entry(name: str) -> Entry | None:
    try:
        return property_entry(name, others=())
    except DeclareTypeError:
        # Only a variable that nothing explains is worth reading the files for.
        return property_entry(name, others=_declared_names())


def _file_entry(name: str) -> Entry | None:
    return next((entries[name] for _, entries in file_entries() if name in entries), None)


def _registry_entry(name: str) -> Entry | None:
    connection = registered_connections().get(name)
    if connection is None:
        return None
    return Entry(REGISTRY_SOURCE, {"kind": connection.kind, **connection.settings()}, connection.origin)


def _over(name: str, top: Entry, below: Entry) -> Entry:
    """Return two entries as one, the fields of `top` counting; below another kind is another connection."""
    top_kind, top_fields = _canonical(name, top)
    below_kind, below_fields = _canonical(name, below)
    if kind_named(top_kind, top_fields) != kind_named(below_kind, below_fields):
        return top
    fields = {"kind": below_kind, **below_fields, **top_fields}
    return Entry(f"{top.config_source} over {below.config_source}", fields, below.origin)


def _canonical(name: str, entry: Entry) -> tuple[str, dict[str, object]]:
    try:
        return canonical_fields(name, _with_kind(name, entry.fields))
    except (DeclareError, DeclareTypeError) as error:
        _refuse(entry, error)


def _build(name: str, entry: Entry) -> Connection:
    if entry.config_source == REGISTRY_SOURCE:
        return registered_connections()[name]
    try:
        return connection_from_fields(name, _with_kind(name, entry.fields), origin=entry.origin)
    except (DeclareError, DeclareTypeError) as error:
        _refuse(entry, error)


def _refuse(entry: Entry, error: DeclareError | DeclareTypeError) -> NoReturn:
    message = f"{entry.config_source}: {error.what}"
    raise type(error)(message, hint=error.hint, origin=entry.origin) from None


def _with_kind(name: str, fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields with their kind; a URL whose scheme is a reference has to be filled in to know it."""
    url = fields.get("url", fields.get("dsn"))
    if "kind" in fields or "type" in fields or not isinstance(url, str) or not is_open(url.partition("://")[0]):
        return fields
    return {"kind": fields_of_url(name, expand(url))[0], **fields}


def _registry_named(name: str, kafka: KafkaConnection) -> Connection:
    registry = find_connection(name).connection
    if not isinstance(registry, (SchemaRegistryConnection, GlueSchemaRegistryConnection)):
        message = f"kafka connection {kafka.name!r}: {name!r} is a {registry.kind} connection, not a schema registry"
        raise DeclareTypeError(message, origin=kafka.origin)
    return resolve_connection(registry)


def _not_found(name: str) -> NoReturn:
    near = nearest(name, [other for other in _all_names() if other != name])
    options = (
        f"set {' or '.join(dsn_variables(name))}, write [connections.{name}] into {PROJECT_SOURCE}, {FOLDER_SOURCE} or "
        f"{USER_SOURCE}, or declare it with @ematix.connection."
    )
    hint = f"did you mean {near!r}? Or {options}" if near else options
    raise ConnectionMissingError(f"connection {name!r} is not configured", hint=hint)


# --- listing ---------------------------------------------------------------------------------------------------------


def list_connections() -> dict[str, Listed]:
    """Return every name that resolves, with the config source that wins; an unreadable entry is listed as written."""
    return {name: _listed(name) for name in sorted(_all_names())}


def describe_connections() -> dict[str, str]:
    """Return every name with its settings, secrets as ***."""
    return {name: listed.display_text for name, listed in list_connections().items()}


def _declared_names() -> set[str]:
    return {name for _, entries in file_entries() for name in entries} | set(registered_connections())


def _all_names() -> set[str]:
    declared = _declared_names()
    declared_keys = {env_key(name) for name in declared}
    return declared | {key.lower() for key in names_in_environment() if key not in declared_keys}


def _listed(name: str) -> Listed:
    try:
        entry = _entry(name)
    except FlowError as error:
        return Listed("unknown", "environment", redact(error.what, HIDDEN))
    try:
        connection = _build(name, entry)
    except FlowError:
        kind = entry.fields.get("kind", entry.fields.get("type", "unknown"))
        return Listed(str(kind), entry.config_source, _describe_fields(entry.fields))
    return Listed(connection.kind, entry.config_source, _describe_connection(connection))


def _describe_connection(connection: Connection) -> str:
    """Return a connection as text, expanded where the environment is enough: a listing queries no secret store."""
    connection = _filled(connection)
    return _describe_fields(connection.settings(), dsn_of(connection))


def _filled(connection: Connection) -> Connection:
    """Return a connection with its references filled in, where the environment has all of them."""
    texts = [value for value in connection.settings().values() if isinstance(value, str)]
    if {prefix for text in texts for prefix in prefixes_in(text)} <= {"env"}:
        with suppress(FlowError):
            return resolved(connection)
    return connection


def _describe_fields(fields: Mapping[str, object], dsn: object = None) -> str:
    dsn = dsn or fields.get("url") or fields.get("dsn")
    if isinstance(dsn, str):
        return redact(str(masked({"url": dsn}, HIDDEN)["url"]), HIDDEN)
    settings = {name: value for name, value in fields.items() if name not in {"kind", "type"}}
    pairs = [f"{key}={value}" for key, value in masked(settings, HIDDEN).items() if value not in (None, "", False)]
    return redact(" ".join(pairs), HIDDEN)


# --- setting ---------------------------------------------------------------------------------------------------------


def set_connection(name: str, dsn_or_fields: str | Mapping[str, object]) -> Path:
    """Return the user's file after writing one connection into it; everything else in it stays as it was."""
    fields = {"url": dsn_or_fields} if isinstance(dsn_or_fields, str) else dict(dsn_or_fields)
    url = fields.get("url", fields.get("dsn"))
    if {"kind", "type"} & fields.keys() or not (isinstance(url, str) and is_open(url.partition("://")[0])):
        connection_from_fields(name, fields)
    path = user_file()
    write_entry(path, name, {key: value for key, value in fields.items() if value is not None})
    return path
