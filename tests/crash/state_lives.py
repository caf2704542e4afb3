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
    from tests.crash.journey import CrashTarget
    from tests.crash.windows import WindowFeed

TAKES, CLOSES = "takes", "closes"
"""Batches that only take up events, and those that close windows."""

LIFE_SECONDS = 240.0
"""Seconds after which a life ends in which not every stream has come to its place."""


@dataclass(frozen=True)
class Cut:
    """Where a stream is cut: at a failpoint, in a batch of some kind, or when it passes for the so-manieth time."""

    point: str
    batch_kind: str = ""
    passing: int = 1

    def __str__(self) -> str:
        return f"{self.point} {self.batch_kind or f'@{self.passing}'}"


@dataclass
class CutStream:
    """One stream of a life, and where it is cut."""

    feed: WindowFeed
    cut: Cut | None
    kind: str = ""
    """What the last batch was."""
    passed: int = 0
    reached: threading.Event = field(default_factory=threading.Event)

    def passes(self, name: str) -> bool:
        """Return whether the stream is cut here and now."""
        if self.cut is None or name != self.cut.point or (self.cut.batch_kind and self.cut.batch_kind != self.kind):
            return False
        self.passed += 1
        return self.passed == self.cut.passing


_STREAM: ContextVar[CutStream | None] = ContextVar("stream", default=None)


def live(
    target: CrashTarget, feeds: list[WindowFeed], cuts: list[Cut | None], notes: str, *, available_now: bool
) -> list[str]:
    """Run streams until all of them stand where they are cut, and die; without cuts, return the errors they end with.

    The file `notes` tells of every cut that was reached, and of the first batch that was computed.
    """
    streams = [CutStream(feed, cut) for feed, cut in zip(feeds, cuts, strict=True)]
    use_own_spark(feeds[0].root)
    _watch(streams, Path(notes))
    errors = [""] * len(streams)

    def run(number: int) -> None:
        _STREAM.set(streams[number])
        try:
            run_windows(target, streams[number].feed, available_now=available_now)
        except BaseException as error:  # noqa: BLE001 - told to the test, which judges it
            errors[number] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(streams))]
    for thread in threads:
        thread.start()
    if any(cuts):
        deadline = time.monotonic() + LIFE_SECONDS
        while (
            time.monotonic() < deadline and not all(stream.reached.is_set() for stream in streams) and not any(errors)
        ):
            time.sleep(0.01)
        if not any(errors):
            os.kill(os.getpid(), signal.SIGKILL)
    for thread in threads:
        thread.join(0 if any(errors) else None)
    return errors


def run_windows(target: CrashTarget, feed: WindowFeed, *, available_now: bool, **more: Any) -> dict[str, Any]:
    """Run one stream until it is stopped or, with `available_now`, has everything."""
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.run import run_stream

    return run_stream(
        window_stream(target, feed), StreamOptions(available_now=available_now, restart=feed.restart, **more)
    )


def use_own_spark(root: str) -> None:
    """Let this process start a small Spark of its own, which keeps state below a folder."""
    os.environ.pop(ENGINE_VARIABLE, None)
    os.environ |= {
        "EMATIX_FLOW_CHECKPOINT_ROOT": root,
        "EMATIX_FLOW_SPARK_MASTER": "local[2, 4]",
        "EMATIX_FLOW_SPARK_CONF_spark__sql__shuffle__partitions": "2",
    }


def _watch(streams: list[CutStream], notes: Path) -> None:
    """Let every stream stand still where it is cut."""
    from ematix_flow.engine.stream.state.rows import StateRows

    kinds = StateRows.kinds

    def note(text: str) -> None:
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def noting_kinds(self: StateRows, results: Any) -> dict[str, int]:
        counts, stream = kinds(self, results), _STREAM.get()
        assert stream is not None
        stream.kind = CLOSES if counts.get("close") else TAKES
        return counts

    def act(name: str, armed: object) -> None:
        del armed
        stream = _STREAM.get()
        if name == "state.computed":
            notes.touch()
        if stream is not None and stream.passes(name):
            note(str(streams.index(stream)))
            stream.reached.set()
            threading.Event().wait()

    StateRows.kinds = noting_kinds  # type: ignore[method-assign]
    points = {stream.cut.point for stream in streams if stream.cut is not None} | {"state.computed"}
    failpoints._armed = dict.fromkeys(points)  # type: ignore[assignment]
    failpoints._act = act
