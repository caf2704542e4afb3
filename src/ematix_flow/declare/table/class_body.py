"""Turns a class body into a Table; the class itself never holds rows."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.table.annotations import annotations_of
from ematix_flow.declare.table.maintenance import maintenance_of
from ematix_flow.declare.table.markers import (
    Marker,
    NaturalKey,
    Normalizer,
    Nullable,
    PrimaryKey,
    natural_key,
    nullable,
    pk,
)
from ematix_flow.declare.table.partitions import partition_texts
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import read_annotation
from ematix_flow.errors import DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.table.maintenance import Maintenance
    from ematix_flow.errors import Origin

__all__ = ["Column", "ManagedTable", "Table", "natural_key", "nullable", "pk", "table", "table_of"]

ENGINE = "ematix_flow.engine"

_RIVALS = {
    "__dataclass_fields__": "@dataclass",
    "__attrs_attrs__": "attrs",
    "__pydantic_fields__": "pydantic",
    "__pydantic_core_schema__": "pydantic",
}


_Declared = TypeVar("_Declared", bound="ManagedTable")


class ManagedTable:
    """Base of table classes; a subclass with columns becomes a Table, found with `table_of`."""

    __abstract__: ClassVar[bool] = True
    __schema__: ClassVar[str]
    __tablename__: ClassVar[str]
    __merge_keys__: ClassVar[tuple[str, ...] | None] = None
    __unique_constraints__: ClassVar[tuple[tuple[str, ...], ...]] = ()
    __partition_columns__: ClassVar[tuple[str, ...]] = ()
    __maintenance__: ClassVar[Maintenance | None] = None
    __columns__: ClassVar[tuple[Column, ...]] = ()
    __table__: ClassVar[Table]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__dict__.get("__abstract__", False):
            _install(cls, build_table(cls, caller_origin()))

    @classmethod
    def ensure(cls, conn: Any, on_drift: str = "error") -> dict[str, Any]:
        """Create the table where it is missing; return the action (created, matched, drift) and the differences."""
        # Looked up at the call, so that declaring never loads what running needs.
        result: dict[str, Any] = importlib.import_module(ENGINE).ensure_table(table_of(cls), conn, on_drift)
        return result

    @classmethod
    def _to_spec(cls) -> dict[str, object]:
        return table_of(cls).to_spec()


def table(
    *, schema: str, name: str | None = None, maintenance: Maintenance | None = None
) -> Callable[[type], type[ManagedTable]]:
    """Return the decorator that turns a plain class into a ManagedTable of this schema."""

    def declare(cls: type) -> type[ManagedTable]:
        return declared_class(cls, ManagedTable, schema, name, maintenance)

    return declare


def declared_class(
    cls: type,
    base: type[_Declared],
    schema: str,
    name: str | None,
    maintenance: Maintenance | None = None,
    finish: Callable[[Table], Table] = lambda built: built,
) -> type[_Declared]:
    """Return the class as one that declares a table; `finish` completes the table before the class has it."""
    namespace: dict[str, object] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__abstract__": True,
        "__schema__": schema,
        "__tablename__": name if name is not None else snake_case(cls.__name__),
    }
    if maintenance is not None:
        namespace["__maintenance__"] = maintenance
    bases = (cls,) if issubclass(cls, base) else (cls, base)
    decorated = type(cls.__name__, bases, namespace)
    _install(decorated, finish(build_table(decorated, caller_origin())))
    return decorated


def table_of(declared: object) -> Table:
    """Return the Table of a table class, or the Table itself."""
    if isinstance(declared, Table):
        return declared
    declared_table = declared.__dict__.get("__table__") if isinstance(declared, type) else None
    if isinstance(declared_table, Table):
        return declared_table
    raise DeclareTypeError(
        f"{declared!r} is not a table",
        hint="decorate the class with @ematix.table(schema=...) or derive it from ManagedTable",
    )


def build_table(cls: type, origin: Origin | None) -> Table:
    """Return the Table that the class body and its bases declare."""
    _refuse_rivals(cls, origin)
    for dunder in ("__schema__", "__tablename__"):
        if getattr(cls, dunder, None) is None:
            raise DeclareTypeError(
                f"{cls.__name__} does not say its {dunder}",
                hint="set it in the class body, or use @ematix.table(schema=...)",
                origin=origin,
            )
    columns, groups = _columns_of(cls, origin)
    declared = tuple(_names(c) for c in getattr(cls, "__unique_constraints__", ()))
    labelled = tuple(tuple(groups[label]) for label in sorted(groups))
    unique = declared or labelled
    merge_keys = getattr(cls, "__merge_keys__", None)
    return Table(
        schema=cls.__schema__,  # type: ignore[attr-defined]
        name=cls.__tablename__,  # type: ignore[attr-defined]
        columns=tuple(columns),
        unique_constraints=unique,
        merge_keys=None if merge_keys is None else _names(merge_keys),
        natural_keys=(labelled or unique or (None,))[0],
        partition_columns=_partitions(getattr(cls, "__partition_columns__", ())),
        maintenance=maintenance_of(getattr(cls, "__maintenance__", None)),
        origin=origin,
    )


def snake_case(name: str) -> str:
    """Return `http_server_log` for `HTTPServerLog`."""
    split = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", split).lower()


def _install(cls: type, built: Table) -> None:
    cls.__table__ = built  # type: ignore[attr-defined]
    cls.__columns__ = built.columns  # type: ignore[attr-defined]
    cls.__unique_constraints__ = built.unique_constraints  # type: ignore[attr-defined]
    cls.__abstract__ = False  # type: ignore[attr-defined]


def _columns_of(cls: type, origin: Origin | None) -> tuple[list[Column], dict[str, list[str]]]:
    """Return the columns, those of base classes first, and the natural-key groups."""
    columns: dict[str, Column] = {}
    groups: dict[str, list[str]] = {}
    for owner in reversed(cls.__mro__):
        if owner in {object, ManagedTable}:
            continue
        try:
            own = annotations_of(owner)
            for attribute in {**own, **_column_attributes(owner)}:
                column, labels = _column(owner, attribute, own)
                columns[attribute] = column
                for label in labels:
                    groups.setdefault(label, []).append(column.name)
        except DeclareTypeError as error:
            raise error.at(origin) from error.__cause__
    return list(columns.values()), groups


def _column_attributes(owner: type) -> dict[str, Column]:
    return {name: value for name, value in vars(owner).items() if isinstance(value, Column)}


def _column(owner: type, attribute: str, annotations: dict[str, object]) -> tuple[Column, list[str]]:
    value = vars(owner).get(attribute)
    if isinstance(value, Column):
        return replace(value, name=value.name or attribute), []
    if attribute in vars(owner):
        raise DeclareTypeError(
            f"column {attribute!r} of {owner.__name__} has the value {value!r}",
            hint="a value for missing input is a marker: Annotated[..., default(...)]",
        )
    try:
        column_type, or_none, markers = read_annotation(annotations[attribute])
    except DeclareTypeError as error:
        msg = f"column {attribute!r} of {owner.__name__}: {error.what}"
        raise DeclareTypeError(msg, hint=error.hint) from error
    _refuse_uncalled(attribute, markers)
    column = Column(
        type=column_type,
        nullable=or_none or any(isinstance(m, Nullable) for m in markers),
        primary_key=any(isinstance(m, PrimaryKey) for m in markers),
        name=attribute,
        normalizers=tuple(m for m in markers if isinstance(m, Normalizer)),
    )
    return column, [m.group for m in markers if isinstance(m, NaturalKey)]


def _refuse_uncalled(attribute: str, markers: tuple[object, ...]) -> None:
    for marker in markers:
        if isinstance(marker, type) and issubclass(marker, Marker):
            raise DeclareTypeError(
                f"column {attribute!r} names the marker {marker.__name__} without calling it",
                hint="markers are always called: pk(), trim()",
            )


def _refuse_rivals(cls: type, origin: Origin | None) -> None:
    for attribute, rival in _RIVALS.items():
        if hasattr(cls, attribute):
            raise DeclareTypeError(
                f"{cls.__name__} is also a {rival} class",
                hint=f"a table class holds no rows: remove {rival}",
                origin=origin,
            )


def _partitions(value: object) -> tuple[str, ...]:
    return partition_texts("__partition_columns__", value) if value else ()


def _names(value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, tuple | list) and all(isinstance(n, str) for n in names):
        return tuple(names)
    raise DeclareTypeError(f"{value!r} is not a list of column names")
