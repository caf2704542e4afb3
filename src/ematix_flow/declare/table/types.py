"""Column types as values; how a database spells them is decided in connect."""

from __future__ import annotations

import types as pytypes
import typing
from dataclasses import dataclass, fields
from typing import ClassVar

from ematix_flow.errors import DeclareError, DeclareTypeError


@dataclass(frozen=True, slots=True)
class ColumnType:
    """Base of all column types; `X` and `X()` mean the same in an annotation."""

    kind: ClassVar[str] = ""
    """The name of the type in specs and plans."""

    def to_spec(self) -> dict[str, object]:
        """Return the type as plain data."""
        return {"kind": self.kind, **{f.name: getattr(self, f.name) for f in fields(self)}}

    def __or__(self, other: object) -> OrNone:
        if other is None or other is type(None):
            return OrNone(self)
        return NotImplemented

    __ror__ = __or__

    def __str__(self) -> str:
        arguments = ", ".join(str(getattr(self, f.name)) for f in fields(self))
        return f"{type(self).__name__}[{arguments}]" if arguments else type(self).__name__


@dataclass(frozen=True, slots=True)
class OrNone:
    """The result of `String[256] | None`: a type instance that may be NULL."""

    type: ColumnType


@dataclass(frozen=True, slots=True)
class SmallInt(ColumnType):
    """16-bit integer."""

    kind: ClassVar[str] = "small_int"


@dataclass(frozen=True, slots=True)
class Integer(ColumnType):
    """32-bit integer."""

    kind: ClassVar[str] = "integer"


@dataclass(frozen=True, slots=True)
class BigInt(ColumnType):
    """64-bit integer."""

    kind: ClassVar[str] = "big_int"


@dataclass(frozen=True, slots=True)
class Float(ColumnType):
    """32-bit floating point number."""

    kind: ClassVar[str] = "float"


@dataclass(frozen=True, slots=True)
class Double(ColumnType):
    """64-bit floating point number."""

    kind: ClassVar[str] = "double"


@dataclass(frozen=True, slots=True)
class Boolean(ColumnType):
    """True or false."""

    kind: ClassVar[str] = "boolean"


@dataclass(frozen=True, slots=True)
class Text(ColumnType):
    """Text of any length."""

    kind: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True)
class Date(ColumnType):
    """Calendar day."""

    kind: ClassVar[str] = "date"


@dataclass(frozen=True, slots=True)
class Timestamp(ColumnType):
    """Date and time of day without a zone."""

    kind: ClassVar[str] = "timestamp"


@dataclass(frozen=True, slots=True)
class TimestampTZ(ColumnType):
    """Instant."""

    kind: ClassVar[str] = "timestamp_tz"


@dataclass(frozen=True, slots=True)
class JSON(ColumnType):
    """JSON document as text."""

    kind: ClassVar[str] = "json"


@dataclass(frozen=True, slots=True)
class JSONB(ColumnType):
    """JSON document in binary form where the database has one."""

    kind: ClassVar[str] = "jsonb"


@dataclass(frozen=True, slots=True)
class UUID(ColumnType):
    """Universally unique identifier."""

    kind: ClassVar[str] = "uuid"


@dataclass(frozen=True, slots=True)
class Bytes(ColumnType):
    """Binary value."""

    kind: ClassVar[str] = "bytes"


@dataclass(frozen=True, slots=True)
class String(ColumnType):
    """Text of at most `length` characters."""

    kind: ClassVar[str] = "string"
    length: int

    def __post_init__(self) -> None:
        _require_int("String length", self.length)
        if self.length <= 0:
            raise DeclareError(f"String needs a length above 0, not {self.length}", hint="write String[256]")

    def __class_getitem__(cls, length: int) -> String:
        """Return the type for `String[length]`."""
        return cls(length)


@dataclass(frozen=True, slots=True)
class Numeric(ColumnType):
    """Exact decimal number with `precision` digits, `scale` of them after the point."""

    kind: ClassVar[str] = "numeric"
    precision: int
    scale: int

    def __post_init__(self) -> None:
        _require_int("Numeric precision", self.precision)
        _require_int("Numeric scale", self.scale)
        if self.precision <= 0 or not 0 <= self.scale <= self.precision:
            raise DeclareError(
                f"Numeric needs precision > 0 and 0 <= scale <= precision, not ({self.precision}, {self.scale})",
                hint="write Numeric[10, 2]",
            )

    def __class_getitem__(cls, arguments: object) -> Numeric:
        """Return the type for `Numeric[precision, scale]`."""
        if not isinstance(arguments, tuple) or len(arguments) != 2:  # noqa: PLR2004 - precision and scale
            raise DeclareTypeError(f"Numeric needs precision and scale, not {arguments!r}", hint="write Numeric[10, 2]")
        return cls(*arguments)


def _require_int(what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DeclareTypeError(f"{what} must be a whole number, not {value!r}")


ALL_TYPES: tuple[type[ColumnType], ...] = (
    SmallInt, Integer, BigInt, Float, Double, Boolean, Text, Date, Timestamp, TimestampTZ,
    JSON, JSONB, UUID, Bytes, String, Numeric,
)  # fmt: skip


def as_type(value: object) -> ColumnType:
    """Return the type instance for a class or an instance; anything else is refused."""
    if isinstance(value, ColumnType):
        return value
    if isinstance(value, type) and issubclass(value, ColumnType) and value is not ColumnType:
        if fields(value):
            example = {"String": "String[256]", "Numeric": "Numeric[10, 2]"}[value.__name__]
            raise DeclareTypeError(f"{value.__name__} needs arguments", hint=f"write {example}")
        return value()
    raise DeclareTypeError(
        f"{value!r} is not a column type", hint="use a type of ematix_flow.types, such as BigInt, Text or String[256]"
    )


def read_annotation(annotation: object) -> tuple[ColumnType, bool, tuple[object, ...]]:
    """Return the type, whether it may be NULL, and the markers, outermost last."""
    if isinstance(annotation, OrNone):
        return annotation.type, True, ()
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *markers = typing.get_args(annotation)
        column_type, nullable, inside = read_annotation(inner)
        return column_type, nullable, (*inside, *markers)
    if origin in {typing.Union, pytypes.UnionType}:
        members = [a for a in typing.get_args(annotation) if a is not type(None)]
        if len(members) != 1:
            raise DeclareTypeError(
                f"a column has one type, not {annotation!r}", hint="only `X | None` joins a type with something else"
            )
        column_type, _, inside = read_annotation(members[0])
        return column_type, True, inside
    return as_type(annotation), False, ()


def type_from_annotation(annotation: object) -> tuple[ColumnType, bool]:
    """Return the type and whether it may be NULL."""
    column_type, nullable, _ = read_annotation(annotation)
    return column_type, nullable
