"""How a lake table is divided: texts such as `city` or `days(at)` as values, checked by name and type; no system is known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.errors import DeclareError, DeclareTypeError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.errors import Origin

_TIMESTAMP_KINDS = ("timestamp", "timestamp_tz")
_NUMBERS = ("small_int", "integer", "big_int", "numeric")
TEXTS = ("text", "string", "json", "jsonb", "uuid")
"""Types that a lake keeps as text."""


TRANSFORMS = {
    "years": ("date", *_TIMESTAMP_KINDS),
    "months": ("date", *_TIMESTAMP_KINDS),
    "days": ("date", *_TIMESTAMP_KINDS),
    "hours": _TIMESTAMP_KINDS,
    "bucket": ("date", *_TIMESTAMP_KINDS, *_NUMBERS, *TEXTS, "bytes"),
    "truncate": (*_NUMBERS, *TEXTS),
}
"""What a partition may make of a column, with the types of columns that it can be made of."""

COUNTED = ("bucket", "truncate")
"""Transforms that need a number: how many buckets, how many characters or how wide a step."""

_LABELS = {"years": "year", "months": "month", "days": "day", "hours": "hour", "bucket": "bucket", "truncate": "trunc"}
"""What is put behind a column's name when a table of its partitions is shown."""

_PLAIN = ("date", *_TIMESTAMP_KINDS, *_NUMBERS, *TEXTS, "boolean")
"""Types whose values may be partitions as they are; fractions and bytes have no one spelling as the name of a folder."""

_EXAMPLE = "a column, or one of years(at), months(at), days(at), hours(at), bucket(16, id), truncate(4, city)."


@dataclass(frozen=True, slots=True)
class Partition:
    """One part of how a table is divided: a column, or what a transform makes of it."""

    column: str
    transform: str = ""
    number: int | None = None

    def __str__(self) -> str:
        if not self.transform:
            return self.column
        return f"{self.transform}({self.column if self.number is None else f'{self.number}, {self.column}'})"


def partition_texts(option: str, value: object) -> tuple[str, ...]:
    """Return what was written as a tuple of texts."""
    texts = (value,) if isinstance(value, str) else value
    if isinstance(texts, tuple | list) and texts and all(isinstance(text, str) and text for text in texts):
        return tuple(texts)
    message = f"{option}= takes columns and transforms as texts, not {value!r}"
    raise DeclareTypeError(message, hint=f"write a list of them; each is {_EXAMPLE}")


def partitions_of(
    texts: Sequence[str], columns: Mapping[str, ColumnType], table: str, origin: Origin | None = None
) -> tuple[Partition, ...]:
    """Return the partitions that these texts mean for a table of these columns."""
    partitions: list[Partition] = []
    for text in texts:
        partition = _partition(text, columns, table, origin)
        duplicate = next((other for other in partitions if _family(other) == _family(partition)), None)
        if duplicate is not None:
            message = f"table {table} is partitioned by {duplicate} and by {partition}, which divide by the same thing"
            raise DeclareError(message, hint="leave one of them out.", origin=origin)
        partitions.append(partition)
    return tuple(partitions)


def _partition(text: str, columns: Mapping[str, ColumnType], table: str, origin: Origin | None) -> Partition:
    # A column may be called whatever a transform looks like.
    partition = Partition(text) if text in columns else _transformed(text, columns, table, origin)
    kind = columns[partition.column].kind
    allowed = TRANSFORMS[partition.transform] if partition.transform else _PLAIN
    if kind not in allowed:
        label = str(columns[partition.column])
        message = f"table {table} cannot be partitioned by {partition}: column {partition.column!r} is {label}"
        fitting = [name for name, kinds in TRANSFORMS.items() if kind in kinds]
        hint = f"a column of type {label} can be divided by {', '.join(fitting) or 'nothing'}."
        raise DeclareError(message, hint=hint, origin=origin)
    label = f"{partition.column}_{_LABELS.get(partition.transform, '')}"
    if partition.transform and label in columns:
        message = f"table {table} cannot be partitioned by {partition}: a lake shows it as {label!r}, which is a column"
        raise DeclareError(message, hint="rename the column, or partition by it.", origin=origin)
    return partition


def _transformed(text: str, columns: Mapping[str, ColumnType], table: str, origin: Origin | None) -> Partition:
    call = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text, re.DOTALL)
    if call is None:
        raise _unknown_column(text, columns, table, origin)
    transform, inside = call[1], call[2].strip()
    if transform not in TRANSFORMS:
        message = f"table {table} is partitioned by {text!r}, and there is no transform {transform!r}"
        raise UnknownNameError(message, hint=did_you_mean(transform, TRANSFORMS), origin=origin)
    number = None
    if transform in COUNTED:
        number, inside = _transform_argument(text, transform, inside, table, origin)
    if inside not in columns:
        raise _unknown_column(inside, columns, table, origin)
    return Partition(inside, transform, number)


def _transform_argument(text: str, transform: str, inside: str, table: str, origin: Origin | None) -> tuple[int, str]:
    match = re.fullmatch(r"(\d{1,9})\s*,\s*(.*)", inside, re.DOTALL)
    if match is None or int(match[1]) == 0:
        message = f"table {table} is partitioned by {text!r}, which has no number above zero before its column"
        example = "bucket(16, id)" if transform == "bucket" else "truncate(4, city)"
        raise DeclareError(message, hint=f"write it as {example}.", origin=origin)
    return int(match[1]), match[2]


def _unknown_column(
    name: str, columns: Mapping[str, ColumnType], table: str, origin: Origin | None
) -> UnknownNameError:
    message = f"table {table} cannot be partitioned by {name!r}: it has no such column"
    return UnknownNameError(message, hint=f"{did_you_mean(name, columns)} A partition is {_EXAMPLE}", origin=origin)


def _family(partition: Partition) -> tuple[str, str]:
    """Return what two partitions must not have in common: a coarser unit of time adds nothing to a finer one."""
    units = ("years", "months", "days", "hours")
    return partition.column, "moment" if partition.transform in units else partition.transform
