"""Counts of a run log that are returned again: exact where they are quick, and never waited for twice where they are slow."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.open import forgotten_run_log
from ematix_flow.engine.report import counts
from ematix_flow.engine.report.counts import remembered, remembered_soon
from ematix_flow.errors import RunLogError

if TYPE_CHECKING:
    import pytest


def test_what_is_quick_is_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log, numbers = forgotten_run_log(), iter(range(9))
    monkeypatch.setattr(counts, "WORTH", 0.0)
    monkeypatch.setattr(counts, "SLOW_SECONDS", 3600.0)
    assert [remembered(log, "key", lambda: next(numbers)) for _ in range(3)] == [0, 1, 2]
    monkeypatch.setattr(counts, "WORTH", 1e12)
    assert [remembered(log, "key", lambda: next(numbers)) for _ in range(2)] == [2, 2]
    assert remembered(log, "another", lambda: next(numbers)) == 3


def test_what_is_slow_is_counted_in_the_background_while_the_last_count_is_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, goes_on, done, calls = forgotten_run_log(), threading.Event(), threading.Event(), []
    monkeypatch.setattr(counts, "WORTH", 0.0)
    monkeypatch.setattr(counts, "SLOW_SECONDS", 0.0)

    def slow() -> int:
        calls.append(1)
        goes_on.wait(60)
        done.set()
        if len(calls) == 2:
            raise RunLogError("away")
        return len(calls)

    assert remembered(log, "key", lambda: 0) == 0
    assert [remembered(log, "key", slow) for _ in range(3)] == [0, 0, 0]
    assert calls == [1]  # one thread counts for all
    goes_on.set()
    assert done.wait(60)
    while len(calls) < 3:  # the second fails and the third is counted after it
        remembered(log, "key", slow)
    while remembered(log, "key", lambda: 99) not in (3, 99):
        pass
    monkeypatch.setattr(counts, "OLDEST_SECONDS", -1.0)
    assert remembered(log, "key", lambda: 7) == 7


def test_who_can_do_without_a_count_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log, goes_on, calls = forgotten_run_log(), threading.Event(), []

    def slow() -> int:
        calls.append(1)
        goes_on.wait(60)
        return 5

    monkeypatch.setattr(counts, "SOON_SECONDS", 0.01)
    assert [remembered_soon(log, "key", slow) for _ in range(2)] == [None, None]
    goes_on.set()
    assert remembered(log, "key", slow) == 5  # waits for the thread that counts already
    assert remembered_soon(log, "key", slow) == 5
    monkeypatch.setattr(counts, "SOON_SECONDS", 60.0)
    assert remembered_soon(log, "quick", lambda: 6) == 6
    assert calls == [1]
