"""The instants at which a cron expression fires, in its time zone; nothing is known here about what runs then.

A slot is a UTC instant. An expression with a fixed hour and minute fires once for each local date: a time that a change
of the clocks skips comes right after the gap, and one that occurs twice counts the first time. Expressions with a
wildcard in either field go by the instants as they pass.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)
BETWEEN_CHANGES = timedelta(days=7)
"""No zone changes its clocks twice in so short a time."""

FIRST_YEAR, LAST_YEAR = 1000, 9000
"""Schedules are for these years."""

LOOKBACKS = tuple(timedelta(days=days) for days in (1 / 24, 1.2, 8, 40, 400, 3000))
"""How far back the newest slot is searched for, step by step, so that frequent ones are found quickly."""


def slots_after(schedule: str, zone: str | None, after: datetime) -> Iterator[datetime]:
    """Return the slots that come after an instant, oldest first, without an end."""
    after = after.astimezone(UTC)
    if zone is None or zone == "UTC":
        return CronSim(schedule, after)
    minute, hour = schedule.split()[:2]
    local = ZoneInfo(zone)
    return _passing(schedule, local, after) if "*" in (minute[0], hour[0]) else _fixed(schedule, local, after)


def _fixed(schedule: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Return the instants of local times, once for each date."""
    newest = after
    for fired in CronSim(schedule, after.astimezone(zone)):
        instant = fired.astimezone(UTC)
        # Two times in a gap of the clocks fall on the same instant, and one that occurs twice may be over already.
        if instant > newest:
            newest = instant
            yield instant


