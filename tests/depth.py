"""How deep a run of the tests goes: everything (`--deep`, as `make test-all` does), or what is tried before every landing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import pytest
from _pytest.mark import ParameterSet

if TYPE_CHECKING:
    from collections.abc import Iterable

DEEP = os.environ.get("FLOW_TEST_DEEP") == "1"
"""Set by tests/conftest.py before modules of tests are imported; processes that tests start have it too."""

_Value = TypeVar("_Value")


def quick_or_deep(quick: _Value, deep: _Value) -> _Value:
    """Return what this run uses: how many kills, starts or examples."""
    return deep if DEEP else quick


STREAM_STATE, STATE_CHANGES, STREAMS_SQL, CHANGE_HISTORIES = quick_or_deep(
    ("streams", "streams", "streams", "streams"),
    ("stream_state", "state_changes", "streams_sql", "change_histories"),
)
"""Groups of tests that are few unless tests go deep: they join the one with whose session and servers they can go on."""


def deep(*values: object) -> ParameterSet:
    """Return a variation of a test that runs with `--deep` only."""
    return pytest.param(*values, marks=pytest.mark.deep)


def deep_but(values: Iterable[object], *quick: object) -> list[ParameterSet]:
    """Return variations of a test over one parameter: some, named by value or id, run always, the others with `--deep` only."""
    given = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in values]
    return [one if one.id in quick or one.values[0] in quick else _only_deep(one) for one in given]


def every_other(values: Iterable[object], begin: int = 0) -> list[ParameterSet]:
    """Return variations of a test over one parameter: every second one runs always, the others with `--deep` only."""
    given = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in values]
    return [one if number % 2 == begin else _only_deep(one) for number, one in enumerate(given)]


def _only_deep(one: ParameterSet) -> ParameterSet:
    return pytest.param(*one.values, id=one.id, marks=[*one.marks, pytest.mark.deep])
