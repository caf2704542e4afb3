"""Reads a stream from TOML into the same value that Python declares; no reference is filled in here."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.connection.base import Connection, is_open
from ematix_flow.declare.masking import is_secret_field, secrets_in
from ematix_flow.declare.stream.build import SETTINGS, build_stream
from ematix_flow.declare.stream.cdc import CDC
from ematix_flow.declare.stream.options import Lookup, StateStore, Watermark
from ematix_flow.declare.stream.targets import TARGET_OPTIONS, default_mode, stream_target
from ematix_flow.declare.stream.toml_sections import TABLE_KEYS, Document, connection_in, target_in
from ematix_flow.declare.stream.windows import Aggregation, Dedupe, Join, Window
from ematix_flow.declare.toml import parsed
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ematix_flow.declare.stream.stream import Stream, StreamTarget

SILENCE = "EMATIX_FLOW_NO_DEPRECATION"
"""Set to 1, it silences the warning about passwords in files."""

_TABLES = ("source", "sources", "target", "targets", "transform", "state_store", "watermark")
_TRANSFORM = {
    "sql": "transform_sql",
    "on_error": "transform_on_error",
    "dialect": "dialect",
    "engine": "engine",
    "optional_fields": "optional_fields",
}
_NESTED = ("peers", "tls", "lookups", "window", "join", "deduplicate", "cdc")
REPLICATE = "replicate"
"""The table of a file that declares a replication instead of a stream."""
REPLICATION_KEYS = ("name", "source", "tables", "into", "mode", "schema", "transform_on_error", "cdc")
_LOOKUP = ("schema", "table", "query", "refresh_interval_ms", "as_of")


def keys() -> dict[str, tuple[str, ...]]:
    """Return the keys of every table, besides those of connections; the reference is made from this."""
    return {
        "(top)": ("pipeline_name", "source_query", *SETTINGS),
        "[source]": ("query",),
        "[target]": tuple(option for option in TARGET_OPTIONS if option != "table"),
        "[target.table]": TABLE_KEYS,
        "[transform]": (*_TRANSFORM, "peers", "tls"),
        "[transform.lookups.<name>]": _LOOKUP,
        "[transform.window]": tuple(one.name for one in fields(Window) if one.name != "aggregations"),
        "[[transform.window.aggregations]]": tuple(one.name.rstrip("_") for one in fields(Aggregation)),
        "[transform.join]": tuple(one.name for one in fields(Join)),
        "[transform.deduplicate]": tuple(one.name for one in fields(Dedupe)),
        "[transform.cdc]": tuple(one.name for one in fields(CDC)),
        "[state_store]": tuple(one.name for one in fields(StateStore)),
        "[watermark]": tuple(one.name for one in fields(Watermark)),
        f"[{REPLICATE}]": tuple(key for key in REPLICATION_KEYS if key != "cdc"),
        f"[{REPLICATE}.cdc]": tuple(one.name for one in fields(CDC)),
    }


def stream_from_toml(text: str, file: str = "config_str") -> Stream:
    """Return the stream that a text declares; `file` is what errors call it."""
    tables = parsed(text, file)
    document = Document(text, file)
    document.refuse_unknown((), tables, ("pipeline_name", "source_query", *SETTINGS, *_TABLES))
    if "pipeline_name" not in tables:
        raise DeclareError(f"{file} has no pipeline_name", origin=document.origin(()))
    options = {"name": tables["pipeline_name"], **{name: tables[name] for name in SETTINGS if name in tables}}
    options |= _transform(document, tables.get("transform", {}))
    options["state_store"] = section(document, ("state_store",), tables.get("state_store"), StateStore)
    options["watermark"] = section(document, ("watermark",), tables.get("watermark"), Watermark)
    sources, targets = _sources(document, tables), _targets(document, tables)
    with document.at(()):
        stream = build_stream(
            sources, targets, options, fan_out="targets" in tables, origin=document.origin((), "pipeline_name")
        )
    _warn_of_passwords(stream, file)
    return stream


def _sources(document: Document, tables: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    sources = []
    for path, role, table in _entries(document, tables, "source"):
        query = table.get("query")
        if path == ("source",):
            if query is not None and "source_query" in tables:
                raise DeclareError("source_query and query of [source] are the same", origin=document.origin(path))
            query = tables.get("source_query", query)
        if query is None:
            key = "source_query" if path == ("source",) else "query"
            raise DeclareError(f"{document.name(path)} has no {key}", origin=document.origin(path))
        connection, _ = connection_in(document, path, table, role, ("query",))
        sources.append((connection, query))
    return sources


def _targets(document: Document, tables: Mapping[str, Any]) -> tuple[StreamTarget, ...]:
    targets = []
    transform = tables.get("transform")
    mode = default_mode(transform.get("cdc") if isinstance(transform, dict) else None)
    for path, role, table in _entries(document, tables, "target"):
        options = {"mode": mode, **target_in(document, path, table, role)}
        with document.at(path):
            targets.append(stream_target(options))
    return tuple(targets)


def _entries(
    document: Document, tables: Mapping[str, Any], section: str
) -> Iterator[tuple[tuple[str | int, ...], str, Mapping[str, Any]]]:
    """Return the tables of sources or targets, with the location of each and the name its connection has by default."""
    if (section in tables) == (f"{section}s" in tables):
        message = f"{document.file} has exactly one of [{section}] and [[{section}s]]"
        raise DeclareError(message, origin=document.origin((), section))
    if section in tables:
        yield (section,), section, document.table((section,), tables[section])
        return
    if not isinstance(tables[f"{section}s"], list) or not tables[f"{section}s"]:
        raise DeclareError(
            f"{section}s is no list of tables", hint=f"write [[{section}s]].", origin=document.origin(())
        )
    for number, entry in enumerate(tables[f"{section}s"]):
        path = (f"{section}s", number)
        yield path, section if number == 0 else f"{section}_{number + 1}", document.table(path, entry)


def _transform(document: Document, written: Any) -> dict[str, Any]:
    path = ("transform",)
    table = document.table(path, written)
    document.refuse_unknown(path, table, (*_TRANSFORM, *_NESTED))
    options = {option: table[name] for name, option in _TRANSFORM.items() if name in table}
    options["peers"] = tuple(table["peers"]) if isinstance(table.get("peers"), list) else table.get("peers")
    options["tls"] = dict(document.table((*path, "tls"), table["tls"])) if "tls" in table else None
    if "lookups" in table:
        lookups = document.table((*path, "lookups"), table["lookups"])
        options["lookups"] = {name: _lookup(document, name, entry) for name, entry in lookups.items()}
    options["window"] = _window(document, table.get("window"))
    options["join"] = section(document, (*path, "join"), table.get("join"), Join)
    options["deduplicate"] = section(document, (*path, "deduplicate"), table.get("deduplicate"), Dedupe)
    options["cdc"] = section(document, (*path, "cdc"), table.get("cdc"), CDC, required_key="envelope")
    return options


def _lookup(document: Document, name: str, written: Any) -> Lookup:
    path = ("transform", "lookups", name)
    table = document.table(path, written)
    connection, settings = connection_in(document, path, table, name, _LOOKUP)
    with document.at(path):
        return Lookup(connection=connection, **settings)


def _window(document: Document, written: Any) -> Window | None:
    path = ("transform", "window")
    if written is None:
        return None
    entries = document.table(path, written).get("aggregations", [])
    if not isinstance(entries, list):
        raise DeclareError("aggregations is no list of tables", origin=document.origin(path))
    aggregations = []
    for number, entry in enumerate(entries):
        inner = (*path, "aggregations", number)
        written_keys = {key: value for key, value in document.table(inner, entry).items() if key != "as_"}
        document.refuse_unknown(inner, written_keys, [one.name.rstrip("_") for one in fields(Aggregation)])
        table = {"as_" if key == "as" else key: value for key, value in document.table(inner, entry).items()}
        aggregations.append(section(document, inner, table, Aggregation))
    window: Window = section(
        document, path, {**written, "aggregations": aggregations}, Window, required_key="max_groups_per_window"
    )
    return window


def section(document: Document, path: tuple[str | int, ...], written: Any, kind: type, required_key: str = "") -> Any:
    """Return one of the frozen values that have the same fields in TOML as in Python."""
    if written is None:
        return None
    table = document.table(path, written)
    known = [one.name for one in fields(kind)]
    document.refuse_unknown(path, table, known)
    if required_key and required_key not in table:
        raise DeclareError(f"{document.name(path)} has no {required_key}", origin=document.origin(path))
    missing = [one.name for one in fields(kind) if one.name not in table and _is_required(one)]
    if missing:
        raise DeclareError(f"{document.name(path)} has no {missing[0].rstrip('_')}", origin=document.origin(path))
    with document.at(path):
        return kind(**table)


def _is_required(one: Any) -> bool:
    return bool(one.default is one.default_factory)


def warn_of_passwords(references: Iterable[str | Connection], file: str, more: Iterable[tuple[str, str]] = ()) -> None:
    """Report once which secrets are in the file itself: those of connections, and more."""
    if os.environ.get(SILENCE) == "1":
        return
    entries = [entry for one in references if isinstance(one, Connection) for entry in _in_connection(one)]
    passwords = [f"{name} of {location}" for location, name in (*entries, *more)]
    if passwords:
        text = f"{file} holds secrets in plain text: {', '.join(passwords)}; write them as ${{VAR}} ({SILENCE}=1 silences this)"
        warnings.warn(text, FutureWarning, stacklevel=2)


def _warn_of_passwords(stream: Stream, file: str) -> None:
    store = stream.state_store
    is_plain = store is not None and store.url and not is_open(store.url) and secrets_in(store.url)
    references = [*(one.connection for one in stream.sources), *(one.connection for one in stream.targets)]
    references += [one.connection for one in stream.lookups.values()]
    warn_of_passwords(references, file, [("state_store", "url")] if is_plain else ())


def _in_connection(connection: Connection) -> Iterator[tuple[str, str]]:
    for name, value in connection.settings().items():
        if isinstance(value, Connection):
            yield from _in_connection(value)
        if not isinstance(value, str) or not value or is_open(value) or name.endswith("_path"):
            continue
        if is_secret_field(name) or secrets_in(value):
            yield connection.name, name
