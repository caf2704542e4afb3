"""Disturbs loads and judges what is left: old or new right after the crash, exactly the model after the next run.

Every judgement is a list of complaints, empty when nothing is wrong; negative controls show that bugs fill it.
"""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import Ledger
from ematix_flow.plan.sql.render import native_name
from ematix_flow.records import Token
from tests.crash.jobs import KILL_LOOP, numbered
from tests.crash.journey import ROWS, Load, batch_rows, difference, expected, table_rows
from tests.crash.metadata import contradictions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from random import Random

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Ending, Nursery

AFTER_THE_REQUEST = "runlog.after_success"
"""Whoever dies here had finished: the next run is a new request, which finds nothing new to load."""

AFTER_THE_LOAD = ("post.before", "post.after")
"""An error here ends the request, because its rows are there and newer ones shall not wait for the step."""


@dataclass
class Sweep:
    """One table that load after load is disturbed on."""

    nursery: Nursery
    target: CrashTarget
    mode: str
    table: str
    bug: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    slots: bool = False
    """Loads are asked for by slot, as a scheduler does, and not as a person would."""
    loaded: list[int] = field(default_factory=list)
    requests: int = 0
    posts_missed: int = 0
    """Loads whose post step failed, and with it the run: the step runs again for the next load only."""

    def points(self, action: str, names: Iterable[str] = ()) -> list[str]:
        """Disturb one load at each of these failpoints, or at all that it passes, and return all complaints."""
        names = tuple(names) or self.target.points
        return [f"{name}={action}: {complaint}" for name in names for complaint in self.point(name, action)]

    def in_a_row(self, action: str, names: Iterable[str]) -> list[str]:
        """Disturb one load at failpoint after failpoint before it may go through, and return all complaints."""
        load = self.next_load()
        complaints = [f"{name}={action}: {text}" for name in names for text in self.disturbed(load, name, action)]
        return complaints + self.undisturbed()

    def point(self, name: str, action: str) -> list[str]:
        """Disturb the next load at one failpoint, run it again, and return the complaints."""
        load = self.next_load()
        complaints = self.disturbed(load, name, action)
        again = self.run(load)
        if again.answer is None:
            complaints.append(f"the next run failed: {again.error or again}")
        self.requests += name == AFTER_THE_REQUEST or (action == "raise" and name in AFTER_THE_LOAD)
        self.posts_missed += action == "raise" and name == "post.before"
        return self.judged(load, complaints)

    def disturbed(self, load: Load, name: str, action: str) -> list[str]:
        """Disturb a load at one failpoint; its rows must be there or not."""
        before, after = self.expected(), self.expected(load.number)
        name, _, passing = name.partition("@")
        ending = self.run(load, f"{name}={action}" + (f"@{passing}" if passing else ""))
        complaints = [] if reached(ending, name, action) else [f"the load ended otherwise: {ending}"]
        right_after = table_rows(self.target, load)
        if right_after not in (before, after):
            complaints += [f"right after the crash: {text}" for text in difference(right_after, after)]
        return complaints

    def next_load(self) -> Load:
        """Return the load that follows those that are done."""
        number = len(self.loaded)
        return Load(self.mode, number, self.table, f"slot-{number}" if self.slots else None, self.options)

    def undisturbed(self, failpoints: str = "") -> list[str]:
        """Make a load that must succeed at once, whatever its tasks go through, and return the complaints."""
        load = self.next_load()
        ending = self.run(load, failpoints)
        return self.judged(load, [] if ending.answer is not None else [f"the load failed: {ending.error or ending}"])

    def judged(self, load: Load, complaints: list[str]) -> list[str]:
        """Count a load as done and compare the table with the model."""
        self.loaded.append(load.number)
        self.requests += 1
        posts = self.requests - self.posts_missed
        differing = difference(table_rows(self.target, load), self.expected())
        return complaints + differing + contradictions(self.target, load, self.requests, posts)

    def run(self, load: Load, failpoints: str = "", **how: Any) -> Ending:
        """Run a load in a child."""
        return self.nursery.run("load", self.target, load, failpoints=failpoints, bug=self.bug, **how)

    def interrupted(self, point: str, **how: Any) -> Ending:
        """Start the next load in a child that stops itself at a failpoint and waits."""
        ending = self.run(self.next_load(), f"{point}=stop@1", **how)
        assert ending.stopped, ending
        return ending

    def finished(self, ending: Ending) -> list[str]:
        """Let a stopped load go on; it must succeed. Gives the complaints."""
        ending = self.nursery.resume(ending)
        complaints = [] if ending.answer is not None else [f"the load failed: {ending.error or ending}"]
        return self.judged(self.next_load(), complaints)

    def refused(self, ending: Ending, *texts: str) -> list[str]:
        """Return the complaints unless a load failed with these words and changed nothing."""
        complaints = [
            f"{text!r} is not in {ending.error!r} ({ending.answer})" for text in texts if text not in ending.error
        ]
        return complaints + difference(table_rows(self.target, self.next_load()), self.expected())

    def expected(self, *more: int) -> list[tuple[Any, ...]]:
        """Return what the table must show, with further loads."""
        return expected(self.mode, [*self.loaded, *more])


