"""The targets of a pipeline as declared values: what each sets itself, and what it takes over from its pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.file_options import FILE_OPTIONS, file_options
from ematix_flow.declare.pipeline.keywords import WRITE_KEYWORDS, target_keywords
from ematix_flow.declare.pipeline.pipeline import TargetDeclaration, connection_reference
from ematix_flow.declare.pipeline.write import MODES, MODES_OF, Write, write
from ematix_flow.declare.quality.expectations import quality_of
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.declare.table.partitions import partition_texts
from ematix_flow.errors import DeclareError, DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.declare.table.schema import Table

_OURS = ("mode", "spelled", "cdc", "versions_of", "is_snapshot", "keeps_known_rejects")

WRITE_OPTIONS = tuple(name for name in Write.__dataclass_fields__ if name not in _OURS)


def target(declared: Any, **keywords: Any) -> TargetDeclaration:
    """Declare one target of a fan-out."""
    return _target(declared, target_keywords(keywords))


def targets_of(options: dict[str, Any]) -> tuple[tuple[TargetDeclaration, ...], bool]:
    """Return the declared targets, and whether the user wrote a list of them."""
    one, many = options.pop("target", None), options.pop("targets", None)
    if (one is None) == (many is None):
        message = "a pipeline has exactly one of target= and targets="
        raise DeclareTypeError(message)
    if one is not None:
        return (_target(one, options),), False
    if not isinstance(many, list | tuple):
        message = f"targets= takes a list, not {type(many).__name__}"
        raise DeclareTypeError(message, hint="write targets=[...], or target= with one table.")
    if not many:
        message = "targets= is empty"
        raise DeclareTypeError(message, hint="name at least one ematix.target(...).")
    declared = _inheriting([_entry_options(entry) for entry in many], options)
    _refuse_duplicate_targets(declared)
    return declared, True


def _refuse_duplicate_targets(targets: tuple[TargetDeclaration, ...]) -> None:
    """Refuse two targets that are the same table: what was loaded is remembered by connection and table."""
    known: set[tuple[str, str]] = set()
    for one in targets:
        key = (one.connection_name, one.table.qualified_name)
        if key in known:
            message = f"two targets are the table {one.table.qualified_name} of connection {one.connection_name!r}"
            raise DeclareError(message, hint="give each a table class of its own, also when their prefix= differs.")
        known.add(key)


def _target(declared: Any, options: Mapping[str, Any]) -> TargetDeclaration:
    table = table_of(declared)
    specified = {name: options[name] for name in WRITE_KEYWORDS if options.get(name) is not None}
    specified |= view_defaults(table, specified)
    written = write(specified.get("mode"), **{name: specified.get(name) for name in WRITE_OPTIONS})
    return TargetDeclaration(
        table=table,
        write=written,
        connection=connection_reference("target_connection", specified.get("target_connection")),
        column_map=specified.get("column_map"),
        files=file_options(**{name: specified.get(name) for name in FILE_OPTIONS}),
        partition_by=_partitions(table, specified.get("partition_by")),
        quality=quality_of(specified, table, written),
        declared_options=specified,
    )


def view_defaults(table: Table, specified: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a feature view adds to the options of its load: the mode, the event column and the ttl."""
    view = table.features
    if view is None:
        return {}
    mode = specified.get("mode", "scd2")
    if isinstance(mode, str) and MODES.get(mode, "scd2") != "scd2":
        message = f"feature view {view.name} stores versions, and mode={mode!r} has none"
        raise DeclareError(message, hint='leave mode= out, or write mode="scd2".')
    own = {"mode": mode, "event_timestamp_column": view.event_timestamp_column, "ttl": view.ttl}
    return {name: value for name, value in own.items() if value is not None and name not in specified}


def _partitions(table: Table, value: Any) -> tuple[str, ...]:
    texts = () if value is None else partition_texts("partition_by", value)
    table.check_partitions(texts)
    return texts


def _entry_options(entry: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the table and the options that one entry of a list of targets sets itself."""
    if isinstance(entry, TargetDeclaration):
        return entry.table, entry.declared_options
    fields = getattr(entry, "as_batch_target", None)
    if fields is None:
        message = f"{entry!r} is not a target"
        raise DeclareTypeError(message, hint="use ematix.target(Table, ...) or Target(table=..., connection=...).")
    declared, connection, options = fields()
    specified = {"target_connection": connection, **options}
    return declared, {name: value for name, value in specified.items() if value is not None}


def _inheriting(
    entries: list[tuple[Any, Mapping[str, Any]]], options: Mapping[str, Any]
) -> tuple[TargetDeclaration, ...]:
    """Return the targets, each with those options of the pipeline that its mode takes and it does not set itself."""
    shared = {name: options[name] for name in WRITE_KEYWORDS if options.get(name) is not None}
    known = {column.name for declared, _ in entries for column in table_of(declared).columns}
    modes = [
        specified.get("mode", shared.get("mode")) or view_defaults(table_of(declared), {}).get("mode")
        for declared, specified in entries
    ]
    refuse_untaken(shared, modes)
    return tuple(
        _target(declared, {**_inherited(shared, mode, declared, known), **specified})
        for (declared, specified), mode in zip(entries, modes, strict=True)
    )


def refuse_untaken(shared: Mapping[str, Any], modes: list[Any]) -> None:
    """Refuse an option for all targets that the mode of none of them has."""
    for name in shared:
        if not any(takes(mode, name) for mode in modes):
            message = f"{name}= does not go with the mode of any target"
            raise DeclareError(message, hint=f"{name}= is an option of {' or '.join(MODES_OF[name])}.")


def takes(mode: Any, option: str) -> bool:
    """Return whether a mode has an option."""
    # A mode that is not known takes everything here: it is refused in its own words.
    return not isinstance(mode, str) or mode not in MODES or MODES[mode] in MODES_OF.get(option, (MODES[mode],))


def _inherited(shared: Mapping[str, Any], mode: Any, declared: Any, known: set[str]) -> dict[str, Any]:
    inherited = {name: value for name, value in shared.items() if takes(mode, name)}
    if isinstance(inherited.get("column_map"), dict):
        own = {column.name for column in table_of(declared).columns}
        # Columns of the other targets are theirs; one that no target has is refused when the load is planned.
        inherited["column_map"] = {c: e for c, e in inherited["column_map"].items() if c in own or c not in known}
    return inherited
