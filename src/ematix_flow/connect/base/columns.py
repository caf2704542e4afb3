"""Tables and columns as a system describes them: plain values that planner and systems share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.errors import PlanError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source query: its name, its family and what the system calls its type."""

    name: str
    family: str
    """One of the families of `plan.sql.shape.query.SourceType`."""
    native: str = ""


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """A column of a table as the database describes it, with its type written as the DDL of a declaration."""

    name: str
    type: str
    nullable: bool
    base: str = ""
    """The type that a domain is made of; empty for any other column."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table as the database describes it."""

    columns: tuple[ColumnSchema, ...]
    primary_key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    problem: str = ""
    """Why loads into this table must be refused, for example a storage engine without transactions."""
    partitions: tuple[str, ...] = ()
    takes_files: bool = False
    """Whether staged files can become part of the table as they are."""


@dataclass(frozen=True, slots=True)
class TableName:
    """Where a table lives inside its database, after the system's naming rules."""

    schema: str
    """Empty where the system has no schemas."""
    name: str
    catalog: str = ""
    """Empty where the system has no catalogs."""


def chosen_columns(columns: Sequence[SourceColumn], selected: Sequence[str]) -> tuple[SourceColumn, ...]:
    """Return the selected columns in the order of their selection."""
    known = {column.name: column for column in columns}
    for name in selected:
        if name not in known:
            message = f"the source has no column {name!r}"
            raise PlanError(message, hint=did_you_mean(name, known))
    return tuple(known[name] for name in selected)
