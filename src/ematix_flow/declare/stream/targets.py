"""The targets of a stream as declared values: what each sets itself, and what it takes over from its stream."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.fan_out import refuse_untaken, takes, view_defaults
from ematix_flow.declare.pipeline.file_options import FILE_OPTIONS, READ_OPTIONS, check_read_options, file_options
from ematix_flow.declare.pipeline.keywords import duration
from ematix_flow.declare.pipeline.pipeline import TargetDeclaration, connection_reference
from ematix_flow.declare.pipeline.targets import Target
from ematix_flow.declare.pipeline.write import CHANGES, FILES, MIRROR, write
from ematix_flow.declare.stream.keywords import DESTINATION_KEYWORDS, STREAM_WRITE_KEYWORDS
from ematix_flow.declare.stream.stream import StreamTarget
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.declare.table.partitions import partition_texts
from ematix_flow.declare.table.schema import Table, check_name
from ematix_flow.declare.values import column_names, filled_text, switch
from ematix_flow.errors import DeclareError, DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.declare.pipeline.write import Write

_TEXTS = ("topic", "queue", "partition_key_prefix", "message_key_column")
TARGET_OPTIONS = (
    "table", *_TEXTS, "primary_key", "partition_by", "create_table",
    *FILE_OPTIONS, *READ_OPTIONS, *STREAM_WRITE_KEYWORDS,
)  # fmt: skip
"""What one target of a stream may set besides its connection."""


def declared_targets(options: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """Return what each target sets itself, and whether the user wrote a list of them."""
    one, many = options.get("target"), options.get("targets")
    if many is None:
        return [_single(options)], False
    conflicting = [name for name in ("target", *DESTINATION_KEYWORDS) if options.get(name) is not None]
    if conflicting:
        message = f"a stream has targets= or {conflicting[0]}=, not both"
        raise DeclareError(message, hint="say it in each Target(...)." if one is None else None)
    if not isinstance(many, list | tuple):
        message = f"targets= takes a list, not {type(many).__name__}"
        raise DeclareTypeError(message, hint="write targets=[Target(...)].")
    if not many:
        message = "targets= is empty"
        raise DeclareError(message, hint="name at least one Target(...).")
    return [_entry_options(entry, options) for entry in many], True


def stream_targets(entries: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]) -> tuple[StreamTarget, ...]:
    """Return the targets; each takes those options of its stream that its mode has and that it does not set itself."""
    shared_options = {name: shared[name] for name in STREAM_WRITE_KEYWORDS if shared.get(name) is not None}
    modes = [
        entry.get("mode") or shared_options.get("mode") or default_mode(shared.get("cdc"), entry.get("table"))
        for entry in entries
    ]
    refuse_untaken(shared_options, modes)
    return tuple(
        stream_target(
            {**{name: value for name, value in shared_options.items() if takes(mode, name)}, **entry, "mode": mode}
        )
        for entry, mode in zip(entries, modes, strict=True)
    )


def default_mode(cdc: object, table: Any = None) -> str:
    """Return the mode of a target that sets none: a feature view has versions, changes are applied, other rows are appended."""
    declared = _declared(table)
    if declared is not None and declared.features is not None:
        return str(view_defaults(declared, {})["mode"])
    return "append" if cdc is None else CHANGES


def _single(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the keywords of a stream with one target set for it."""
    target, connection, table = options.get("target"), options.get("target_connection"), options.get("target_table")
    if target is None and connection is None:
        message = "a stream has exactly one of target= and targets="
        raise DeclareError(message, hint="target= is the connection that is written to.")
    if _declared(target) is not None:
        if table is not None:
            message = "a stream says its table twice: target= and target_table="
            raise DeclareError(message)
        target, table = None, target
        connection = "default" if connection is None else connection
    if target is not None and connection is not None:
        message = "a stream says its target's connection twice: target= and target_connection="
        raise DeclareError(message, hint="target_connection= goes with a table class in target=.")
    destinations = {name.removeprefix("target_"): options.get(name) for name in DESTINATION_KEYWORDS}
    return _without_none({**destinations, "table": table, "connection": target if connection is None else connection})


