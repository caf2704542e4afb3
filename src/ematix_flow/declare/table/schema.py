"""A target table as a frozen value; it knows no database and no rows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline.normalize import check_chain
from ematix_flow.declare.table.markers import Normalizer
from ematix_flow.declare.table.partitions import partitions_of
from ematix_flow.declare.table.types import UUID, Boolean, TimestampTZ, as_type
from ematix_flow.errors import OWN_PREFIX, DeclareError, DeclareTypeError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from ematix_flow.declare.table.features import Features
    from ematix_flow.declare.table.maintenance import Maintenance
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.errors import Origin

FRAMEWORK_COLUMNS = ("_loaded_at", "_batch_id")
"""Columns that every load adds; a declaration may not use their names."""

ADDED_COLUMNS: dict[str, ColumnType] = {
    "_loaded_at": TimestampTZ(),
    "_batch_id": UUID(),
    "valid_from": TimestampTZ(),
    "valid_to": TimestampTZ(),
    "is_current": Boolean(),
}
"""Columns that loads may add, scd2 the last three, by which a lake table may be divided too."""

MAX_NAME_BYTES = 63
"""The shortest limit among the databases; PostgreSQL would cut longer names in silence."""


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column; a primary-key column is never nullable, whatever `nullable` is."""

    type: ColumnType
    nullable: bool = True
    primary_key: bool = False
    name: str = ""
    normalizers: tuple[Normalizer, ...] = ()
    native: str = ""
    """What the database calls the type of a column that is there already, where no declared type is the same."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", as_type(self.type))
        object.__setattr__(self, "normalizers", tuple(self.normalizers))
        object.__setattr__(self, "nullable", bool(self.nullable) and not self.primary_key)
        for normalizer in self.normalizers:
            _check_normalizer(normalizer)
        check_chain(self.normalizers)

    def to_spec(self) -> dict[str, object]:
        """Return the column as plain data."""
        return {
            "name": self.name,
            "type": self.type.to_spec(),
            "nullable": self.nullable,
            "primary_key": self.primary_key,
        }


@dataclass(frozen=True, slots=True)
class Table:
    """One declared table."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    unique_constraints: tuple[tuple[str, ...], ...] = ()
    merge_keys: tuple[str, ...] | None = None
    natural_keys: tuple[str, ...] | None = None
    """The first natural-key group, or the first unique constraint."""
    partition_columns: tuple[str, ...] = ()
    """How a lake divides the table: columns, or transforms of them such as `days(at)`."""
    maintenance: Maintenance | None = None
    """What `flow maintain` does about the table; the usual where this is None."""
    stamped: bool = True
    """False for a table of another owner, or one without a declaration: loads write its own columns and no more."""
    features: Features | None = None
    """What makes the table a feature view; None for a plain table."""
    origin: Origin | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_name("schema", self.schema, self.origin)
        check_name("table", self.name, self.origin)
        _check_columns(self)
        for names in (*self.unique_constraints, self.merge_keys or (), self.natural_keys or ()):
            for name in names:
                self.column(name)
        self.check_partitions(self.partition_columns)

    @property
    def qualified_name(self) -> str:
        """Return `schema.name`."""
        return f"{self.schema}.{self.name}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the names in declaration order."""
        return tuple(c.name for c in self.columns)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Return the primary-key columns in declaration order; empty when there is none."""
        return tuple(c.name for c in self.columns if c.primary_key)

    @property
    def fingerprint(self) -> str:
        """Return a digest that changes when the shape of the table does."""
        return hashlib.sha256(json.dumps(self.to_spec(), sort_keys=True).encode()).hexdigest()

    def column(self, name: str) -> Column:
        """Return the column of this name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownNameError(
            f"table {self.qualified_name} has no column {name!r}",
            hint=did_you_mean(name, self.column_names),
            origin=self.origin,
        )

    def check_partitions(self, texts: tuple[str, ...]) -> None:
        """Refuse partitions by what no load of this table could have."""
        known = {**ADDED_COLUMNS, **{column.name: column.type for column in self.columns}}
        partitions_of(texts, known, self.qualified_name, self.origin)

    def to_spec(self) -> dict[str, object]:
        """Return the table as plain data."""
        return {
            "schema": self.schema,
            "name": self.name,
            "columns": [c.to_spec() for c in self.columns],
            "unique_constraints": [list(names) for names in self.unique_constraints],
        }


def _check_normalizer(value: object) -> None:
    if not isinstance(value, Normalizer):
        raise DeclareTypeError(f"{value!r} is not a normaliser", hint="use those of ematix_flow.normalize: trim()")


def check_name(what: str, name: object, origin: Origin | None) -> None:
    """Refuse a name that some database would not keep as it is."""
    if not isinstance(name, str) or not name:
        raise DeclareError(f"a {what} needs a name, not {name!r}", origin=origin)
    if "\0" in name:
        raise DeclareError(f"the {what} name {name[:80]!r} contains a NUL character", origin=origin)
    if len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
        raise DeclareError(
            f"the {what} name {name[:80]!r} is longer than {MAX_NAME_BYTES} bytes",
            hint="PostgreSQL would cut it; choose a shorter one",
            origin=origin,
        )
    if what == "column" and name.lower().startswith(OWN_PREFIX):
        message = f"the column name {name!r} begins with {OWN_PREFIX!r}, which loads keep for columns of their own"
        raise DeclareError(message, hint="choose another name", origin=origin)


def _check_columns(table: Table) -> None:
    if not table.columns:
        raise DeclareTypeError(
            f"table {table.qualified_name} declares no column",
            hint="add annotated columns: `id: Annotated[BigInt, pk()]`",
            origin=table.origin,
        )
    for column in table.columns:
        check_name("column", column.name, table.origin)
        if table.stamped and column.name.lower() in FRAMEWORK_COLUMNS:
            raise DeclareError(
                f"table {table.qualified_name} declares {column.name!r}, a column that every load adds",
                hint="choose another name",
                origin=table.origin,
            )
    for lowered, count in Counter(c.name.lower() for c in table.columns).items():
        if count > 1:
            msg = f"table {table.qualified_name} declares column {lowered!r} {count} times"
            hint = "names that differ only in case are the same column to most databases"
            raise DeclareError(msg, hint=hint, origin=table.origin)
