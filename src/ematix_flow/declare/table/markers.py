"""Markers inside `Annotated[...]` that make a column a key or nullable; they do nothing by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from ematix_flow.errors import DeclareTypeError


@dataclass(frozen=True, slots=True)
class Marker:
    """Base of everything this package puts into `Annotated[...]`; its classes may be called in annotations."""


@dataclass(frozen=True, slots=True)
class Normalizer(Marker):
    """Base of the markers that change a column's value on its way in."""


@dataclass(frozen=True, slots=True, init=False)
class PrimaryKey(Marker):
    """The column belongs to the primary key; the options are kept for the reader."""

    options: tuple[tuple[str, object], ...]

    def __init__(self, **options: object) -> None:
        object.__setattr__(self, "options", tuple(sorted(options.items())))


@dataclass(frozen=True, slots=True)
class NaturalKey(Marker):
    """The column belongs to the UNIQUE constraint of its group."""

    group: str = ""

    def __post_init__(self) -> None:
        group: object = self.group
        if not isinstance(group, str):
            raise DeclareTypeError(f"natural_key() takes the name of a group, not {group!r}")


@dataclass(frozen=True, slots=True)
class Nullable(Marker):
    """The column may be NULL."""


pk = PrimaryKey
natural_key = NaturalKey
nullable = Nullable