def reached(ending: Ending, name: str, action: str) -> bool:
    """Return whether a load ended where it was told to."""
    return ending.died if action == "kill" else f"FailpointError: {name}" in ending.error


@dataclass
class KillLoop:
    """A child that loads without end, and is killed and started again."""

    nursery: Nursery
    target: CrashTarget
    acknowledged: Path
    random: Random
    bug: str = ""
    longest: float = 0.7
    """Seconds that a life lasts at most."""
    growth: float = 1.3
    """By how much lives grow when they end without a load: lives of about two loads, however quick the machine is."""
    unacknowledged: int = 0
    """Commits that were found although nobody had been told of them."""

    def lives(self, kills: int) -> list[str]:
        """Kill the child as often as asked, then let it finish its work; returns all complaints."""
        complaints: list[str] = []
        while kills > 0:
            done = self.done()
            ending = self._live(10_000, self.random.uniform(0.02, self.longest))
            kills -= ending.died
            self.longest *= self.growth if self.done() == done else 0.9
            complaints += [] if ending.died else [f"the child ended by itself: {ending}"]
            complaints += self._open_load()
            if complaints:
                return complaints
        ending = self._live(self.done() + len(self.target.modes(KILL_LOOP)), None)
        complaints = [] if ending.answer is not None else [f"the last life failed: {ending}"]
        return complaints + self._judge()

    def done(self) -> int:
        """Return how many loads were acknowledged."""
        return len(self.acknowledged.read_text().splitlines()) if self.acknowledged.exists() else 0

    def _live(self, last: int, seconds: float | None) -> Ending:
        return self.nursery.run("loop", self.target, str(self.acknowledged), last, kill_after=seconds, bug=self.bug)

    def _open_load(self) -> list[str]:
        """Look at the load that was under way: in the ledger with all its rows, or not there at all."""
        load = numbered(self.target, self.done())
        open_run = open_load(self.target, load)
        if open_run is None:
            return []
        tokens, rows = open_run
        self.unacknowledged += tokens
        whole = rows == ROWS if load.mode in ("append", "truncate") else rows <= ROWS
        # The table's own commit decides: the books of a lake follow when the next load comes.
        right = whole if tokens == 1 or (self.target.is_lake and rows) else open_run == (0, 0)
        return [] if right else [f"{load}: the ledger has {tokens} tokens of it, the table {rows} rows"]

    def _judge(self) -> list[str]:
        total, turns = self.done(), len(self.target.modes(KILL_LOOP))
        complaints = []
        for index in range(min(turns, total)):
            numbers = list(range(index, total, turns))
            load = numbered(self.target, numbers[-1])
            wrong = difference(table_rows(self.target, load), expected(load.mode, numbers))
            complaints += [f"{load.mode}: {text}" for text in wrong + contradictions(self.target, load, len(numbers))]
        return complaints


def open_load(target: CrashTarget, load: Load) -> tuple[int, int] | None:
    """Return how many tokens and rows a load has, as one statement sees them; None before the first load of all."""
    database = target.opened(load.table)
    table = database.table_name(target.schema, load.table)
    ledger = Ledger(database)
    token = Token(load.table, f"target:{target.schema}.{load.table}", load.slot or "")
    with closing(database.session()) as session:
        if not ledger.exists(session) or database.find_table(session, table) is None:
            return None
        if target.is_folder or target.is_lake:
            known = session.query(f"SELECT COUNT(*) FROM {ledger.name('ledger')} WHERE token = ?", (token.key,))
            return int(known[0][0]), batch_rows(target, load, token.run_id)
        tokens, rows = session.query(
            f"SELECT (SELECT COUNT(*) FROM {ledger.name('ledger')} WHERE token = '{token.key}'), "
            f"(SELECT COUNT(*) FROM {native_name(table, database.dialect)} WHERE _batch_id = '{token.run_id}')"
        )[0]
    return int(tokens), int(rows)


def wait_until(condition: Any, seconds: float = 30.0, pause: float = 0.01) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(pause)


@contextmanager
def in_background(work: Callable[[], Any]) -> Iterator[Thread]:
    """Do something in a thread while the block runs, and wait for its end."""
    thread = Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(60.0)
    assert not thread.is_alive()


def moved(target: CrashTarget, **fields: str) -> CrashTarget:
    """Return a target whose connection differs, for example by a proxy in between."""
    return replace(target, fields={**target.fields, **fields})
