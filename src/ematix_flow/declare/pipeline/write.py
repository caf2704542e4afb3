"""How rows are written: the mode and its options, checked as far as the declaration alone allows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.values import column_names, one_of
from ematix_flow.errors import DeclareError, DeclareTypeError, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from ematix_flow.declare.stream.cdc import CDC

MIRROR = "mirror"
"""The word for a merge that deletes what the source does not have."""

MODES = {
    "append": "append",
    "truncate": "truncate",
    "merge": "merge",
    "scd1": "merge",
    "scd2": "scd2",
    MIRROR: "merge",
}
"""Accepted mode words and the mode they mean."""

MODES_OF = {
    "keys": ("merge", "scd2", "cdc"),
    "update_columns": ("merge",),
    "compare_columns": ("merge", "scd2"),
    "event_timestamp_column": ("scd2",),
    "order_by": ("merge", "scd2"),
    "handle_deletes": ("merge", "scd2"),
    "ttl": ("scd2",),
    "incremental_column": ("append", "merge"),
    "incremental": ("append", "merge", "scd2"),
    "on_replaced": ("append", "merge", "scd2"),
    "lookback": ("merge",),
    "null_watermark": ("append", "merge"),
}
"""Options that only some modes take, with these modes; the others go with every mode."""

_COLUMNS = ("keys", "update_columns", "compare_columns", "order_by")

FILES = "files"
"""The word for loads of files that were not loaded yet."""

ERROR, LOAD, IGNORE = "error", "load", "ignore"
"""What happens to a file that was loaded and has changed since."""

CHANGES = "cdc"
"""The mode of a stream whose messages are changes of rows; no word of a declaration means it, `cdc=` does."""

DROP = "drop"
"""What only streams do with bad rows: they are counted and forgotten."""

AS_IT_IS = "as it is"
"""The drift policy of what only looks at a table: every difference is accepted. No word of a declaration means it."""

DEFAULT_LATE_HORIZON = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Replaced:
    """Which rows a row replaces besides that of its key: those of its group that begin between its own beginning and end."""

    group_by: tuple[str, ...]
    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class Write:
    """A mode with its options."""

    mode: str
    spelled: str = ""
    """The word the user wrote, `scd1` for example."""
    keys: tuple[str, ...] | None = None
    update_columns: tuple[str, ...] | None = None
    compare_columns: tuple[str, ...] | None = None
    event_timestamp_column: str | None = None
    order_by: tuple[str, ...] | None = None
    """Columns by which the greatest row of a key counts; only streams have it."""
    handle_deletes: str | None = None
    ttl: timedelta | None = None
    incremental_column: str | None = None
    incremental: str | None = None
    """`files`: only files that were not loaded yet are read."""
    on_replaced: str = ERROR
    lookback: timedelta | None = None
    null_watermark: str = "fail"
    allow_empty: bool = False
    late_horizon: timedelta = DEFAULT_LATE_HORIZON
    on_bad_row: str = "fail"
    on_drift: str = "error"
    cdc: CDC | None = None
    """How change events are applied; only streams have it."""
    versions_of: str = ""
    """The name under which the last change of every key is remembered: that of the stream, also for a range of it."""
    is_snapshot: bool = False
    """Whether a load of changes has all rows that its table had at one position of the log, and no change is older."""
    keeps_known_rejects: bool = False
    """Whether rejects that were known before the rows are stored whatever becomes of bad rows; only late rows have it."""
    replaced: Replaced | None = None
    """Rows that a merge removes because others take their place; only sessions that are computed again have it."""


def write(mode: object, **options: Any) -> Write:
    """Return the checked value for a mode and its options; None means "not given"."""
    if mode is None:
        message = "a pipeline needs a mode"
        raise DeclareTypeError(message, hint=f"mode= is one of {', '.join(MODES)}.")
    if not isinstance(mode, str):
        message = f"mode= takes one word, not {type(mode).__name__}"
        raise DeclareTypeError(message, hint=f"one of {', '.join(MODES)}; each ematix.target(...) may have its own.")
    if mode not in MODES:
        message = f"unknown mode {mode!r}"
        raise UnsupportedError(message, hint=did_you_mean(mode, MODES))
    specified = {name: value for name, value in options.items() if value is not None}
    for name in _COLUMNS:
        if name in specified:
            specified[name] = column_names(name, specified[name])
    if mode == MIRROR:
        specified = {"handle_deletes": "hard", **specified}
    result = Write(mode=MODES[mode], spelled=mode, **specified)
    _check(result)
    return result


def _check(value: Write) -> None:
    one_of("handle_deletes", value.handle_deletes, (None, "hard", "soft"))
    one_of("null_watermark", value.null_watermark, ("fail", "load", "reject"))
    one_of("on_bad_row", value.on_bad_row, ("fail", "reject"))
    one_of("on_drift", value.on_drift, ("error", "warn", "evolve"))
    one_of("on_replaced", value.on_replaced, (ERROR, LOAD, IGNORE))
    _check_files(value)
    _check_deletes(value)
    for name in (*_COLUMNS, "event_timestamp_column", "ttl", "incremental_column"):
        if getattr(value, name) and value.mode not in MODES_OF[name]:
            _wrong_mode(value, name, " or ".join(MODES_OF[name]))
    _check_order(value)
    if value.null_watermark != "fail":
        _check_nulls(value)
    if value.lookback is not None:
        _check_lookback(value)
    if value.ttl is not None and value.ttl <= timedelta(0):
        message = "ttl must be longer than zero"
        raise DeclareError(message)


def _check_files(value: Write) -> None:
    if value.incremental is None:
        if value.on_replaced != ERROR:
            message = "on_replaced= belongs to a load of new files"
            raise DeclareError(message, hint='give incremental="files" as well.')
        return
    one_of("incremental", value.incremental, (FILES,))
    if value.mode not in MODES_OF["incremental"]:
        message = f'incremental="files" reads new files only, and mode={value.spelled!r} would forget all others'
        raise DeclareError(message, hint=f"use {', '.join(MODES_OF['incremental'])}, or drop incremental=.")
    if value.handle_deletes is not None:
        message = 'handle_deletes needs the whole source, and incremental="files" reads new files only'
        raise DeclareError(message, hint="drop incremental= or handle_deletes=.")
    if value.incremental_column is not None:
        message = 'a load goes by new files (incremental="files") or by a growing column, not by both'
        raise DeclareError(message, hint="drop incremental= or the watermark's column.")


def _check_deletes(value: Write) -> None:
    if value.handle_deletes is None:
        return
    if value.mode in ("append", "truncate"):
        _wrong_mode(value, "handle_deletes", "merge (hard) or scd2 (soft)")
    if value.incremental_column:
        message = "handle_deletes needs the whole source, and an incremental load reads only a part of it"
        raise DeclareError(message, hint="drop incremental_column= or handle_deletes=.")
    if value.mode == "scd2" and value.handle_deletes == "hard":
        message = "scd2 keeps history, so it cannot delete rows"
        raise DeclareError(message, hint='use handle_deletes="soft": absent keys are closed.')
    if value.mode == "merge" and value.handle_deletes == "soft":
        message = "merge has no versions to close"
        raise UnsupportedError(message, hint='use handle_deletes="hard", or mode="scd2" with "soft".')


def _check_order(value: Write) -> None:
    """Refuse an order whose columns would not be stored as they are compared."""
    for option, names in (("update_columns", value.update_columns), ("compare_columns", value.compare_columns)):
        left_out = [name for name in value.order_by or () if names is not None and name not in names]
        if left_out:
            message = f"order_by= names {left_out[0]!r}, which {option}= leaves out"
            hint = f"add it to {option}=: the next row of a key is compared with what the table has there."
            raise DeclareError(message, hint=hint)


def _check_nulls(value: Write) -> None:
    if not value.incremental_column:
        message = "null_watermark= belongs to an incremental load"
        raise DeclareError(message, hint="give incremental_column= as well.")
    if value.null_watermark == "load" and value.mode != "merge":
        message = "null_watermark='load' reads these rows in every run, so an append would double them"
        raise DeclareError(message, hint="use mode=\"merge\", or null_watermark='reject'.")


def _check_lookback(value: Write) -> None:
    if not value.incremental_column:
        message = "lookback= belongs to an incremental load"
        raise DeclareError(message, hint="give incremental_column= as well.")
    if value.mode != "merge":
        message = "lookback= reads rows again, so an append would double them"
        raise DeclareError(message, hint='use mode="merge", which takes a row that it has already as unchanged.')
    if value.lookback is not None and value.lookback <= timedelta(0):
        message = "lookback must be longer than zero"
        raise DeclareError(message)


def _wrong_mode(value: Write, option: str, modes: str) -> None:
    message = f"{option}= does not go with mode={value.spelled!r}"
    raise DeclareError(message, hint=f"{option}= is an option of {modes}.")
