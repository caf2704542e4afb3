"""Plans as JSON and back: a closed set of values, each written so that it comes back equal; no class is looked up by path."""

from __future__ import annotations

import base64
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from ematix_flow import records
from ematix_flow.commit import request as order
from ematix_flow.connect.base import columns, session, stage
from ematix_flow.declare.pipeline.write import Write
from ematix_flow.declare.table.features import Features
from ematix_flow.declare.table.partitions import Partition
from ematix_flow.declare.table.types import ColumnType
from ematix_flow.errors import CommitError
from ematix_flow.plan import steps
from ematix_flow.plan.explain import diff
from ematix_flow.plan.sql import ddl, program

IS = "is"
"""The field of an object that names its type."""


def _kinds(root: type[ColumnType]) -> list[type]:
    return [root, *(kind for child in root.__subclasses__() for kind in _kinds(child))]


_KNOWN: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *_kinds(ColumnType),
        *(
            records.Counts,
            records.FileScope,
            records.TaskReport,
            records.SourceFile,
            records.Token,
            records.SourceWatermark,
        ),
        *(columns.SourceColumn, columns.TableName, stage.StageColumn, stage.StageSpec, stage.WorkTable),
        *(program.DuplicateChecks, program.Load, program.Program, session.Statement),
        *(ddl.Difference, ddl.ColumnDefinition, ddl.TableDefinition, Features, Partition),
        *(steps.Bounds, steps.Check, steps.Choice, steps.Commit, steps.EnsureTable, steps.FileChoice, steps.Read),
        *(
            steps.Audit,
            steps.Measure,
            steps.Shape,
            steps.OffsetRange,
            steps.Stage,
            steps.TableRead,
            steps.TargetPlan,
            diff.Diff,
            diff.Sample,
            order.Excluded,
            order.TableSnapshot,
            Write,
        ),
    )
}


def know(kind: type) -> type:
    """Add a class to the closed set; a decorator for values that are stored with a plan."""
    _KNOWN[kind.__name__] = kind
    return kind


def encode(value: Any) -> Any:
    """Return a value as what JSON can hold."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if is_dataclass(value) and type(value) is _KNOWN.get(type(value).__name__):
        return {IS: type(value).__name__} | {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    for name, kind, written, _ in _PLAIN:
        if isinstance(value, kind):
            return {IS: name, "value": written(value)}
    message = f"a plan cannot hold a value of type {type(value).__name__}"
    raise CommitError(message)


def decode(value: Any) -> Any:
    """Return the value that was encoded."""
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    name = value[IS]
    for known, _, _, read in _PLAIN:
        if known == name:
            return read(value["value"])
    if name not in _KNOWN:
        message = f"the plan holds a value {name!r} that this version does not know"
        raise CommitError(message, hint="plan again.")
    return _KNOWN[name](**{key: decode(item) for key, item in value.items() if key != IS})


_PLAIN: tuple[tuple[str, type, Any, Any], ...] = (
    ("instant", datetime, lambda at: at.isoformat(), datetime.fromisoformat),
    (
        "span",
        timedelta,
        lambda delta: [delta.days, delta.seconds, delta.microseconds],
        lambda parts: timedelta(parts[0], parts[1], parts[2]),
    ),
    ("bytes", bytes, lambda data: base64.b64encode(data).decode(), base64.b64decode),
    ("set", frozenset, sorted, frozenset),
    ("list", list, lambda items: [encode(item) for item in items], lambda items: [decode(item) for item in items]),
    (
        "map",
        dict,
        lambda items: [[encode(key), encode(item)] for key, item in items.items()],
        lambda pairs: {decode(key): decode(item) for key, item in pairs},
    ),
    ("decimal", Decimal, str, Decimal),
)
"""Other values: the name in JSON, the type, how it is written and how it is read."""
