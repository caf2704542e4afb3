"""What is handed to somebody slow never waits for them, and is not lost without a word."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ematix_flow.observe.background_queue import LONGEST, BackgroundQueue
from ematix_flow.observe.http.host_guard import HostUnreachableError

if TYPE_CHECKING:
    import pytest


def test_things_arrive_in_order() -> None:
    got: list[int] = []
    box: BackgroundQueue[int] = BackgroundQueue(got.append, "box")
    for number in range(LONGEST):
        box.put(number)
    box.close(10)
    assert got == list(range(LONGEST))


def test_a_full_box_takes_no_more_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    got: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def deliver(number: int) -> None:
        entered.set()
        go_on.wait(30)
        got.append(number)

    box = BackgroundQueue(deliver, "box")
    box.put(0)
    entered.wait(10)
    for number in range(1, LONGEST + 10):
        box.put(number)
    go_on.set()
    box.close(10)
    assert got == list(range(LONGEST + 1))
    assert capsys.readouterr().err == "box: too many wait, so the newest are dropped (reported once)\n"
    box.put(1)
    assert len(got) == LONGEST + 1


def test_only_what_was_not_sent_at_all_is_tried_again(no_waits: None, capsys: pytest.CaptureFixture[str]) -> None:
    tries: list[str] = []

    def deliver(message: str) -> None:
        tries.append(message)
        if message == "away" and len(tries) < 3:
            raise HostUnreachableError("nobody is there")
        if message == "sent":
            raise TimeoutError

    box = BackgroundQueue(deliver, "box")
    box.put("away")
    box.put("sent")
    box.close(10)
    assert tries == ["away", "away", "away", "sent"]
    assert capsys.readouterr().err == "box: TimeoutError (reported once)\n"
