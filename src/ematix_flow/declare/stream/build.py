"""Makes a Stream of what was written, in Python or in TOML; both spellings meet here and nowhere below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.pipeline import Source, connection_reference
from ematix_flow.declare.stream.cdc import CDC
from ematix_flow.declare.stream.checks import check_stream
from ematix_flow.declare.stream.keywords import stream_keywords
from ematix_flow.declare.stream.options import Lookup, StateStore, Watermark
from ematix_flow.declare.stream.stream import (
    AUTO,
    DEFAULT_IDLE_PAUSE_MS,
    DELIVERIES,
    DIALECTS,
    DLQ_STORES,
    ENGINES,
    ON_ERROR,
    Stream,
    StreamSourceDeclaration,
    StreamTransform,
    name_of,
)
from ematix_flow.declare.stream.targets import declared_targets, stream_targets
from ematix_flow.declare.stream.udf import PythonAggregateUdfHandle, PythonScalarUdfHandle, functions_of
from ematix_flow.declare.stream.windows import Dedupe, Join, Window
from ematix_flow.declare.values import filled_text, one_of, port_number, whole_number
from ematix_flow.errors import DeclareError, DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.declare.stream.stream import StreamTarget
    from ematix_flow.errors import Origin

_SECTIONS = {
    "window": Window,
    "join": Join,
    "deduplicate": Dedupe,
    "cdc": CDC,
    "state_store": StateStore,
    "watermark": Watermark,
}
SETTINGS = (
    "idle_pause_ms", "dead_letter_topic", "dlq_store", "dlq_max_attempts", "delivery", "metrics_port",
    "max_rows_per_batch",
)  # fmt: skip
"""The plain words and numbers of a stream, which are called the same in Python, in TOML and in the value."""

RESERVED = "source"
"""The name of the batch in the SQL of a stream."""


def stream_from_keywords(keywords: Mapping[str, Any], origin: Origin | None) -> Stream:
    """Return the stream that the keywords of Python declare."""
    options = stream_keywords(keywords)
    declared, fan_out = declared_targets(options)
    sources = _declared_sources(options)
    return build_stream(sources, stream_targets(declared, options), options, fan_out=fan_out, origin=origin)


def build_stream(
    sources: Sequence[tuple[Any, Any]],
    targets: tuple[StreamTarget, ...],
    options: Mapping[str, Any],
    *,
    fan_out: bool,
    origin: Origin | None,
) -> Stream:
    """Return the checked stream of pairs (connection, query), of targets and of the other options."""
    sections = {name: _check_section(name, options.get(name), kind) for name, kind in _SECTIONS.items()}
    stream = Stream(
        name=_name(options.get("name")),
        sources=_sources(sources),
        targets=tuple(replace(one, write=replace(one.write, cdc=sections["cdc"])) for one in targets),
        transform=_transform(options),
        lookups=_lookups(options.get("lookups")),
        udfs=functions_of("udfs", options.get("udfs"), PythonScalarUdfHandle),
        aggregate_udfs=functions_of("aggregate_udfs", options.get("aggregate_udfs"), PythonAggregateUdfHandle),
        fan_out=fan_out,
        origin=origin,
        **sections,
        **_settings(options),
    )
    check_stream(stream)
    return stream


def _name(value: Any) -> str:
    name = filled_text("name", "" if value is None else value)
    if name != name.strip() or not name.isprintable():
        message = f"the stream name {name!r} has blanks around it or characters that cannot be shown"
        raise DeclareError(message)
    return name


def _declared_sources(options: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    one, query, many = (options.get(name) for name in ("source", "source_query", "sources"))
    if many is None:
        if one is None or query is None:
            message = "a stream needs source= and source_query=, or sources="
            raise DeclareError(message, hint="source= is a connection, source_query= a topic, queue or folder of it.")
        return [(one, query)]
    if one is not None or query is not None:
        message = "a stream has source= and source_query=, or sources=, not both"
        raise DeclareError(message)
    if not isinstance(many, list | tuple) or not all(isinstance(entry, Source) for entry in many):
        message = "sources= takes a list of Source(...)"
        raise DeclareTypeError(message, hint="for example sources=[Source(connection=kafka, query='orders')].")
    return [(entry.connection, _source_query(entry)) for entry in many]


def _source_query(source: Source) -> Any:
    """Return what a source of a stream reads, however it was declared."""
    if source.options or source.columns:
        message = "a source of a stream takes no columns and no options"
        raise DeclareError(message, hint="say them in transform_sql=, or on the connection.")
    return source.query or source.path or (".".join(source.table) if source.table else None)


def _sources(pairs: Sequence[tuple[Any, Any]]) -> tuple[StreamSourceDeclaration, ...]:
    if not pairs:
        message = "sources= is empty"
        raise DeclareError(message, hint="name at least one Source(...).")
    checked = []
    for written, query in pairs:
        connection = connection_reference("source", written)
        if connection is None or query is None:
            message = f"a source of a stream needs a {'connection' if connection is None else 'query'}"
            raise DeclareError(message, hint="for example Source(connection=kafka, query='orders').")
        checked.append((connection, filled_text("query", query)))
    queries = [query for _, query in checked]
    keys = [(name_of(connection), query) for connection, query in checked]
    for name, query in keys:
        if keys.count((name, query)) > 1:
            message = f"two sources read {query!r} of connection {name!r}"
            raise DeclareError(message, hint="every row would be read twice.")
    return tuple(
        StreamSourceDeclaration(
            connection, query, query if queries.count(query) == 1 else f"{query}@{name_of(connection)}"
        )
        for connection, query in checked
    )


def _transform(options: Mapping[str, Any]) -> StreamTransform:
    names = {"sql": "transform_sql", "dialect": "dialect", "on_error": "transform_on_error"}
    values = {name: options[keyword] for name, keyword in names.items() if options.get(keyword) is not None}
    # Only TOML has these: they come from a time when the work was not Spark's to distribute.
    values |= {name: options[name] for name in ("engine", "peers", "tls") if options.get(name) is not None}
    transform = StreamTransform(**values, optional_fields=_optional(options.get("optional_fields")))
    if transform.sql is not None:
        filled_text("transform_sql", transform.sql)
    one_of("dialect", transform.dialect, DIALECTS)
    one_of("transform_on_error", transform.on_error, ON_ERROR)
    one_of("engine", transform.engine, ENGINES)
    if not isinstance(transform.peers, tuple) or not all(isinstance(peer, str) for peer in transform.peers):
        message = "peers takes a list of addresses"
        raise DeclareTypeError(message)
    return transform


def _optional(value: Any) -> dict[str, str]:
    """Return fields with their types; those that are only named are text."""
    if isinstance(value, list | tuple):
        value = dict.fromkeys(value, "STRING")
    if not isinstance(value or {}, Mapping):
        message = f"optional_fields= takes a list of names, or a table of name -> type, not {value!r}"
        raise DeclareTypeError(message, hint='for example optional_fields=["nick"] or {"items": "ARRAY<STRING>"}.')
    return {filled_text("optional_fields", name): filled_text(name, kind) for name, kind in (value or {}).items()}


def _lookups(value: Any) -> dict[str, Lookup]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(entry, Lookup) for entry in value.values()):
        message = "lookups= takes a table of name -> Lookup(...)"
        raise DeclareTypeError(message, hint='for example lookups={"users": Lookup(connection=db, table="users")}.')
    names = [str(name).lower() for name in value]
    for name in value:
        if not isinstance(name, str) or not name.isidentifier() or name.lower() == RESERVED:
            message = f"a lookup cannot be named {name!r}"
            raise DeclareError(message, hint=f"use a plain name; {RESERVED!r} is the batch itself.")
        if names.count(name.lower()) > 1:
            message = f"two lookups are named {name!r} to SQL, which ignores case"
            raise DeclareError(message)
    return dict(value)


def _check_section(name: str, value: Any, kind: type) -> Any:
    if value is None or isinstance(value, kind):
        return value
    message = f"{name}= takes {kind.__name__}(...), not {type(value).__name__}"
    raise DeclareTypeError(message)


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain words and numbers of a stream."""
    least = {"dlq_max_attempts": 1, "max_rows_per_batch": 1, "idle_pause_ms": 0}
    numbers = {name: whole_number(name, options[name], low) for name, low in least.items() if name in options}
    if "metrics_port" in options:
        numbers["metrics_port"] = port_number("metrics_port", options["metrics_port"])
    choices = {"dlq_store": (DLQ_STORES, "auto"), "delivery": (DELIVERIES, AUTO)}
    chosen = {name: options.get(name, usual) for name, (_, usual) in choices.items()}
    for name, (known, _) in choices.items():
        one_of(name, chosen[name], known)
    if options.get("dead_letter_topic") is not None:
        chosen["dead_letter_topic"] = filled_text("dead_letter_topic", options["dead_letter_topic"])
    return {"idle_pause_ms": DEFAULT_IDLE_PAUSE_MS, **numbers, **chosen}
