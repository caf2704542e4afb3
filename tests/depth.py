"""How deep a run of the tests goes: everything (`--deep`, as `make test-all` does), or what is tried before every landing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

DEEP = os.environ.get("FLOW_TEST_DEEP") == "1"
"""Set by tests/conftest.py before modules of tests are imported; processes that tests start have it too."""

_Value = TypeVar("_Value")


def quick_or_deep(quick: _Value, deep: _Value) -> _Value:
    """Return what this run uses: how many kills, starts or examples."""
    return deep if DEEP else quick


STREAM_STATE, STATE_CHANGES, STREAMS_SQL = quick_or_deep(
    ("streams", "streams", "streams"), ("stream_state", "state_changes", "streams_sql")
)
"""Groups of tests that are few unless tests go deep: they join the one with whose session and servers they can go on."""


def deep(*values: object) -> ParameterSet:
    """Return a variation of a test that runs with `--deep` only."""
    return pytest.param(*values, marks=pytest.mark.deep)
