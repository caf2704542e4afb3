"""The connections, sources and targets of a stream's TOML: which key belongs to the connection and which to the stream."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.aliases import FIELD_SPELLINGS, kind_named
from ematix_flow.declare.connection.brokers import SchemaRegistryConnection
from ematix_flow.declare.connection.registry import KINDS, connection_from_fields, setting_names
from ematix_flow.declare.stream.checks import FILES
from ematix_flow.declare.stream.targets import TARGET_OPTIONS
from ematix_flow.declare.toml import line_of
from ematix_flow.errors import DeclareError, DeclareTypeError, Origin, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ematix_flow.declare.connection.base import Connection

    Path = tuple[str | int, ...]

_REGISTRY = ("schema_registry_basic_auth_user", "schema_registry_basic_auth_password", "schema_registry_kind")
TABLE_KEYS = ("schema", "name", "primary_key")
"""The keys that the table of a target's location may have."""

_PLAIN_REGISTRIES = ("confluent", "apicurio")


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a configuration, to find where in it something is."""

    text: str
    file: str

    def origin(self, path: Path, key: str | None = None) -> Origin:
        """Return the location of a table or of one of its keys."""
        return Origin(self.file, line_of(self.text, path, key))

    def name(self, path: Path) -> str:
        """Return a table as its header is written."""
        segments = [str(segment) for segment in path if isinstance(segment, str)]
        if not segments:
            return self.file
        return f"[[{'.'.join(segments)}]]" if isinstance(path[-1], int) else f"[{'.'.join(segments)}]"

    def table(self, path: Path, value: Any) -> Mapping[str, Any]:
        """Return a table, or refuse what is none."""
        if not isinstance(value, Mapping):
            raise DeclareError(f"{self.name(path)} is no table", origin=self.origin(path))
        return value

    def refuse_unknown(self, path: Path, table: Mapping[str, Any], known: Iterable[str]) -> None:
        """Refuse a key that nothing reads, with the nearest one that is read."""
        known_keys = list(known)
        for key in table:
            if key not in known_keys:
                message = f"{self.name(path)} has an unknown key {key!r}"
                raise DeclareError(message, hint=did_you_mean(key, known_keys), origin=self.origin(path, key))

    @contextmanager
    def at(self, path: Path) -> Iterator[None]:
        """Add the location of a table to errors of this block; in a file a wrong type is a wrong value."""
        try:
            yield
        except (DeclareError, DeclareTypeError, UnsupportedError) as error:
            where = error.origin if error.origin is not None and error.origin.file == self.file else self.origin(path)
            raise DeclareError(error.what, hint=error.hint, origin=where) from None


def connection_in(
    document: Document, path: Path, table: Mapping[str, Any], role: str, option_names: Iterable[str]
) -> tuple[str | Connection, dict[str, Any]]:
    """Return the connection of a table, named or written out, and its other keys (`option_names`) with their values."""
    own = tuple(option_names)
    named = table.get("connection")
    options = {key: value for key, value in table.items() if key in own}
    if named is None:
        raw_fields = {key: value for key, value in table.items() if key not in own}
        return _written_out(document, path, raw_fields, role, own), options
    document.refuse_unknown(path, table, ("connection", *own))
    if isinstance(named, str) and named:
        return named, options
    inner = (*path, "connection")
    return _written_out(document, inner, document.table(inner, named), role, ()), options


def target_in(document: Document, path: Path, table: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return what the table of a target sets, its connection included."""
    kind = _kind(table)
    # A bucket of lake tables has a prefix of its own; in a bucket of files the prefix is where the rows go.
    own = kind is not None and not kind.startswith(FILES) and "prefix" in setting_names(KINDS[kind])
    option_names = [option for option in TARGET_OPTIONS if not (own and option == "prefix")]
    connection, options = connection_in(document, path, table, role, option_names)
    destination = options.get("table")
    if isinstance(destination, Mapping):
        inner = (*path, "table")
        document.refuse_unknown(inner, destination, TABLE_KEYS)
        for key in ("schema", "name"):
            if key not in destination:
                raise DeclareError(f"{document.name(inner)} has no {key}", origin=document.origin(inner))
        if "primary_key" in destination and "primary_key" in options:
            raise DeclareError("primary_key is declared twice", origin=document.origin(inner, "primary_key"))
        options |= {"table": (destination["schema"], destination["name"])}
        options |= {"primary_key": destination["primary_key"]} if "primary_key" in destination else {}
    return {**options, "connection": connection}


def _kind(table: Mapping[str, Any]) -> str | None:
    kind_name = table.get("kind", table.get("type"))
    kind = kind_named(kind_name, table) if isinstance(kind_name, str) else None
    return kind if kind in KINDS else None


def _written_out(
    document: Document, path: Path, raw_fields: Mapping[str, Any], role: str, option_names: tuple[str, ...]
) -> Connection:
    settings = dict(raw_fields)
    name = settings.pop("name", role)
    kind = _kind(settings)
    if kind is not None:
        more = _REGISTRY if kind == "kafka" else ()
        known = (*setting_names(KINDS[kind]), *FIELD_SPELLINGS.get(kind, {}), *more, *option_names)
        document.refuse_unknown(path, settings, (*known, "kind", "type", "name", "connection"))
    with document.at(path):
        if kind == "kafka":
            _registry(settings)
        return connection_from_fields(name, settings, origin=document.origin(path))


def _registry(settings: dict[str, Any]) -> None:
    """Put the schema registry of a Kafka connection, in any of its spellings, under one key."""
    user, password, kind = (settings.pop(name, None) for name in _REGISTRY)
    table = kind if isinstance(kind, Mapping) else settings.get("schema_registry")
    if isinstance(table, Mapping):
        fields = {"kind": "schema_registry", **table}
        if fields["kind"] in _PLAIN_REGISTRIES:
            fields["kind"] = "schema_registry"
        name = str(fields.pop("name", "schema_registry"))
        settings["schema_registry"] = connection_from_fields(name, fields)
    elif kind not in (None, *_PLAIN_REGISTRIES):
        message = f"schema_registry_kind {kind!r} is not known"
        raise DeclareError(message, hint='confluent, apicurio, or a table: {kind = "glue", registry_name, region}.')
    if user is not None or password is not None:
        url = settings.pop("schema_registry_url", "")
        settings["schema_registry"] = SchemaRegistryConnection("schema_registry", url, user, password)
