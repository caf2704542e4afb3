"""Lives of a process that runs streams with windows: each stands still at a place of its own, then all are killed.

So one start of Java pays for as many cuts as there are streams.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow import failpoints
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from tests.crash.windows import window_stream

if TYPE_CHECKING:
    from tests.crash.journey import Place
    from tests.crash.windows import WindowFeed

TAKES, CLOSES = "takes", "closes"
"""Batches that only take up events, and those that close windows."""

PATIENCE = 240.0
"""Seconds after which a life ends in which not every stream has come to its place."""


@dataclass(frozen=True)
class Cut:
    """Where a stream is cut: at a failpoint, in a batch of some kind, or when it passes for the so-manieth time."""

    point: str
    moment: str = ""
    passing: int = 1

    def __str__(self) -> str:
        return f"{self.point} {self.moment or f'@{self.passing}'}"


@dataclass
class Lane:
    """One stream of a life, and where it is cut."""

    feed: WindowFeed
    cut: Cut | None
    kind: str = ""
    """What the last batch was."""
    passed: int = 0
    reached: threading.Event = field(default_factory=threading.Event)

    def passes(self, name: str) -> bool:
        """Say whether the stream is cut here and now."""
        if self.cut is None or name != self.cut.point or (self.cut.moment and self.cut.moment != self.kind):
            return False
        self.passed += 1
        return self.passed == self.cut.passing


_LANE: ContextVar[Lane | None] = ContextVar("lane", default=None)


def live(
    place: Place, feeds: list[WindowFeed], cuts: list[Cut | None], notes: str, *, available_now: bool
) -> list[str]:
    """Run streams until all of them stand where they are cut, and die; without cuts, give the errors they end with.

    The file `notes` tells of every cut that was reached, and of the first batch that was computed.
    """
    lanes = [Lane(feed, cut) for feed, cut in zip(feeds, cuts, strict=True)]
    use_own_spark(feeds[0].root)
    _watch(lanes, Path(notes))
    errors = [""] * len(lanes)

    def run(number: int) -> None:
        _LANE.set(lanes[number])
        try:
            run_windows(place, lanes[number].feed, available_now=available_now)
        except BaseException as error:  # noqa: BLE001 - told to the test, which judges it
            errors[number] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(lanes))]
    for thread in threads:
        thread.start()
    if any(cuts):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not all(lane.reached.is_set() for lane in lanes) and not any(errors):
            time.sleep(0.01)
        if not any(errors):
            os.kill(os.getpid(), signal.SIGKILL)
    for thread in threads:
        thread.join(0 if any(errors) else None)
    return errors


def run_windows(place: Place, feed: WindowFeed, *, available_now: bool, **more: Any) -> dict[str, Any]:
    """Run one stream until it is stopped or, with `available_now`, has everything."""
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.run import run_stream

    return run_stream(
        window_stream(place, feed), StreamOptions(available_now=available_now, restart=feed.restart, **more)
    )


def use_own_spark(root: str) -> None:
    """Let this process start a small Spark of its own, which keeps state below a folder."""
    os.environ.pop(ENGINE_VARIABLE, None)
    os.environ |= {
        "EMATIX_FLOW_CHECKPOINT_ROOT": root,
        "EMATIX_FLOW_SPARK_MASTER": "local[2, 4]",
        "EMATIX_FLOW_SPARK_CONF_spark__sql__shuffle__partitions": "2",
    }


def _watch(lanes: list[Lane], notes: Path) -> None:
    """Let every stream stand still where it is cut."""
    from ematix_flow.engine.stream.state.rows import StateRows

    kinds = StateRows.kinds

    def note(text: str) -> None:
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def seen(self: StateRows, results: Any) -> dict[str, int]:
        found, lane = kinds(self, results), _LANE.get()
        assert lane is not None
        lane.kind = CLOSES if found.get("close") else TAKES
        return found

    def act(name: str, armed: object) -> None:
        del armed
        lane = _LANE.get()
        if name == "state.computed":
            notes.touch()
        if lane is not None and lane.passes(name):
            note(str(lanes.index(lane)))
            lane.reached.set()
            threading.Event().wait()

    StateRows.kinds = seen  # type: ignore[method-assign]
    points = {lane.cut.point for lane in lanes if lane.cut is not None} | {"state.computed"}
    failpoints._armed = dict.fromkeys(points)  # type: ignore[assignment]
    failpoints._act = act
