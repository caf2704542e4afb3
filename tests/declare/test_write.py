"""Modes and their options: what goes together, and how the rest is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ematix_flow.declare.pipeline.write import MODES, write
from ematix_flow.errors import FlowError


@pytest.mark.parametrize(("spelling", "mode"), list(MODES.items()))
def test_every_mode_word_means_one_mode_and_is_remembered(spelling: str, mode: str) -> None:
    value = write(spelling)
    assert (value.mode, value.spelled) == (mode, spelling)


def test_scd1_is_another_word_for_merge() -> None:
    assert write("scd1").mode == "merge"


def test_a_missing_mode_is_a_type_error_that_lists_the_modes() -> None:
    with pytest.raises(TypeError, match="needs a mode") as caught:
        write(None)
    assert "append, truncate, merge, scd1, scd2, mirror" in str(caught.value)


def test_an_unknown_mode_is_not_implemented_and_names_the_nearest() -> None:
    with pytest.raises(NotImplementedError, match="unknown mode 'mrege'") as caught:
        write("mrege")
    assert "did you mean 'merge'?" in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("merge", {"handle_deletes": "harsh"}, "did you mean 'hard'?"),
        ("append", {"handle_deletes": "hard"}, "does not go with mode='append'"),
        ("truncate", {"handle_deletes": "soft"}, "does not go with mode='truncate'"),
        ("merge", {"handle_deletes": "hard", "incremental_column": "at"}, "needs the whole source"),
        ("scd2", {"handle_deletes": "hard"}, 'handle_deletes="soft"'),
        ("merge", {"event_timestamp_column": "at"}, "an option of scd2"),
        ("append", {"ttl": timedelta(days=1)}, "an option of scd2"),
        ("scd2", {"ttl": timedelta(0)}, "longer than zero"),
        ("truncate", {"incremental_column": "at"}, "append or merge"),
        ("scd2", {"incremental_column": "at"}, "append or merge"),
        ("append", {"compare_columns": ["a"]}, "merge or scd2"),
        ("truncate", {"keys": ["a"]}, "merge or scd2"),
        ("scd2", {"update_columns": ["a"]}, "an option of merge"),
        ("merge", {"lookback": timedelta(hours=1)}, "belongs to an incremental load"),
        ("append", {"lookback": timedelta(hours=1), "incremental_column": "at"}, "would double them"),
        ("merge", {"lookback": timedelta(0), "incremental_column": "at"}, "longer than zero"),
        ("truncate", {"incremental": "files"}, "mode='truncate' would forget all others"),
        ("merge", {"incremental": "files", "handle_deletes": "hard"}, "reads new files only"),
        ("scd2", {"incremental": "files", "handle_deletes": "soft"}, "reads new files only"),
        ("append", {"incremental": "files", "incremental_column": "at"}, "not by both"),
        ("append", {"incremental": "files", "on_replaced": "laod"}, "did you mean 'load'?"),
        ("append", {"on_replaced": "load"}, "belongs to a load of new files"),
        ("append", {"on_drift": "evlove"}, "did you mean 'evolve'?"),
        ("append", {"on_bad_row": "skip"}, "on_bad_row='skip' is not known"),
        ("append", {"null_watermark": "ignore", "incremental_column": "at"}, "null_watermark='ignore' is not known"),
        ("merge", {"keys": []}, "at least one column name"),
        ("merge", {"keys": ["a", 1]}, "at least one column name"),
    ],
)
def test_options_that_do_not_fit_are_value_errors_with_a_way_out(mode: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are parameters
        write(mode, **options)
    assert isinstance(caught.value, FlowError)
    assert message in str(caught.value)


def test_merge_cannot_close_versions() -> None:
    with pytest.raises(NotImplementedError, match="no versions to close"):
        write("merge", handle_deletes="soft")


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("merge", {"handle_deletes": "hard"}),
        ("scd1", {"update_columns": ["name"]}),
        ("scd2", {"handle_deletes": "soft", "ttl": timedelta(days=30), "event_timestamp_column": "at"}),
        ("append", {"incremental_column": "at", "null_watermark": "reject"}),
        ("merge", {"incremental_column": "at", "lookback": timedelta(hours=1)}),
        ("truncate", {"allow_empty": True, "on_bad_row": "reject", "on_drift": "warn"}),
    ],
)
def test_options_that_fit_are_kept(mode: str, options: dict[str, Any]) -> None:
    value = write(mode, **options)
    values = {name: getattr(value, name) for name in options}
    assert values == {name: tuple(given) if isinstance(given, list) else given for name, given in options.items()}


def test_none_means_not_given() -> None:
    assert write("append", keys=None, ttl=None, on_drift=None) == write("append")


def test_one_name_may_stand_for_a_list_of_one() -> None:
    assert write("merge", keys="id").keys == ("id",)
