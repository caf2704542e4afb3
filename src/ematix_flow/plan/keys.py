"""Which columns identify a row and which decide that it changed, each with the reason for the choice."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline.write import CHANGES
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.steps import Choice

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.table.schema import Table


SOFT_KINDS = ("timestamp", "timestamp_tz", "boolean")
_WITHOUT_ORDER = ("json", "jsonb", "bytes", "boolean")


def merge_keys(table: Table, write: Write) -> Choice:
    """Return the keys for merge and scd2: explicit, `__merge_keys__`, first natural key, primary key."""
    if write.mode not in ("merge", "scd2", CHANGES):
        return Choice((), "this mode needs no keys")
    if write.keys:
        return Choice(_known(table, write.keys, "keys"), "from explicit keys=")
    if table.merge_keys:
        return _unlike_primary_key(
            table, Choice(_known(table, table.merge_keys, "__merge_keys__"), "from __merge_keys__")
        )
    if table.natural_keys:
        chosen = _known(table, table.natural_keys, "natural_key()")
        return _unlike_primary_key(table, Choice(chosen, "from natural_key() or __unique_constraints__"))
    if table.primary_key:
        return Choice(table.primary_key, "from primary_key=True")
    message = f"{write.spelled} into {table.qualified_name} has no keys"
    raise PlanError(message, hint="mark columns with pk(), or pass keys=.", origin=table.origin)


def compare_columns(table: Table, write: Write, keys: tuple[str, ...]) -> Choice:
    """Return the columns whose change counts."""
    others = tuple(column.name for column in table.columns if column.name not in keys)
    if write.mode not in ("merge", "scd2"):
        return Choice((), "this mode compares nothing")
    if write.compare_columns:
        return Choice(_known(table, write.compare_columns, "compare_columns"), "explicit compare_columns=")
    if write.mode == "merge" and write.update_columns:
        return Choice(_known(table, write.update_columns, "update_columns"), "the update_columns=")
    if write.mode == "scd2" and write.event_timestamp_column:
        others = tuple(name for name in others if name != write.event_timestamp_column)
    if not others and write.mode == "scd2":
        message = f"scd2 into {table.qualified_name} has nothing to compare: every column is a key"
        raise PlanError(message, hint="use merge, or declare a column that can change.", origin=table.origin)
    return Choice(others, "auto-derived: every declared column that is not a key")


def update_columns(table: Table, write: Write, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that a merge writes when a row changed."""
    if write.mode != "merge":
        return ()
    if write.update_columns:
        return _known(table, write.update_columns, "update_columns")
    return tuple(column.name for column in table.columns if column.name not in keys)


def order_columns(table: Table, write: Write) -> tuple[str, ...]:
    """Return the columns by which the greatest row of a key counts."""
    names = _known(table, write.order_by or (), "order_by")
    for name in names:
        kind = table.column(name).type.kind
        if kind in _WITHOUT_ORDER:
            message = (
                f"order_by names {name!r} of {table.qualified_name}, and {kind} values are neither greater nor less"
            )
            raise PlanError(message, hint="order by numbers, times or text.", origin=table.origin)
    return names


def check_soft(table: Table, name: str) -> None:
    """Refuse a column for deleted rows that the table lacks, or that can hold neither a time nor a truth value."""
    declared = {column.name: column for column in table.columns}
    if name not in declared:
        message = f"soft_delete_column={name!r} is no column of {table.qualified_name}"
        raise PlanError(message, hint=did_you_mean(name, declared), origin=table.origin)
    kind = declared[name].type.kind
    if kind not in SOFT_KINDS or not declared[name].nullable:
        message = f"soft_delete_column={name!r} of {table.qualified_name} is {kind}"
        raise PlanError(message, hint="it has to be a nullable timestamp or boolean column.", origin=table.origin)


def _known(table: Table, names: tuple[str, ...], option: str) -> tuple[str, ...]:
    declared = [column.name for column in table.columns]
    for name in names:
        if name not in declared:
            message = f"{option} names {name!r}, which {table.qualified_name} does not declare"
            raise PlanError(message, hint=did_you_mean(name, declared), origin=table.origin)
    return names


def _unlike_primary_key(table: Table, choice: Choice) -> Choice:
    if table.primary_key and set(choice.value) != set(table.primary_key):
        chosen, primary = ", ".join(choice.value), ", ".join(table.primary_key)
        text = f"{table.qualified_name} is merged on ({chosen}) {choice.reason}, not on its primary key ({primary})"
        warnings.warn(f"{text}; pass keys= to silence this", UserWarning, stacklevel=2)
    return choice
