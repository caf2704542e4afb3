"""Knows whether a COMMIT is under way, so that a polite stop can wait for its answer; it stops nothing itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ematix_flow.connect.base.cancellation import current

if TYPE_CHECKING:
    from collections.abc import Iterator

_under_way = 0


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Run a block that a signal must not cut short."""
    global _under_way  # noqa: PLW0603 - a signal handler can look nowhere else
    _under_way += 1
    try:
        with current().held():
            yield
    finally:
        _under_way -= 1


def is_committing() -> bool:
    """Return whether a target is committing right now."""
    return _under_way > 0