def _passing(schedule: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Return the instants at which the clocks of a zone show a time: between two changes they run like any other clock."""
    cursor, change = after, None
    while True:
        offset = _offset(zone, change or cursor)
        start = cursor + offset if change is None else change + offset - SECOND
        change = None
        for fired in CronSim(schedule, start.replace(tzinfo=None)):
            instant = fired.replace(tzinfo=UTC) - offset
            change = _change(zone, cursor, instant)
            if change is not None:
                cursor = change
                break
            cursor = instant
            yield instant


def _change(zone: ZoneInfo, after: datetime, upto: datetime) -> datetime | None:
    """Return the first instant after another one at which the clocks of a zone are changed; None when they are not."""
    early, offset = after, _offset(zone, after)
    while early < upto:
        late = min(upto, early + BETWEEN_CHANGES)
        if _offset(zone, late) != offset:
            while late - early > SECOND:
                middle = early + ((late - early) / 2 // SECOND or 1) * SECOND
                early, late = (middle, late) if _offset(zone, middle) == offset else (early, middle)
            return late.replace(microsecond=0)
        early = late
    return None


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def slots_between(schedule: str, zone: str | None, after: datetime, upto: datetime) -> Iterator[datetime]:
    """Return the slots after an instant up to and with another one, oldest first."""
    for instant in slots_after(schedule, zone, after):
        if instant > upto:
            return
        yield instant


def count_slots(schedule: str, zone: str | None, first: datetime, last: datetime) -> int:
    """Return how many slots there are from an instant, included, to another one, not included.

    Whole days on which no clock is changed all have the same number; only the others are gone through.
    """
    minute, hour, *days = schedule.split()
    local = ZoneInfo(zone or "UTC")
    daily = f"0 0 {' '.join(days)}"
    a_day = sum(1 for _ in slots_between(f"{minute} {hour} * * *", None, _MONDAY - SECOND, _MONDAY + DAY - SECOND))
    tomorrow = first.astimezone(local).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0) + DAY
    begin = _midnight(tomorrow, local)
    end = _midnight(last.astimezone(local), local)
    if begin >= end:
        return _counted(schedule, zone, first, last)
    total = _counted(schedule, zone, first, begin) + _counted(schedule, zone, end, last)
    over = begin
    for day in CronSim(daily, tomorrow - SECOND):
        start, after = max(over, _midnight(day, local)), _midnight(day + DAY, local)
        if start >= end:
            break
        # The slot of a date that a zone skips comes right after the gap, where the next date begins.
        over = max(after, start + SECOND)
        total += a_day if over - start == DAY else _counted(schedule, zone, start, over)
    return total


def _counted(schedule: str, zone: str | None, first: datetime, last: datetime) -> int:
    return sum(1 for _ in slots_between(schedule, zone, first - SECOND, last - SECOND))


def _midnight(at: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant at which the date of a timestamp begins in a zone."""
    return at.replace(hour=0, minute=0, second=0, microsecond=0, fold=0, tzinfo=zone).astimezone(UTC)


def next_slot(schedule: str, zone: str | None, after: datetime) -> datetime:
    """Return the first slot after an instant."""
    return around(schedule, zone, after)[1]


def around(schedule: str, zone: str | None, instant: datetime) -> tuple[datetime | None, datetime]:
    """Return the last slot up to and with an instant, if one is known, and the first after it."""
    since, before, after = _KNOWN.get((schedule, zone), (instant, None, instant))
    if not since <= instant < after:
        before = last_slot(schedule, zone, instant)
        after = next(slots_after(schedule, zone, instant))
        _KNOWN[schedule, zone] = (before or instant, before, after)
    return before, after


_KNOWN: dict[tuple[str, str | None], tuple[datetime, datetime | None, datetime]] = {}
"""For each expression the last two slots that were requested, also the result for all instants between them."""


def last_slot(schedule: str, zone: str | None, upto: datetime) -> datetime | None:
    """Return the last slot up to and with an instant, however long ago it was."""
    return latest_slot(schedule, zone, upto - LOOKBACKS[-1], upto)


@lru_cache(maxsize=20_000)
def latest_slot(schedule: str, zone: str | None, after: datetime, upto: datetime) -> datetime | None:
    """Return the last slot after an instant up to and with another one; None when there is none."""
    for lookback in LOOKBACKS:
        start = max(after, upto - lookback)
        slot = None
        for instant in slots_between(schedule, zone, start, upto):
            slot = instant
        if slot is not None or start == after:
            return slot
    return None


def is_due(schedule: str | None, now: datetime, interval_seconds: float, *, tz: str | None = None) -> bool:
    """Return whether a slot lies in the window that ends now, its beginning not included."""
    return matched_fire_time(schedule, now, interval_seconds, tz=tz) is not None


def matched_fire_time(
    schedule: str | None, now: datetime, interval_seconds: float, *, tz: str | None = None
) -> datetime | None:
    """Return the last slot in the window that ends now; None when there is none."""
    if schedule is None:
        return None
    now = aware(now)
    return latest_slot(schedule, tz, now - timedelta(seconds=interval_seconds), now)


def forecast_next_run(
    schedule: str | None, *, now: datetime | None = None, timezone: str | None = None
) -> datetime | None:
    """Return the next slot in UTC; None for what is not scheduled."""
    if schedule is None:
        return None
    return next_slot(schedule, timezone, aware(now or datetime.now(UTC)))


def slot_text(slot: datetime) -> str:
    """Return a slot as it is written down."""
    return f"{slot.astimezone(UTC).isoformat(timespec='seconds')[:19]}Z"


def instant_of(text: str) -> datetime:
    """Return the instant that was written down."""
    return aware(datetime.fromisoformat(text))


def is_in_calendar(at: datetime) -> bool:
    """Return whether slots around an instant can be computed: no calendar has a day before its first or after its last."""
    return FIRST_YEAR <= at.year <= LAST_YEAR


def slot_id(pipeline: str, slot: str, project: str = "") -> str:
    """Return the name of a pipeline's run for a slot: the same for every attempt, every host and every backfill.

    With an explicit project name, two projects can load one table at the same instant.
    """
    return f"{pipeline}@{slot} of {project}" if project else f"{pipeline}@{slot}"


def without_project(slot: str) -> str:
    """Return the name of a slot as people know it within one project."""
    return re.sub(r"(@\S+) of .*?(#bf-\w+)?$", r"\1\2", slot)


def slot_of(name: str, pipeline: str) -> str | None:
    """Return the slot that a load of a pipeline is named after, also in a backfill; None for loads with other names."""
    before, _, text = without_project(name).rpartition("@")
    text = text.partition("#")[0]
    if before != pipeline:
        return None
    try:
        return slot_text(instant_of(text))
    except (ValueError, OverflowError):
        return None


def aware(at: datetime) -> datetime:
    """Return an instant; one without a zone counts as UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
