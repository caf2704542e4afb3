"""What makes a table a feature view: its version, the time of its events, and how long and how fresh values are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.keywords import duration
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.errors import Origin

MAX_VERSION_LENGTH = 64
LONGEST_ONLINE_NAME = "idx__{}__current_keys"
"""The longest name that is made of the name of an online view."""

MAX_NAME_BYTES = 63


@dataclass(frozen=True, slots=True)
class Features:
    """What the declaration of a feature view states besides its columns."""

    name: str
    """`schema.table.version`, under which the view is registered."""
    version: str
    event_timestamp_column: str | None = None
    """Column with the instant from which the values of a row hold; the time of the load where it is None."""
    ttl: timedelta | None = None
    """How long values hold without a newer event."""
    freshness_sla: timedelta | None = None
    """How old the last load may be."""
    online: bool = False
    """True when the current values can be looked up by key."""
    description: str | None = None
    owner: str | None = None


def check_version(value: Any, origin: Origin | None) -> str:
    """Return the version as text, or refuse one that cannot be part of a name."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or "." in text or not text.isprintable() or len(text) > MAX_VERSION_LENGTH:
        message = f"feature_version={value!r} cannot be a version"
        hint = f'use a short word such as "v1": at most {MAX_VERSION_LENGTH} characters and no dot.'
        raise DeclareError(message, hint=hint, origin=origin)
    return text


def check_keys(table: str, keys: Sequence[str], origin: Origin | None) -> None:
    """Refuse a view whose rows belong to nothing."""
    if not keys:
        message = f"feature view {table} has no entity key"
        hint = "mark what its values belong to: `user_id: Annotated[BigInt, pk()]`."
        raise DeclareTypeError(message, hint=hint, origin=origin)


def check_event_column(table: str, name: str | None, types: dict[str, str], origin: Origin | None) -> None:
    """Refuse an event column that the view does not have, or that holds no instants."""
    if name is None:
        return
    if name not in types:
        message = f"event_timestamp_column={name!r} is not a column of feature view {table}"
        raise DeclareError(message, hint=did_you_mean(name, types), origin=origin)
    if types[name] not in ("timestamp_tz", "timestamp"):
        message = f"event_timestamp_column={name!r} of feature view {table} is {types[name]}, which holds no instants"
        raise DeclareError(message, hint="declare it as TimestampTZ.", origin=origin)


def check_online_name(table: str, name: str, origin: Origin | None) -> None:
    """Refuse a name from which the names of the online store would become too long."""
    longest = LONGEST_ONLINE_NAME.format(name)
    if len(longest.encode()) > MAX_NAME_BYTES:
        message = f"the online store of feature view {table} would need the name {longest!r}, which is too long"
        raise DeclareError(message, hint="give the view a shorter name=.", origin=origin)


def positive(option: str, value: Any, origin: Origin | None) -> timedelta | None:
    """Return a duration that is longer than zero, or None where none was given."""
    if value is None:
        return None
    try:
        result = duration(option, value)
    except DeclareError as error:
        raise error.at(origin) from None
    if result <= timedelta(0):
        message = f"{option} must be longer than zero"
        raise DeclareError(message, origin=origin)
    return result
