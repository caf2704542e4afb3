"""How deep a run of the tests goes: everything (`--deep`, as `make test-all` does), or what half an hour allows."""

from __future__ import annotations

import os
from typing import TypeVar

VARIABLE = "FLOW_TEST_DEEP"
"""Carries the option to modules of tests, which are imported after it is known, and to processes that they start."""

DEEP = os.environ.get(VARIABLE) == "1"

_Value = TypeVar("_Value")


def quick_or_deep(quick: _Value, deep: _Value) -> _Value:
    """Return what this run uses: how many kills, starts or examples."""
    return deep if DEEP else quick
