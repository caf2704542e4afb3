from __future__ import annotations

import pytest

from ematix_flow.engine.stream.restart_policy import CRASHES, TERMINAL, CrashLoopError, RestartPolicy
from ematix_flow.errors import FencedError, StreamLostError, TransientError


def test_pauses_grow_up_to_the_longest() -> None:
    policy = RestartPolicy("stream 's'", 4.0)
    pauses = []
    for _ in range(6):
        assert policy.end_of(TransientError("away")) is None
        pauses.append(policy.pause())
    bounds = [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, bounds, strict=True))


def test_a_batch_makes_the_pauses_short_again() -> None:
    policy = RestartPolicy("stream 's'", 60.0)
    for _ in range(5):
        policy.end_of(TransientError("away"))
    policy.reset()
    policy.end_of(TransientError("away"))
    assert policy.pause() <= 0.5


@pytest.mark.parametrize("kind", TERMINAL, ids=lambda kind: kind.__name__)
def test_what_stays_the_same_after_every_pause_ends_a_stream(kind: type[Exception]) -> None:
    error = kind("a fact")
    assert RestartPolicy("stream 's'", 60.0).end_of(error) is error


def test_losing_the_fence_or_messages_is_terminal() -> None:
    assert FencedError in TERMINAL
    assert StreamLostError in TERMINAL


def test_failing_again_and_again_ends_with_an_error_that_says_so() -> None:
    policy = RestartPolicy("stream 's'", 60.0)
    ends = [policy.end_of(ZeroDivisionError("a bug")) for _ in range(CRASHES)]
    assert ends[:-1] == [None] * (CRASHES - 1)
    assert isinstance(ends[-1], CrashLoopError)
    assert f"stream 's' failed {CRASHES} times and loaded nothing in between" in str(ends[-1])
    assert "a bug" in str(ends[-1])


def test_a_server_that_is_away_for_long_is_waited_for() -> None:
    policy = RestartPolicy("stream 's'", 60.0)
    assert {policy.end_of(TransientError("away")) for _ in range(50 * CRASHES)} == {None}
