"""Streams with windows that are killed anywhere: every window is in the table once, with the right numbers."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from ematix_flow.failpoints import ADDING_NAMES, LAKE_NAMES, NAMES, STATE_NAMES, TRANSFORM_NAMES
from tests.crash.journey import CrashTarget
from tests.crash.state_lives import CLOSES, LIFE_SECONDS, TAKES, Cut
from tests.crash.windows import EventWriter, WindowFeed, complaints, model, windows_in
from tests.depth import quick_or_deep
from tests.lakes.targets import lake_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.crash.nursery import Ending, Nursery
    from tests.services.kafka import KafkaBroker

pytestmark = [
    pytest.mark.crash,
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("state_kills"),
]

STREAMS = 6
"""Streams that one process of a sweep runs, and that are cut when it dies."""

PASSED_BY_TASKS = ("stage.task_start", "stage.mid_rows", "stage.before_task_commit", "stage.after_task_commit")
"""Failpoints in processes of Spark, whose death Spark makes good."""

NEVER_PASSED = ("stage.before_return", "runlog.before_success", "runlog.after_success", "post.before", "post.after")
"""Failpoints of batch runs: a batch of a stream has no request and no step behind it."""

IN_A_LOAD = tuple(name for name in NAMES if name not in (*PASSED_BY_TASKS, *NEVER_PASSED))
IN_A_BATCH = (STATE_NAMES[1], *IN_A_LOAD, STATE_NAMES[2])
AROUND_A_RANGE = (*TRANSFORM_NAMES, STATE_NAMES[0], "stream.after_batch")
IN_A_LAKE_LOAD = (*LAKE_NAMES[:2], *ADDING_NAMES)


def sweep_of(points: Sequence[str]) -> list[Cut]:
    """Return a cut at each point in a batch of either kind, in the first batch of a life, and around ranges."""
    kinds = [Cut(point, batch_kind) for point in points for batch_kind in (TAKES, CLOSES)]
    first = [Cut(point) for point in points[::2]]
    return [*kinds, *first, *(Cut(point, "", passing) for point in AROUND_A_RANGE for passing in (1, 2))]


@dataclass
class Kills:
    """Streams that are killed together, life after life."""

    nursery: Nursery
    target: CrashTarget
    feeds: list[WindowFeed]
    notes: Path
    writers: list[EventWriter] = field(default_factory=list)
    lives: int = 0
    cuts: int = 0

    def __post_init__(self) -> None:
        self.writers = [EventWriter(feed) for feed in self.feeds]
        for writer, feed in zip(self.writers, self.feeds, strict=True):
            writer.write(feed.most)

    def cut(self, cuts: Sequence[Cut]) -> list[str]:
        """Cut every stream somewhere, and return the complaints."""
        ending = self._live([asdict(cut) for cut in cuts], kill_after=2 * LIFE_SECONDS)
        if not ending.died:
            return [f"a life ended otherwise: {ending}"]
        reached = {int(line) for line in self.notes.read_text().split()}
        self.cuts += len(reached)
        missed = [f"{cut} was not passed" for number, cut in enumerate(cuts) if number not in reached]
        return missed + self._wrong(unfinished=True)

    def kill(self, seconds: float) -> list[str]:
        """Kill the process so many seconds after its first batch was computed, and return the complaints."""
        ending = self._live([None] * len(self.feeds), kill_after=seconds, since=str(self.notes))
        self.cuts += len(self.feeds)
        return self._wrong(unfinished=True) if ending.died else [f"a life ended otherwise: {ending}"]

    def finish(self) -> list[str]:
        """Write the last event, load all that is there in peace, and return the complaints."""
        for writer in self.writers:
            writer.end()
        self.feeds = [replace(feed, most=10_000) for feed in self.feeds]
        ending = self._run([None] * len(self.feeds), available_now=True, kill_after=2 * LIFE_SECONDS)
        failed = [] if ending.answer == [""] * len(self.feeds) else [f"the last life failed: {ending}"]
        return failed + self._wrong()

    def summary(self) -> str:
        """Say in numbers what happened."""
        rows = sum(len(windows_in(self.target, feed.table)) for feed in self.feeds)
        events = sum(writer.written for writer in self.writers)
        return f"{self.target.kind}: {self.cuts} kills in {self.lives} lives, {events} events, {rows} windows"

    def _live(self, cuts: list[dict[str, object] | None], **how: object) -> Ending:
        for writer in self.writers:
            writer.write(4 * self.feeds[0].most)  # for a batch of either kind, wherever the last life ended
        return self._run(cuts, available_now=False, **how)

    def _run(self, cuts: list[dict[str, object] | None], *, available_now: bool, **how: object) -> Ending:
        self.lives += 1
        self.notes.unlink(missing_ok=True)
        feeds = [asdict(feed) for feed in self.feeds]
        return self.nursery.run("windows", self.target, feeds, cuts, str(self.notes), available_now, **how)

    def _wrong(self, *, unfinished: bool = False) -> list[str]:
        return [
            f"{feed.table}: {problem}"
            for feed, writer in zip(self.feeds, self.writers, strict=True)
            for problem in complaints(windows_in(self.target, feed.table), writer.written, unfinished=unfinished)
        ]


@pytest.fixture
def kills_of(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], kafka_broker: KafkaBroker, tmp_path: Path
) -> Callable[[str, int], Kills]:
    """Return the function that makes streams into a kind of target."""

    def create(kind: str, streams: int = STREAMS) -> Kills:
        if kind == "delta_local":
            (tmp_path / "lake").mkdir()
            fields = lake_fields(kind, tmp_path / "lake")
            # State is kept by a Spark of the process itself, so no server changes the rows.
            target = CrashTarget(kind, fields, "", str(tmp_path / "run_log.db"), "crash")
        else:
            target = target_of(kind)
        root = str(tmp_path / "state")
        feeds = [
            WindowFeed(kafka_broker.address, kafka_broker.create_topic(3), root, f"w{stream}")
            for stream in range(streams)
        ]
        return Kills(nursery, target, feeds, tmp_path / "notes")

    return create


def swept(kills: Kills, cuts: list[Cut]) -> list[str]:
    """Make all cuts, as many at a time as there are streams, then finish, and return all complaints."""
    streams = len(kills.feeds)
    problems = []
    for begin in range(0, len(cuts), streams):
        some = cuts[begin : begin + streams]
        problems += kills.cut([*some, *cuts[: streams - len(some)]])
    problems += kills.finish()
    print(kills.summary())  # noqa: T201
    return problems


def test_the_model_finds_windows_that_are_lost_doubled_or_wrong() -> None:
    first, *rest = model(60)
    assert complaints([first, *rest], 60) == []
    assert complaints(rest, 60, unfinished=True) == []
    assert [problem.split(":")[0] for problem in complaints(rest, 60)] == ["1 lost"]
    assert [problem.split(":")[0] for problem in complaints([first, first, *rest], 60)] == ["1 doubled"]
    short = (*first[:2], first[2] - 1, *first[3:])
    assert [problem.split(":")[0] for problem in complaints([short, *rest], 60)] == ["1 phantom"]


def test_windows_that_are_cut_while_events_are_taken_up_and_while_they_close(
    kills_of: Callable[[str, int], Kills],
) -> None:
    quick = [Cut("commit.after_commit", CLOSES)]  # the rows are there, and the state does not know it yet
    cuts = quick_or_deep(quick, [Cut("state.computed", CLOSES), Cut("commit.after_commit", TAKES)])
    assert swept(kills_of("postgres", len(cuts)), cuts) == []


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["postgres", "delta_local"])
def test_a_kill_at_every_place_that_a_batch_passes(kills_of: Callable[[str, int], Kills], kind: str) -> None:
    more = IN_A_LAKE_LOAD if kind == "delta_local" else ()
    # A batch without rows stages no file of a lake, so there is none to drop.
    never = Cut("gc.mid_drop", TAKES) if kind == "delta_local" else None
    cuts = [cut for cut in sweep_of((*IN_A_BATCH, *more)) if cut != never]
    Random(int(os.environ.get("CRASH_SEED", "20260101"))).shuffle(cuts)  # noqa: S311 - repeatable, not secret
    kills = kills_of(kind, STREAMS)
    assert swept(kills, cuts) == []
    assert kills.cuts >= 60


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["postgres", "delta_local"])
def test_kills_at_random_moments(kills_of: Callable[[str, int], Kills], kind: str) -> None:
    random = Random(int(os.environ.get("CRASH_SEED", "20260101")))  # noqa: S311 - repeatable, not secret
    kills = kills_of(kind, STREAMS)
    problems = [text for _ in range(7) for text in kills.kill(random.uniform(0.0, 8.0))]
    problems += kills.finish()
    print(kills.summary())  # noqa: T201
    assert problems == []
