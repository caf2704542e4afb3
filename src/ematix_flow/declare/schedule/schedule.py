"""Schedules and retries as declared, checked before anything runs."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ematix_flow.declare.pipeline.pipeline import Retry
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

CRON_FIELDS = 5
BACKOFFS = ("fixed", "linear", "exponential")
CATCHUPS = ("last", "all", "none")

LONGEST_PAUSE = timedelta(days=3650)
"""Between two attempts, and for all of them."""

RETRY_KEYS = {
    "max_attempts": "max_attempts",
    "retries": "retries",
    "backoff": "backoff",
    "backoff_factor": "factor",
    "base_secs": "base",
    "backoff_seconds": "base",
    "retry_backoff_ms": "base_ms",
    "max_backoff_secs": "max_backoff",
    "retry_max_total_ms": "max_total_ms",
    "retry_on": "retry_on",
    "jitter": "jitter",
}
"""Accepted keys of `retry=` and the field each one fills."""


def check_schedule(schedule: str | None, timezone: str | None) -> str | None:
    """Return the cron text if it can fire, else raise."""
    if timezone is not None:
        check_timezone(timezone)
    if schedule is None:
        return None
    if not isinstance(schedule, str) or len(schedule.split()) != CRON_FIELDS:
        message = f"schedule={schedule!r} is not a cron expression"
        raise DeclareError(message, hint="write five fields: minute hour day month weekday, for example 0 * * * *.")
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(schedule, datetime.now(UTC)))
    except (CronSimError, StopIteration):
        message = f"schedule={schedule!r} never fires or cannot be read"
        raise DeclareError(message, hint="check the ranges: minute 0-59, hour 0-23, day 1-31, month 1-12.") from None
    return schedule


def timing_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a pipeline that state when it runs, and what happens when it fails."""
    names = ("catchup", "timeout", "idempotent", "pool", "priority", "realert_after", "alert_every_attempt")
    known = {name: options[name] for name in names if options.get(name) is not None}
    catchup, priority, pool = known.get("catchup", "last"), known.get("priority", 0), known.get("pool", "x")
    if catchup not in CATCHUPS:
        message = f"catchup={catchup!r} is not known"
        raise DeclareError(message, hint=did_you_mean(str(catchup), CATCHUPS))
    if not isinstance(priority, int) or isinstance(priority, bool):
        message = f"priority={priority!r} must be a whole number"
        raise DeclareError(message, hint="the greatest runs first; 0 is the default.")
    if not isinstance(pool, str) or not pool:
        message = f"pool={pool!r} must be the name of a pool"
        raise DeclareError(message, hint="sizes stand in the project file: [pools] warehouse = 2.")
    if known.get("timeout") == timedelta(0):
        raise DeclareError(
            "timeout=0 lets no run end", hint="say how long an attempt may take: 90, '30m', timedelta(hours=1)."
        )
    for name in ("idempotent", "alert_every_attempt"):
        if not isinstance(known.get(name, True), bool):
            message = f"{name}={known[name]!r} must be True or False"
            raise DeclareError(message)
    return {
        "schedule": check_schedule(options.get("schedule"), options.get("timezone")),
        "timezone": options.get("timezone"),
        "depends_on": upstream_names(options.get("depends_on")),
        "upstream_freshness": options.get("upstream_freshness"),
        "retry": retry_from(options.get("retry")),
        **known,
    }


def upstream_names(value: Any) -> tuple[str, ...]:
    """Return the names of the pipelines that `depends_on=` means: names, or the declared pipelines themselves."""
    if value is None:
        return ()
    entries = (value,) if isinstance(value, str) or hasattr(value, "name") else value
    if not isinstance(entries, list | tuple | set | frozenset):
        message = f"depends_on= takes names, not {type(value).__name__}"
        raise DeclareTypeError(message, hint='write the name of a pipeline or a list, for example depends_on=["raw"].')
    return tuple(str(getattr(entry, "name", entry)) for entry in entries)


def check_timezone(name: str) -> None:
    """Refuse a time zone that does not exist."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        message = f"timezone={name!r} is not an IANA time zone"
        raise DeclareError(message, hint="for example UTC or Europe/Berlin.") from None


def retry_from(value: Any) -> Retry | None:
    """Return the retry policy for what the user wrote; unknown keys are refused."""
    if value is None or isinstance(value, Retry):
        return value
    if not isinstance(value, dict):
        message = f"retry= is a dict, not {type(value).__name__}"
        raise DeclareError(message)
    fields: dict[str, Any] = {}
    for key, setting in value.items():
        if key not in RETRY_KEYS:
            message = f"retry has no key {key!r}"
            raise DeclareError(message, hint=did_you_mean(str(key), RETRY_KEYS))
        fields[RETRY_KEYS[key]] = setting
    if "backoff_factor" in value or "backoff_seconds" in value:
        fields.setdefault("backoff", "exponential")
    return _checked(fields)


def _checked(fields: dict[str, Any]) -> Retry:
    attempts = fields.get("max_attempts", 1)
    if "retries" in fields:
        attempts = _check_number("retries", fields["retries"]) + 1
    seconds = {
        "base": _seconds("base", fields.get("base"), 1) or _seconds("retry_backoff_ms", fields.get("base_ms"), 1000),
        "max_backoff": _seconds("max_backoff_secs", fields.get("max_backoff"), 1),
        "max_total": _seconds("retry_max_total_ms", fields.get("max_total_ms"), 1000),
    }
    retry = Retry(
        max_attempts=attempts,
        backoff=fields.get("backoff", "fixed"),
        factor=_check_number("backoff_factor", fields.get("factor", 2.0)),
        retry_on=_reasons(fields.get("retry_on", ())),
        jitter=_fraction(fields.get("jitter", 0.0)),
        **{name: setting for name, setting in seconds.items() if setting is not None},
    )
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        message = f"retry max_attempts={attempts!r} must be a whole number of at least 1"
        raise DeclareError(message)
    if retry.backoff not in BACKOFFS:
        message = f"retry backoff={retry.backoff!r} is not known"
        raise DeclareError(message, hint=did_you_mean(str(retry.backoff), BACKOFFS))
    return retry


def _check_number(key: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        message = f"retry {key}={value!r} must be a number from 0"
        raise DeclareError(message)
    return value


def _fraction(value: Any) -> float:
    if value is True:
        return 0.5
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        message = f"retry jitter={value!r} must be a number from 0 to 1"
        raise DeclareError(message, hint="0.2 makes pauses up to a fifth shorter, True up to a half.")
    return float(value)


def _seconds(key: str, value: Any, per_second: int) -> timedelta | None:
    if value is None:
        return None
    if _check_number(key, value) > LONGEST_PAUSE.total_seconds() * per_second:
        raise DeclareError(f"retry {key}={value!r} is longer than ten years")
    return timedelta(seconds=value / per_second)


def _reasons(value: Any) -> tuple[str, ...]:
    """Return names of exception classes, or the words `transient` and `any`."""
    entries = (value,) if isinstance(value, str | type) else tuple(value)
    for entry in entries:
        if not isinstance(entry, str) and not (isinstance(entry, type) and issubclass(entry, BaseException)):
            message = f"retry_on={entry!r} is neither an exception nor its name"
            raise DeclareError(message)
    return tuple(entry if isinstance(entry, str) else entry.__name__ for entry in entries)
