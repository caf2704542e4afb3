"""Up to which time the sources of a stream are complete."""

from __future__ import annotations

from ematix_flow import Watermark
from ematix_flow.engine.stream.state.source_times import SourceClock

SECOND = 1_000_000


def test_a_source_that_had_a_message_in_the_range_is_not_idle_however_short_a_silence_may_be() -> None:
    ticks = iter(range(100))
    clock = SourceClock(("a", "b"), lambda: float(next(ticks)), lateness=0, idleness=0)
    times = {"a": 200, "b": 100}
    clock.note(("a", "b"), {}, times)
    assert clock.watermark(times, None) == 100
    clock.note(("a",), {}, times)
    assert clock.watermark(times, 100) == 200
    clock.note((), {}, times)
    assert clock.watermark(times, 100) == 100


def test_a_silence_may_be_declared_that_never_is_long_enough() -> None:
    assert Watermark(source_idleness_ms=10**15).source_idleness_ms == 10**15
    now = [0.0]
    clock = SourceClock(("a", "b"), lambda: now[0], lateness=0, idleness=10**400)
    clock.note(("a", "b"), {}, {"a": 200, "b": 100})
    now[0] = 1e12
    clock.note(("a",), {}, {"a": 200, "b": 100})
    assert clock.watermark({"a": 200, "b": 100}, None) == 100


def test_a_source_holds_the_others_back_until_it_was_silent_for_long() -> None:
    now = [0.0]
    clock = SourceClock(("a", "b"), lambda: now[0], lateness=5, idleness=60 * SECOND)
    times = {"a": 200, "b": 100}
    clock.note(("a", "b"), {}, times)
    now[0] = 59.0
    clock.note(("a",), {}, times)
    assert clock.watermark(times, None) == 95
    now[0] = 61.0
    assert clock.watermark(times, 95) == 195
