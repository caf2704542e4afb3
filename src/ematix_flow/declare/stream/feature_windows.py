"""Whether the windows of a stream can be the values of a feature view; it knows neither messages nor tables of databases.

A window is known at its end, so that its values hold from there: any earlier instant would give a model what nobody knew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.declare.stream.windows import REOPEN, SESSION
from ematix_flow.errors import DeclareError, did_you_mean

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.declare.stream.windows import Window
    from ematix_flow.declare.table.schema import Table


def check_feature_windows(stream: Stream) -> None:
    """Refuse windows that a feature view among the targets could not hold, or from which it would learn the future."""
    for target in stream.targets:
        view = target.declared_table
        if stream.window is not None and view is not None and view.features is not None:
            _check_time(stream.window, target, view)
            _check_keys(stream.window, view)
            _check_columns(stream.window, view)


def window_columns(window: Window) -> tuple[str, ...]:
    """Return the columns that say which window a row is; a feature view takes those that it declares."""
    times = (window.window_start_column, window.window_end_column)
    return (*times, window.session_id_column) if window.kind == SESSION else times


def _check_time(window: Window, target: StreamTarget, view: Table) -> None:
    event, end = target.write.event_timestamp_column, window.window_end_column
    if event != end:
        what = "has no event_timestamp_column" if event is None else f"takes {event!r} for the time of its values"
        message = f"feature view {view.qualified_name} {what}, and a window is known at its end, {end!r}"
        hint = f'declare the view with event_timestamp_column="{end}"; window_end_column= of the window renames it.'
        raise DeclareError(message, hint=hint, origin=view.origin)
    if window.late_data == REOPEN:
        message = (
            f'late_data="reopen" gives a window out again at the same end, and feature view {view.qualified_name} '
            "stores one value of a key and instant: what was served could not be told from what was known later"
        )
        hint = 'use "drop" or "dlq", and a longer lateness_ms= of the watermark.'
        raise DeclareError(message, hint=hint, origin=view.origin)


def _check_keys(window: Window, view: Table) -> None:
    if set(window.group_by) != set(view.primary_key):
        groups, keys = ", ".join(window.group_by) or "nothing", ", ".join(view.primary_key)
        message = (
            f"the window is grouped by {groups}, and the entity keys of feature view {view.qualified_name} are {keys}"
        )
        raise DeclareError(message, hint=f"group by the keys: group_by=({keys},).", origin=view.origin)


def _check_columns(window: Window, view: Table) -> None:
    given = (*window_columns(window), *window.group_by, *(one.as_ for one in window.aggregations))
    for name in view.column_names:
        if name not in given:
            message = f"feature view {view.qualified_name} has a column {name!r}, which the window does not give"
            raise DeclareError(message, hint=did_you_mean(name, given), origin=view.origin)
    for one in window.aggregations:
        if one.as_ not in view.column_names:
            message = f"the window gives {one.as_!r}, which feature view {view.qualified_name} does not have"
            raise DeclareError(message, hint=did_you_mean(one.as_, view.column_names), origin=view.origin)