def _entry_options(entry: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one entry of a list of targets sets."""
    if isinstance(entry, TargetDeclaration):
        specified = {**entry.declared_options, "table": entry.table, "connection": entry.connection}
        specified.pop("target_connection", None)
    elif isinstance(entry, Target):
        specified = {one.name: getattr(entry, one.name) for one in fields(entry)}
    else:
        message = f"targets= takes Target(...), not {type(entry).__name__}"
        raise DeclareTypeError(message)
    specified = _without_none(specified)
    foreign = [name for name in specified if name not in ("connection", *TARGET_OPTIONS)]
    if foreign:
        message = f"a target of a stream has no {foreign[0]}="
        raise DeclareError(message, hint="transform_sql= shapes the rows of a stream.")
    if "connection" not in specified:
        specified["connection"] = options.get("target_connection") or (
            "default" if _declared(specified.get("table")) else None
        )
    return specified


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def stream_target(specified: Mapping[str, Any]) -> StreamTarget:
    """Return the target that sets this and nothing else."""
    table = _table_reference(specified.get("table"))
    files = file_options(**{name: specified.get(name) for name in FILE_OPTIONS})
    texts: dict[str, Any] = {name: filled_text(name, specified[name]) for name in _TEXTS if name in specified}
    return StreamTarget(
        connection=_connection(specified.get("connection")),
        write=_write(specified),
        table=table,
        primary_key=column_names("primary_key", specified["primary_key"]) if "primary_key" in specified else (),
        partition_by=_partitions(table, specified.get("partition_by")),
        create_table=switch("create_table", specified.get("create_table", False)),
        files=files,
        read_options=_read_options(specified),
        **texts,
    )


def _connection(value: Any) -> str | Connection:
    reference = connection_reference("target", value)
    if reference is None:
        message = "a target of a stream needs a connection"
        raise DeclareError(message, hint="for example Target(connection=warehouse, table=(...)).")
    return reference


def _write(specified: Mapping[str, Any]) -> Write:
    declared = _declared(specified.get("table"))
    if declared is not None:
        specified = {**specified, **view_defaults(declared, specified)}
    options = {name: specified.get(name) for name in (*STREAM_WRITE_KEYWORDS, "ttl") if name != "mode"}
    if options["late_horizon"] is not None:
        options["late_horizon"] = duration("late_horizon", options["late_horizon"])
    if options["on_replaced"] is not None:
        options["incremental"] = FILES  # which a stream of files always is
    mode = specified.get("mode", "append")
    if mode == CHANGES:
        # Checked as a merge, whose keys it has; it has no other word, because only cdc= declares it.
        result = replace(write("merge", **options), mode=CHANGES, spelled=CHANGES, incremental=None)
        return _check_changes(result)
    result = replace(write(mode, **options), incremental=None)
    if result.spelled == MIRROR:
        message = "a stream cannot mirror its source by what is absent: mode='mirror' knows only whole sources"
        raise DeclareError(message, hint="cdc=CDC() applies the changes of a database, its deletes among them.")
    if result.mode == "truncate":
        message = "a stream cannot replace its target: mode='truncate' knows only whole sources"
        raise DeclareError(message, hint="use append, merge or scd2.")
    return result


def _check_changes(value: Write) -> Write:
    for name in ("update_columns", "compare_columns", "order_by"):
        if getattr(value, name, None):
            message = f"{name}= does not go with cdc=: the log of the database has the order and the columns of changes"
            raise DeclareError(message, hint='leave it out, or say mode="scd2".')
    return value


def _read_options(specified: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    read_options = {name: specified[name] for name in READ_OPTIONS if name in specified}
    for name, options in read_options.items():
        check_read_options(name, options)
    return {name: dict(options) for name, options in read_options.items()}


def _declared(value: Any) -> Table | None:
    is_class = isinstance(value, type) and "__table__" in vars(value)
    return table_of(value) if is_class or isinstance(value, Table) else None


def _table_reference(value: Any) -> Table | tuple[str, str] | None:
    """Return a declared table, or the schema and name of one."""
    if value is None:
        return None
    declared = _declared(value)
    if declared is not None:
        return declared
    pair = tuple(value.split(".")) if isinstance(value, str) else value
    if not isinstance(pair, list | tuple) or len(pair) != 2:  # noqa: PLR2004 - schema and name
        message = f"{value!r} is not a table" if isinstance(value, str) else f"a table cannot be {type(value).__name__}"
        raise DeclareTypeError(message, hint='use a table class, or ("schema", "name").')
    schema, name = pair
    check_name("schema", schema, None)
    check_name("table", name, None)
    return schema, name


def _partitions(table: Table | tuple[str, str] | None, value: Any) -> tuple[str, ...]:
    texts = () if value is None else partition_texts("partition_by", value)
    if isinstance(table, Table):
        table.check_partitions(texts)
    return texts
