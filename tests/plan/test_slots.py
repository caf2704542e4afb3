"""When crons fire: every change of the clocks of eleven years in six zones against a plain model, and the window of run-due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.plan.schedule import cron as slots
from ematix_flow.plan.schedule.cron import (
    count_slots,
    forecast_next_run,
    is_due,
    latest_slot,
    matched_fire_time,
    next_slot,
    slot_id,
    slot_of,
    slot_text,
    slots_between,
    without_project,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Santiago",
    "Asia/Kolkata",
)
FIXED = ((0, 0), (0, 30), (1, 30), (2, 0), (2, 15), (2, 30), (3, 0), (23, 59))
PASSING = {
    "0 * * * *": lambda local: local.minute == 0,
    "*/15 * * * *": lambda local: local.minute % 15 == 0,
    "30 */2 * * *": lambda local: local.minute == 30 and local.hour % 2 == 0,
    "*/20 2 * * *": lambda local: local.minute % 20 == 0 and local.hour == 2,
}
MINUTE = timedelta(minutes=1)


def _changes(zone: ZoneInfo) -> list[date]:
    """Return the dates from 2024 to 2035 on which the clocks of a zone are changed."""
    results, day = [], datetime(2024, 1, 1, tzinfo=UTC)
    while day.year < 2036:
        after = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
            results.append(day.astimezone(zone).date())
        day = after
    return results


def _first_instant(day: date, hour: int, minute: int, zone: ZoneInfo) -> datetime:
    """Return the instant of a local time: the first of two, or the end of the gap that swallows it."""
    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    instant = local.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return instant
    before = datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC) - timedelta(hours=2)
    while before.astimezone(zone).replace(tzinfo=None) < local.replace(tzinfo=None):
        before += MINUTE
    return before


def _whole_days(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    start = datetime(day.year, day.month, day.day, 12, tzinfo=zone).astimezone(UTC) - timedelta(days=2)
    return start, start + timedelta(days=4)


@pytest.mark.parametrize("name", ZONES)
def test_a_fixed_time_fires_once_for_each_local_date(name: str) -> None:
    zone = ZoneInfo(name)
    for day in _changes(zone):
        start, end = _whole_days(day, zone)
        for hour, minute in FIXED:
            days = [day + timedelta(days=number) for number in range(-3, 4)]
            expected = [_first_instant(one, hour, minute, zone) for one in days]
            results = list(slots_between(f"{minute} {hour} * * *", name, start, end))
            assert results == [instant for instant in expected if start < instant <= end], (name, day, hour, minute)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZONES)
def test_wildcards_follow_the_instants_as_they_pass(name: str) -> None:
    zone = ZoneInfo(name)
    for day in _changes(zone)[::3]:
        start, end = _whole_days(day, zone)
        minutes = [start + MINUTE * number for number in range(1, 4 * 24 * 60 + 1)]
        for schedule, holds in PASSING.items():
            expected = [instant for instant in minutes if holds(instant.astimezone(zone))]
            assert list(slots_between(schedule, name, start, end)) == expected, (name, day, schedule)


@pytest.mark.slow
@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 1,2 * * 0", "0 12 29 2 *"]),
    st.sampled_from([None, *ZONES]),
    st.integers(0, 10 * 366 * 86400).map(lambda seconds: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)),
    st.timedeltas(timedelta(0), timedelta(days=3)),
)
def test_the_latest_and_the_next_slot_agree_with_the_list(
    schedule: str, zone: str | None, start: datetime, span: timedelta
) -> None:
    listed = list(slots_between(schedule, zone, start, start + span))
    assert latest_slot(schedule, zone, start, start + span) == (listed[-1] if listed else None)
    if listed:
        assert next_slot(schedule, zone, start) == listed[0]


def test_a_sparse_schedule_is_found_years_back() -> None:
    now = datetime(2027, 6, 1, tzinfo=UTC)
    assert latest_slot("0 12 29 2 *", None, datetime(2020, 1, 1, tzinfo=UTC), now) == datetime(
        2024, 2, 29, 12, tzinfo=UTC
    )


def test_the_window_has_its_end_but_not_its_beginning() -> None:
    slot = datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert is_due("0 * * * *", slot, 60)
    assert not is_due("0 * * * *", slot + timedelta(seconds=60), 60)
    assert is_due("0 * * * *", slot + timedelta(seconds=59), 60)
    assert not is_due(None, slot, 60)
    assert matched_fire_time("*/5 * * * *", slot + timedelta(minutes=7), 3600) == slot + timedelta(minutes=5)


def test_a_cron_is_read_in_its_zone_and_told_in_utc() -> None:
    now = datetime(2026, 7, 1, tzinfo=UTC)
    runs = forecast_next_run("0 9 * * *", now=now, timezone="Europe/Berlin")
    assert runs == datetime(2026, 7, 1, 7, tzinfo=UTC)
    assert slot_text(runs) == "2026-07-01T07:00:00Z"
    assert forecast_next_run(None, now=now, timezone=None) is None


def test_an_answer_that_was_kept_is_not_given_for_an_earlier_instant() -> None:
    late, early = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    assert next_slot("0 6 * * *", "UTC", late) == late + timedelta(hours=6)
    assert next_slot("0 6 * * *", "UTC", early) == early + timedelta(hours=6)


@pytest.mark.parametrize("again", ["", "#bf-0123abcd"])
def test_a_slot_is_named_with_the_project_in_its_target_only(again: str) -> None:
    slot = slot_text(datetime(2026, 3, 2, 12, tzinfo=UTC))
    plain = f"{slot_id('load', slot)}{again}"
    assert plain == f"load@2026-03-02T12:00:00Z{again}"
    named = f"{slot_id('load', slot, 'a shop of ours')}{again}"
    assert named == f"load@2026-03-02T12:00:00Z of a shop of ours{again}"
    assert without_project(named) == without_project(plain) == plain
    assert without_project("two of them") == "two of them"


@pytest.mark.slow
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu"])
@pytest.mark.parametrize(
    "schedule", ["* * * * *", "*/7 1-5 * * *", "30 2 * * *", "15 * 1,15 * *", "0 0 * * 1", "5 4 29 2 *", "0 */5 * 3 0"]
)
@pytest.mark.parametrize(
    ("first", "last"),
    [
        (datetime(2018, 10, 20, 3, 30, tzinfo=UTC), datetime(2018, 11, 8, 4, 1, tzinfo=UTC)),
        (datetime(2026, 3, 27, 23, 59, tzinfo=UTC), datetime(2026, 4, 6, 0, 0, tzinfo=UTC)),
        (datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 24, 5, tzinfo=UTC)),
        (datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)),
        (datetime(2024, 2, 1, tzinfo=UTC), datetime(2024, 3, 12, 1, 2, 3, tzinfo=UTC)),
    ],
)
def test_slots_are_counted_as_they_are_listed(schedule: str, zone: str | None, first: datetime, last: datetime) -> None:
    second = timedelta(seconds=1)
    listed = [slot for slot in slots_between(schedule, zone, first - second, last) if first <= slot < last]
    assert count_slots(schedule, zone, first, last) == len(listed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule", ["0 * * * *", "30 12 * * *", "0 0 * * *", "15 3 30 * *", "0 0 31 * *", "15 */3 * * 5"]
)
@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Pacific/Apia", datetime(2011, 12, 28, tzinfo=UTC)),
        ("Pacific/Kwajalein", datetime(1993, 8, 19, tzinfo=UTC)),
        ("America/Sao_Paulo", datetime(2018, 11, 2, tzinfo=UTC)),
    ],
    ids=str,
)
def test_slots_are_counted_where_a_date_or_a_midnight_is_skipped(zone: str, begin: datetime, schedule: str) -> None:
    second = timedelta(seconds=1)
    for hours in range(0, 72, 7):
        for more in (5, 30, 60, 100):
            first = begin + timedelta(hours=hours)
            last = first + timedelta(hours=more)
            listed = [slot for slot in slots_between(schedule, zone, first - second, last) if first <= slot < last]
            assert count_slots(schedule, zone, first, last) == len(listed)


@pytest.mark.slow
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_six_years_of_minutes_are_counted_without_going_through_them(
    zone: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = 0
    real = slots.CronSim

    def counting(*given: object) -> Iterator[datetime]:
        nonlocal drawn
        for one in real(*given):  # type: ignore[arg-type]
            drawn += 1
            yield one

    monkeypatch.setattr(slots, "CronSim", counting)
    years = datetime(2020, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    total = count_slots("* * * * *", zone, *years)
    assert total == 2192 * 1440
    assert drawn < total / 100


@pytest.mark.parametrize("text", ["2026-03-02T05:00:00Z", "2026-03-02T05:00:00+00:00", "2026-03-02T06:00:00+01:00"])
def test_a_slot_has_one_name_however_its_instant_is_written(text: str) -> None:
    assert slot_of(f"load@{text}", "load") == "2026-03-02T05:00:00Z"
    assert slot_of("load@0001-01-01T00:00:00+23:00", "load") is None
