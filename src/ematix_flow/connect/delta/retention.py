"""How long a Delta table keeps files that it does not need any more: its own property, and what maintenance promises.

Delta goes by the property alone: `VACUUM` removes by it whatever `RETAIN` names, and a version that was created before
is not read any more. So what maintenance promises has to be set there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.delta import log as delta_log
from ematix_flow.connect.delta.copy import snapshot
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ematix_flow.connect.storage.base import Store
    from ematix_flow.declare.table.maintenance import Maintenance

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
DEFAULTS = {FILES: timedelta(days=7), LOG: timedelta(days=30)}
"""What Delta does where a table sets nothing."""

SET, BEFORE = "ematix_flow.retention", "ematix_flow.retention_before"
"""What maintenance wrote into the property, and what the table's owner had there before: maintenance never goes below that."""

SPARE, LARGEST = 1.2, 1.5
"""How much more is written than is needed, and how much more is left as it is, so that not every maintenance alters the table."""

_UNITS = ("week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_INTERVAL_TERM = re.compile(rf"\s*'?([+-]?\d+(?:\.\d+)?)'?\s+({'|'.join(_UNITS)})s?(?=\s|$)", re.IGNORECASE)


def duration_of(text: str) -> timedelta | None:
    """Return the duration of an interval of Delta, such as `interval 1 week 2 days`; None where it is none."""
    terms = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE).rstrip()
    total, index = timedelta(0), 0
    while index < len(terms):
        term = _INTERVAL_TERM.match(terms, index)
        if term is None:
            return None
        total += timedelta(**{f"{term[2].lower()}s": float(term[1])})
        index = term.end()
    return total if index else None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long files have to be retained, and what has to be written into the table for that."""

    hours: int
    changes: Mapping[str, str]
    """Properties that the table needs before anything is removed; none where it has the right ones already."""


def retention(store: Store, folder: str, rules: Maintenance, now: datetime) -> Retention:
    """Return the larger one of the table's own retention and the promised one."""
    table_snapshot = snapshot(store, folder)
    configuration = {} if table_snapshot is None else table_snapshot.configuration
    ours = configuration.get(FILES) is not None and configuration.get(FILES) == configuration.get(SET)
    own = configuration.get(BEFORE) or None if ours else configuration.get(FILES)
    current = _duration_property(configuration, FILES)
    least = promised(store, folder, rules, now)
    if own is not None and _duration_property({FILES: own}, FILES) >= least:
        changes = {FILES: own} if own != configuration.get(FILES) else {}
        return Retention(
            _hours(_duration_property({FILES: own}, FILES)),
            {**changes, **_log(configuration, _duration_property({FILES: own}, FILES))},
        )
    if (ours or own is None) and least <= current <= least * LARGEST:
        return Retention(_hours(current), _log(configuration, current))
    duration = timedelta(days=math.ceil(least * SPARE / timedelta(days=1)))
    text = _interval(duration)
    return Retention(_hours(duration), {FILES: text, SET: text, BEFORE: own or "", **_log(configuration, duration)})


def promised(store: Store, folder: str, rules: Maintenance, now: datetime) -> timedelta:
    """Return how long ago the oldest version was made that can still be read until the next maintenance."""
    if not rules.keep and rules.keep_versions == 1:
        return timedelta(0)
    commit_times = delta_log.commit_times(store, folder, now)
    # A version is retained so long after a newer one came: the one that was the newest at the border is still needed.
    border = next(
        (at for at in commit_times.values() if at <= now - rules.keep), min(commit_times.values(), default=now)
    )
    changes = (
        (at, actions) for at, actions in _read_one_by_one(store, commit_times) if delta_log.changes_files(actions)
    )
    newest = [time for at, actions in islice(changes, rules.keep_versions) for time in (at, *_times(actions, now))]
    oldest = min(border, *newest, now)
    return max(rules.keep, now - oldest + rules.every)


def _read_one_by_one(
    store: Store, commit_times: Mapping[str, datetime]
) -> Iterator[tuple[datetime, Sequence[Mapping[str, Any]]]]:
    """Return commits with their actions.

    A stream writes thousands of them in a day, so only those that are requested are read.
    """
    for key, at in commit_times.items():
        yield at, delta_log.actions_of(store.read(key) or b"")


def _log(configuration: Mapping[str, str], files: timedelta) -> dict[str, str]:
    """Return the property about the log that a version needs to be read as long as its files are there."""
    return {LOG: _interval(files)} if _duration_property(configuration, LOG) < files else {}


def _duration_property(configuration: Mapping[str, str], name: str) -> timedelta:
    duration = DEFAULTS[name] if name not in configuration else duration_of(configuration[name])
    if duration is None:
        message = f"the table's property {name} is {configuration[name]!r}, which is no duration"
        raise RunError(message, hint="write it as an interval, such as 'interval 30 days'.")
    return duration


def _times(actions: Sequence[Mapping[str, Any]], now: datetime) -> list[datetime]:
    """Return when a commit was made and when it took files out of the table, as it says itself."""
    stamps = [action["commitInfo"].get("timestamp") for action in actions if "commitInfo" in action]
    stamps += [action["remove"].get("deletionTimestamp") for action in actions if "remove" in action]
    return [now.fromtimestamp(stamp / 1000, now.tzinfo) for stamp in stamps if stamp is not None]


def _hours(duration: timedelta) -> int:
    return math.ceil(duration / timedelta(hours=1))


def _interval(duration: timedelta) -> str:
    return f"interval {_hours(duration)} hours"
