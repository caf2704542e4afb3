"""What a run, a preview and validating warn of before a stream with state takes up anything; refuses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.declare.stream.windows import DLQ
from ematix_flow.plan.stream.state_size import size_warning

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream


def state_warnings(stream: Stream) -> tuple[str, ...]:
    """Return what a declaration of a stream with state may not mean to say."""
    return tuple(text for text in (size_warning(stream), _late_warning(stream)) if text)


def _late_warning(stream: Stream) -> str:
    """Return the warning about late rows that are kept and can never be counted."""
    if stream.deduplicate is None or stream.window is None or stream.window.late_data != DLQ:
        return ""
    return (
        f'stream {stream.name!r} keeps late rows (late_data="dlq"), and behind deduplicate= flow dlq replay cannot count them;'
        ' late_data="reopen" with allowed_lateness_ms= counts those that come within that time'
    )
