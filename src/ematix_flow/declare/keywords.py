"""Keywords of `@ematix.pipeline` and of targets: every accepted spelling and the one name it stands for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITE = (
    "mode",
    "keys",
    "update_columns",
    "compare_columns",
    "event_timestamp_column",
    "handle_deletes",
    "ttl",
    "incremental_column",
    "lookback",
    "null_watermark",
    "allow_empty",
    "late_horizon",
    "on_bad_row",
    "on_drift",
    "target_connection",
    "column_map",
)

_PIPELINE = (
    *_WRITE,
    "target",
    "targets",
    "schedule",
    "name",
    "source_connection",
    "source_table",
    "force_path",
    "continue_on_failure",
    "transforms_pre",
    "transforms_post",
    "continue_on_failure_post",
    "depends_on",
    "upstream_freshness",
    "retry",
    "timezone",
    "expectations",
    "on_quality_failure",
    "freshness_sla",
    "freshness_column",
    "alert_on_quality_warn",
)

_ALIASES = {
    "continue_on_target_failure": "continue_on_failure",
    "upstream_freshness_secs": "upstream_freshness",
    "connection": "target_connection",
}

_CONVERTED = ("incremental", "watermark_column", "ttl_seconds")


def pipeline_keywords(given: Mapping[str, Any]) -> dict[str, Any]:
    """Give the keywords of a pipeline under their one name."""
    return _keywords(given, _PIPELINE, "a pipeline")


def target_keywords(given: Mapping[str, Any]) -> dict[str, Any]:
    """Give the keywords of one target under their one name."""
    return _keywords(given, _WRITE, "a target")


def _keywords(given: Mapping[str, Any], known: tuple[str, ...], what: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for word, value in given.items():
        name = _ALIASES.get(word, word)
        if name not in known and name not in _CONVERTED:
            message = f"{what} has no keyword {word!r}"
            raise DeclareTypeError(message, hint=did_you_mean(word, (*known, *_ALIASES, *_CONVERTED)))
        if result.get(name) is not None and value is not None:
            message = f"{what} says {name} twice"
            raise DeclareTypeError(message, hint=f"{word!r} is another spelling of {name!r}.")
        result[name] = value
    _incremental(result)
    _durations(result)
    return result


def _incremental(options: dict[str, Any]) -> None:
    asked, column = options.pop("incremental", None), options.pop("watermark_column", None)
    if column is not None and options.get("incremental_column") not in (None, column):
        message = "watermark_column= and incremental_column= name different columns"
        raise DeclareError(message)
    if asked and not (column or options.get("incremental_column")):
        message = "incremental=True needs watermark_column="
        raise DeclareError(message, hint="name the column that grows, for example watermark_column='received_at'.")
    if column is not None and asked is not False:
        options["incremental_column"] = column


def _durations(options: dict[str, Any]) -> None:
    seconds = options.pop("ttl_seconds", None)
    if seconds is not None:
        if options.get("ttl") is not None:
            message = "ttl= and ttl_seconds= are two spellings of one option"
            raise DeclareError(message)
        options["ttl"] = seconds
    for name in ("ttl", "lookback", "late_horizon", "upstream_freshness"):
        if options.get(name) is not None:
            options[name] = duration(name, options[name])


def duration(option: str, value: Any) -> timedelta:
    """Give a duration for a timedelta, a number of seconds or text such as 30m."""
    if isinstance(value, timedelta):
        result = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result = timedelta(seconds=value)
    else:
        units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
        text = str(value).strip()
        if text[-1:] not in units or not text[:-1].isdigit():
            message = f"{option}={value!r} is not a duration"
            raise DeclareError(message, hint="use a timedelta, a number of seconds, or text such as 90s, 30m, 6h, 1d.")
        result = timedelta(seconds=int(text[:-1]) * units[text[-1]])
    if result < timedelta(0):
        message = f"{option} is negative"
        raise DeclareError(message)
    return result
