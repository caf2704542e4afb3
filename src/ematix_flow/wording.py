"""Counts as text for people; it knows nothing of what is counted."""

from __future__ import annotations


def quantity(number: int, one: str, many: str = "") -> str:
    """Return a number with its unit: `1 row`, `2 rows`, `1,200 rows`; `many` where the plural has no plain s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
