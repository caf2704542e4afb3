"""Makes connections from classes, fields and URLs and keeps those that a process registered; it expands no `${...}`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from ematix_flow.declare.aliases import (
    FIELD_SPELLINGS,
    KIND_IMPLIES,
    KIND_SPELLINGS,
    OTHER_CREDENTIALS,
    URL_SCHEMES,
    kind_named,
)
from ematix_flow.declare.connection.base import Connection, is_open, setting_names
from ematix_flow.declare.connection.brokers import (
    GlueSchemaRegistryConnection,
    KafkaConnection,
    KinesisConnection,
    PubSubConnection,
    RabbitMQConnection,
    SchemaRegistryConnection,
)
from ematix_flow.declare.connection.change_logs import MySQLCDCConnection, PostgresCDCConnection
from ematix_flow.declare.connection.databases import (
    BigQueryConnection,
    DeltaLocalConnection,
    DeltaS3Connection,
    DuckDBConnection,
    IcebergConnection,
    MySQLConnection,
    PostgresConnection,
    RedshiftConnection,
    SnowflakeConnection,
    SQLiteConnection,
)
from ematix_flow.declare.connection.files import (
    ObjectStoreAzureConnection,
    ObjectStoreGCSConnection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
)
from ematix_flow.declare.origin import caller_origin
from ematix_flow.errors import DeclareError, DeclareTypeError, UnknownNameError, did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.errors import Origin

__all__ = [
    "KINDS",
    "BigQueryConnection",
    "Connection",
    "DeltaLocalConnection",
    "DeltaS3Connection",
    "DuckDBConnection",
    "GlueSchemaRegistryConnection",
    "IcebergConnection",
    "KafkaConnection",
    "KinesisConnection",
    "MySQLCDCConnection",
    "MySQLConnection",
    "ObjectStoreAzureConnection",
    "ObjectStoreGCSConnection",
    "ObjectStoreLocalConnection",
    "ObjectStoreS3Connection",
    "PostgresCDCConnection",
    "PostgresConnection",
    "PubSubConnection",
    "RabbitMQConnection",
    "RedshiftConnection",
    "SQLiteConnection",
    "SchemaRegistryConnection",
    "SnowflakeConnection",
    "canonical_fields",
    "clear_registry",
    "connection_from_class",
    "connection_from_fields",
    "connection_from_url",
    "dsn_of",
    "fields_of_url",
    "get_connection",
    "is_open",
    "register_connection",
    "registered_connections",
    "setting_names",
]

_Registered = TypeVar("_Registered", bound=Connection)

KINDS: Mapping[str, type[Connection]] = {
    cls.kind: cls
    for cls in (
        PostgresConnection,
        MySQLConnection,
        SQLiteConnection,
        DuckDBConnection,
        DeltaLocalConnection,
        DeltaS3Connection,
        IcebergConnection,
        ObjectStoreLocalConnection,
        ObjectStoreS3Connection,
        ObjectStoreGCSConnection,
        ObjectStoreAzureConnection,
        KafkaConnection,
        RabbitMQConnection,
        PubSubConnection,
        KinesisConnection,
        PostgresCDCConnection,
        MySQLCDCConnection,
        SchemaRegistryConnection,
        GlueSchemaRegistryConnection,
        SnowflakeConnection,
        BigQueryConnection,
        RedshiftConnection,
    )
}

_registry: dict[str, Connection] = {}


# --- making ----------------------------------------------------------------------------------------------------------


def connection_from_class(cls: type) -> Connection:
    """Return the connection that a class body declares; its name is the class name unless `name` says otherwise."""
    origin = caller_origin()
    attributes = {name: value for base in reversed(cls.__mro__[:-1]) for name, value in vars(base).items()}
    raw_fields = {
        name: value for name, value in attributes.items() if not name.startswith("_") and not _is_behaviour(value)
    }
    name = raw_fields.pop("name", cls.__name__)
    if "kind" not in raw_fields and "type" not in raw_fields:
        raise DeclareTypeError(f"connection {name!r} needs a kind", hint=_kinds_hint(""), origin=origin)
    return connection_from_fields(name, raw_fields, origin=origin)


def connection_from_fields(name: str, raw_fields: Mapping[str, object], *, origin: Origin | None = None) -> Connection:
    """Return the connection of these fields; without a kind the scheme of its URL decides."""
    origin = origin or caller_origin()
    kind_name, settings = canonical_fields(name, raw_fields, origin)
    return _build(KINDS[kind_named(kind_name, settings)], name, _implied(kind_name, settings), origin)


def canonical_fields(
    name: str, raw_fields: Mapping[str, object], origin: Origin | None = None
) -> tuple[str, dict[str, object]]:
    """Return the word for the kind, and the fields under their one internal name; unknown ones are refused."""
    remaining = dict(raw_fields)
    kind_name = _pop_kind(name, remaining, origin)
    kind = kind_named(kind_name, remaining)
    if kind not in KINDS:
        raise DeclareTypeError(
            f"connection {name!r} has an unknown kind {kind_name!r}", hint=_kinds_hint(kind_name), origin=origin
        )
    spellings, known = FIELD_SPELLINGS.get(kind, {}), setting_names(KINDS[kind])
    settings: dict[str, object] = {}
    for key, value in remaining.items():
        if key not in known and key not in spellings:
            known_names = [*known, *spellings, "kind"]
            message = f"{kind} connection {name!r} has no field {key!r}"
            raise DeclareTypeError(message, hint=did_you_mean(key, known_names), origin=origin)
        field = spellings.get(key, key)
        if field in settings:
            raise DeclareTypeError(f"{kind} connection {name!r} says {field} twice", origin=origin)
        settings[field] = value
    return kind_name, settings


def connection_from_url(name: str, url: str, *, origin: Origin | None = None) -> Connection:
    """Return the connection that a URL means; its scheme decides the kind."""
    origin = origin or caller_origin()
    kind, settings = fields_of_url(name, url, origin)
    return _build(KINDS[kind], name, settings, origin)


def fields_of_url(name: str, url: str, origin: Origin | None = None) -> tuple[str, dict[str, object]]:
    """Return the kind and the field that a URL means."""
    if url == ":memory:":
        return "sqlite", {"path": url}
    scheme, separator, _ = url.partition("://")
    kind = URL_SCHEMES.get(scheme.lower()) if separator else None
    if kind is None:
        # The text itself stays out of the message: it may be a password.
        raise DeclareError(
            f"connection {name!r} has a URL of an unknown scheme",
            hint=f"use {', '.join(f'{known}://' for known in URL_SCHEMES)} or :memory:, or say kind = ...",
            origin=origin,
        )
    field = {"sqlite": "path", "duckdb": "path", "rabbitmq": "amqp_url"}.get(kind, "url")
    return kind, {field: url}


def dsn_of(connection: Connection) -> str | None:
    """Return the URL that `connection_from_url` reads back, or None where a kind has no such form."""
    match connection:
        case PostgresConnection() | MySQLConnection():
            return connection.url
        case RabbitMQConnection():
            return connection.amqp_url
        case SQLiteConnection() | DuckDBConnection():
            path = connection.path
            return f"{connection.kind}://" if path == ":memory:" else f"{connection.kind}:///{path}"
        case RedshiftConnection():
            return connection.to_postgres_url()
    return None


def _build(cls: type[Connection], name: str, settings: Mapping[str, Any], origin: Origin | None) -> Connection:
    return cls(name, origin=origin, **settings)


def _is_behaviour(value: object) -> bool:
    return inspect.isroutine(value) or isinstance(value, (property, type))


def _pop_kind(name: str, remaining: dict[str, object], origin: Origin | None) -> str:
    """Take the kind out of the fields, or read it off the URL."""
    if "kind" in remaining and "type" in remaining:
        raise DeclareTypeError(f"connection {name!r} says kind and type", hint="they mean the same.", origin=origin)
    kind_name = remaining.pop("kind", None) or remaining.pop("type", None)
    if kind_name is None:
        url = remaining.get("url", remaining.get("dsn"))
        if not isinstance(url, str):
            raise DeclareTypeError(f"connection {name!r} needs a kind", hint=_kinds_hint(""), origin=origin)
        kind_name = fields_of_url(name, url, origin)[0]
    if not isinstance(kind_name, str):
        raise DeclareTypeError(f"connection {name!r}: kind must be text", hint=_kinds_hint(""), origin=origin)
    return kind_name


def _implied(kind_name: str, settings: dict[str, object]) -> dict[str, object]:
    implied = KIND_IMPLIES.get(kind_name.strip().lower(), {})
    if any(settings.get(name) for name in OTHER_CREDENTIALS):
        implied = {name: value for name, value in implied.items() if name != "default_credentials"}
    return {**implied, **settings}


def _kinds_hint(kind_name: str) -> str:
    match = nearest(kind_name, [*KINDS, *KIND_SPELLINGS])
    return f"{f'did you mean {match!r}? ' if match else ''}Kinds: {', '.join(sorted(KINDS))}."


# --- the registry of this process ------------------------------------------------------------------------------------


def register_connection(connection: _Registered) -> _Registered:
    """Register the connection under its name and return it; the last one of a name counts."""
    if not isinstance(connection, Connection):
        raise DeclareTypeError(
            f"register_connection takes a Connection, not {type(connection).__name__}",
            hint="for example PostgresConnection(name=..., url=...).",
            origin=caller_origin(),
        )
    _registry[connection.name] = connection
    return connection


def get_connection(name: str) -> Connection:
    """Return the registered connection of this name."""
    if name not in _registry:
        raise UnknownNameError(f"no connection {name!r} is registered", hint=did_you_mean(name, _registry))
    return _registry[name]


def registered_connections() -> dict[str, Connection]:
    """Return a copy of everything registered."""
    return dict(_registry)


def clear_registry() -> None:
    """Forget every registered connection."""
    _registry.clear()
