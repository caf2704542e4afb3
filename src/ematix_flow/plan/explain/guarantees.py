"""What a stream promises about each message, by source, target and delivery; plans and documents use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.sink import AT_LEAST_ONCE, EXACTLY_ONCE
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.errors import Origin

QUEUES = ("rabbitmq", "pubsub")
"""Sources that forget what was acknowledged; messages are stored on this machine until the targets have them."""

CONFIRMING = ("rabbitmq", "pubsub", "kinesis")
"""Targets that confirm messages and remember no position."""

SOURCES = ("kafka", "kinesis", "postgres_cdc", "mysql_cdc", "files", "lake", *QUEUES)
TARGETS = ("table", "kafka", *CONFIRMING)
"""Kinds that differ in what can be promised; every database, lake and folder of files is a table."""

_AGAIN = "after a crash some messages are sent again, with the same ids"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What is promised, and why."""

    level: str
    reason: str


def guarantee_of(source: str | Sequence[str], target: str, delivery: str = "auto") -> Guarantee:
    """Return what a stream from a kind of source, or from several, into a kind of target promises for every message."""
    if target in CONFIRMING:
        return Guarantee(AT_LEAST_ONCE, f"{target} cannot take messages and a position in one commit; {_AGAIN}")
    if sent_as(target, delivery) == AT_LEAST_ONCE:
        return Guarantee(AT_LEAST_ONCE, f"delivery='at_least_once' sends without a transaction; {_AGAIN}")
    together = "rows and position are one commit of the target"
    if target == "kafka":
        together = "messages and position are one transaction, for readers with isolation.level=read_committed"
    conditions = dict.fromkeys(_of_source(one) for one in _kinds(source))
    return Guarantee(EXACTLY_ONCE, together + "".join(conditions))


def sent_as(target: str, delivery: str) -> str:
    """Return how messages are sent to a kind of target."""
    if target in CONFIRMING or (target == "kafka" and delivery == AT_LEAST_ONCE):
        return AT_LEAST_ONCE
    return EXACTLY_ONCE


def refuse_unguaranteed(source: str | Sequence[str], target: str, delivery: str, origin: Origin | None = None) -> None:
    """Refuse exactly_once where it cannot be promised."""
    guarantee = guarantee_of(source, target, delivery)
    if delivery == EXACTLY_ONCE and guarantee.level != EXACTLY_ONCE:
        supported = ", ".join(kind for kind in TARGETS if guarantee_of(source, kind, delivery).level == EXACTLY_ONCE)
        message = f"delivery='exactly_once' cannot be kept from {' and '.join(_kinds(source))} to {target}: {guarantee.reason}"
        hint = f"exactly once: {supported}; at least once: {', '.join(CONFIRMING)}. Leave delivery= out to have what is possible."
        raise PlanError(message, hint=hint, origin=origin)


def all_guarantees() -> Iterator[tuple[str, str, str, Guarantee]]:
    """Return every source, target and delivery with what is promised."""
    for source in SOURCES:
        for target in TARGETS:
            yield source, target, "auto", guarantee_of(source, target)
        yield source, "kafka", AT_LEAST_ONCE, guarantee_of(source, "kafka", AT_LEAST_ONCE)


def _kinds(source: str | Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of sources, each once."""
    return (source,) if isinstance(source, str) else tuple(dict.fromkeys(source))


def _of_source(source: str) -> str:
    match source:
        case "rabbitmq":
            return "; messages need a message_id, or the queue may deliver one twice"
        case "pubsub":
            return "; redelivered messages are known by their ids"
        case "mysql_cdc":
            return "; what was changed while the first rows were read comes again as changes, which have later places in the log"
        case _:
            return ""
