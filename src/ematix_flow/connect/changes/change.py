"""A change of one row as every envelope tells it; plain values that readers and the decoder share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

CREATE, READ, UPDATE, DELETE, TRUNCATE, SKIP = "c", "r", "u", "d", "t", "s"
"""What a change does; a snapshot reads rows, and a message that changes no row is skipped."""

OPERATIONS = {"create": CREATE, "read": READ, "update": UPDATE, "delete": DELETE, "truncate": TRUNCATE}
"""The words of declarations."""


CHANGE_COLUMNS = ("_flow_change", "_flow_version", "_flow_change_at", "_flow_change_ms", "_flow_carries")
"""The columns that a change has besides those of its table."""

KEY = "_key"
"""Column of a message's own key, which has the key of a row where a log does not keep deleted rows."""


def declared_operation(code: Any, op_map: Mapping[str, str] | None) -> str | None:
    """Return what an event does by its token, a truth value as JSON writes it; None where the declaration has no such token."""
    token = str(code).lower() if isinstance(code, bool) else str(code)
    return OPERATIONS.get((op_map or {}).get(token) or (op_map or {}).get(str(code), ""))


class ChangeError(ValueError):
    """A change cannot be applied; the message is for people."""


@dataclass(frozen=True, slots=True)
class Semantic:
    """What a field of a schema means: the name of its logical type, of a decimal its scale and of bits their number."""

    name: str = ""
    scale: int | None = None
    """None where the schema tells none that a decimal can have."""
    length: int = 0
    """0 where the schema does not tell it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row."""

    operation: str
    values: dict[str, Any] = field(default_factory=dict)
    """The columns that the event carries."""
    order: str = ""
    """Its place in the log of the database, as digits that sort; empty where the event has none."""
    unique: bool = False
    """Whether no other change of the same row has this place, so that an equal one is the same change again."""
    at_ms: int | Decimal | None = None
    """When it was, in milliseconds since 1970; microseconds are parts of one."""
    semantics: dict[str, Semantic] = field(default_factory=dict)
    moved: bool = False
    """Whether its row had another key before, whose end is the change before it."""
    lost: tuple[str, ...] = ()
    """Columns of a new row whose values only its earlier key had."""
    whole: bool = False
    """Whether its row has every column that its table had."""
    of_snapshot: bool = False
    """Whether it says that a table is read again, and not what was done in it."""
