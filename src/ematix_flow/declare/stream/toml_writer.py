"""Writes a stream as the TOML that declares the same; what only Python can express is refused."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.connection.base import Connection, setting_names
from ematix_flow.declare.stream.build import SETTINGS
from ematix_flow.declare.stream.checks import FILES
from ematix_flow.declare.stream.keywords import STREAM_WRITE_KEYWORDS
from ematix_flow.declare.stream.stream import StreamTransform
from ematix_flow.declare.stream.targets import TARGET_OPTIONS, default_mode
from ematix_flow.declare.toml import dumps
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.stream.options import Lookup
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.declare.stream.windows import Window


def toml_of(stream: Stream) -> str:
    """Return the text; secrets are in it as they were written, which is a reason to write them as `${...}`."""
    if stream.udfs or stream.aggregate_udfs:
        message = f"stream {stream.name!r} calls functions of Python, which TOML cannot say"
        raise DeclareError(message, origin=stream.origin)
    sources = [{"query": one.query, **_connection(one.connection)} for one in stream.sources]
    targets = [_target(one, stream) for one in stream.targets]
    return dumps(
        {
            "pipeline_name": stream.name,
            **_changed(stream, SETTINGS),
            **({"source": sources[0]} if len(sources) == 1 else {"sources": sources}),
            **({"targets": targets} if stream.fan_out else {"target": targets[0]}),
            **_optional_section("transform", _transform(stream)),
            **_optional_section("state_store", _all_of(stream.state_store)),
            **_optional_section("watermark", _all_of(stream.watermark)),
        }
    )


def _changed(value: Any, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the fields of a value that are not what they are by themselves."""
    changed = {}
    for one in fields(value):
        usual = one.default if one.default_factory is MISSING else one.default_factory()
        if (names is None or one.name in names) and getattr(value, one.name) != usual:
            changed[one.name] = getattr(value, one.name)
    return changed


def _all_of(value: Any) -> dict[str, Any] | None:
    return None if value is None else {one.name: getattr(value, one.name) for one in fields(value)}


def _optional_section(key: str, table: dict[str, Any] | None) -> dict[str, Any]:
    return {} if table is None else {key: table}


def _connection(connection: str | Connection) -> dict[str, Any]:
    if isinstance(connection, str):
        return {"connection": connection}
    settings = _changed(connection, setting_names(type(connection)))
    nested = {name: _connection(value) for name, value in settings.items() if isinstance(value, Connection)}
    return {"kind": connection.kind, "name": connection.name, **settings, **nested}


def _target(target: StreamTarget, stream: Stream) -> dict[str, Any]:
    if target.declared_table is not None:
        message = f"stream {stream.name!r} writes to a table class, which TOML cannot say"
        raise DeclareError(message, hint="name the table as (schema, name).", origin=stream.origin)
    options = _changed(target, ("topic", "queue", "partition_key_prefix", "message_key_column", "partition_by"))
    options |= {"create_table": True} if target.create_table else {}
    options |= _write(target.write) | target.files.specified()
    if target.table_name is not None:
        schema, name = target.table_name
        options["table"] = {"schema": schema, "name": name, "primary_key": target.primary_key or None}
    elif target.primary_key:
        options["primary_key"] = target.primary_key
    options |= target.read_options
    connection = _connection(target.connection)
    return (
        {**connection, **options} if _is_flat(target.connection, connection) else {"connection": connection, **options}
    )


def _is_flat(reference: str | Connection, connection: dict[str, Any]) -> bool:
    """Return whether a connection can be among the keys of its target without being taken for one of them."""
    option_names = set(TARGET_OPTIONS)
    if isinstance(reference, Connection) and not reference.kind.startswith(FILES):
        option_names -= {"prefix"}
    return option_names.isdisjoint(connection)


def _write(write: Write) -> dict[str, Any]:
    options = _changed(write, tuple(STREAM_WRITE_KEYWORDS))
    options.pop("mode", None)
    return {"mode": write.spelled, **options} if write.spelled != default_mode(write.cdc) else options


def _transform(stream: Stream) -> dict[str, Any] | None:
    table = {
        **_changed(stream.transform, tuple(one.name for one in fields(StreamTransform))),
        **({"lookups": {n: _lookup(one) for n, one in stream.lookups.items()}} if stream.lookups else {}),
        **_optional_section("window", None if stream.window is None else _window(stream.window)),
        **_optional_section("join", None if stream.join is None else _all_of(stream.join)),
        **_optional_section("deduplicate", None if stream.deduplicate is None else _all_of(stream.deduplicate)),
        **_optional_section("cdc", _all_of(stream.cdc)),
    }
    return table or None


def _lookup(lookup: Lookup) -> dict[str, Any]:
    options = _changed(lookup, ("table", "schema", "refresh_interval_ms", "query", "as_of"))
    return {**_connection(lookup.connection), **options}


def _window(window: Window) -> dict[str, Any]:
    aggregations = [{"agg": one.agg, "as": one.as_, **_changed(one)} for one in window.aggregations]
    for entry in aggregations:
        entry.pop("as_")
    return {**(_all_of(window) or {}), "aggregations": aggregations}
