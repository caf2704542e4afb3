"""Schedules, time zones and retries are checked when they are declared."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ematix_flow.declare.pipeline.pipeline import Retry
from ematix_flow.declare.schedule.schedule import check_schedule, retry_from
from ematix_flow.errors import FlowError


@pytest.mark.parametrize("cron", ["*/5 * * * *", "0 2 * * *", "0 0 1 1 *", "15,45 8-18 * * MON-FRI", "0 0 29 2 *"])
def test_a_cron_that_can_fire_is_given_back(cron: str) -> None:
    assert check_schedule(cron, None) == cron


def test_no_schedule_is_a_schedule_too() -> None:
    assert check_schedule(None, "Europe/Berlin") is None


@pytest.mark.parametrize("cron", ["", "hourly", "* * * *", "60 * * * *", "0 24 * * *", "0 0 30 2 *", "a b c d e", 5])
def test_a_cron_that_cannot_fire_is_a_value_error(cron: Any) -> None:
    with pytest.raises(ValueError, match="schedule=") as caught:
        check_schedule(cron, None)
    assert isinstance(caught.value, FlowError)
    assert caught.value.hint


@pytest.mark.parametrize("zone", ["Europe/Berln", "", "../etc/passwd", "Mars/Olympus"])
def test_an_unknown_time_zone_is_a_value_error(zone: str) -> None:
    with pytest.raises(ValueError, match="is not an IANA time zone"):
        check_schedule("0 * * * *", zone)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (
            {"max_attempts": 5, "backoff_seconds": 30, "backoff_factor": 2.0},
            Retry(5, "exponential", timedelta(seconds=30), 2.0),
        ),
        (
            {"max_attempts": 3, "backoff": "linear", "base_secs": 10, "max_backoff_secs": 60},
            Retry(3, "linear", timedelta(seconds=10), max_backoff=timedelta(minutes=1)),
        ),
        (
            {"retries": 2, "retry_backoff_ms": 1500, "retry_max_total_ms": 60_000, "retry_on": ["transient"]},
            Retry(3, base=timedelta(seconds=1.5), max_total=timedelta(minutes=1), retry_on=("transient",)),
        ),
        ({"max_attempts": 2, "backoff": "fixed", "backoff_seconds": 1}, Retry(2, "fixed", timedelta(seconds=1))),
        ({"max_attempts": 2, "retry_on": ConnectionError}, Retry(2, retry_on=("ConnectionError",))),
        ({}, Retry()),
        (None, None),
        (Retry(4), Retry(4)),
    ],
)
def test_every_spelling_of_a_retry_is_read(written: Any, meant: Retry | None) -> None:
    assert retry_from(written) == meant


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"max_attemps": 5}, "did you mean 'max_attempts'?"),
        ({"max_attempts": 0}, "at least 1"),
        ({"max_attempts": 2.5}, "at least 1"),
        ({"max_attempts": True}, "at least 1"),
        ({"retries": "two"}, "retry retries='two' must be a number"),
        ({"max_attempts": 2, "backoff": "exponental"}, "did you mean 'exponential'?"),
        ({"max_attempts": 2, "backoff_seconds": -1}, "must be a number from 0"),
        ({"max_attempts": 2, "base_secs": "30"}, "must be a number from 0"),
        ({"max_attempts": 2, "base_secs": float("nan")}, "base=nan must be a number from 0"),
        ({"max_attempts": 2, "base_secs": float("inf")}, "must be a number from 0"),
        ({"max_attempts": 2, "base_secs": 1e13}, "longer than ten years"),
        ({"max_attempts": 2, "retry_backoff_ms": 10**400}, "longer than ten years"),
        ({"max_attempts": 2, "backoff_factor": float("nan")}, "must be a number from 0"),
        ({"retries": float("inf")}, "must be a number from 0"),
        ({"max_attempts": 2, "retry_on": [7]}, "neither an exception nor its name"),
        (5, "retry= is a dict, not int"),
    ],
)
def test_a_retry_that_cannot_be_is_a_value_error(written: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are parameters
        retry_from(written)
    assert isinstance(caught.value, FlowError)
    assert message in str(caught.value)
