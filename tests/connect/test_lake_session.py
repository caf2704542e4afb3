"""The books of a lake table whose owners die around a change, over the plainest table that lets each number through once."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.base.session import Statement
from ematix_flow.connect.lake.change import Applier
from ematix_flow.connect.lake.transaction import LakeSession
from ematix_flow.connect.storage.base import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ematix_flow.connect.lake.change import Change

# Test processes have threads, which the children do not use.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

HOME = "home/"


class Lines(Applier):
    """A table that is a file: each change is a line of its number, its name and what was said."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def change(self, engine: Any, sql: str, change: Change) -> dict[str, int]:
        del engine
        if sql == "die first":
            os.kill(os.getpid(), signal.SIGKILL)
        if sql == "unheard":
            raise EngineError("the line broke", answered=False)
        self._add(change, "made")
        if sql == "die then":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"num_affected_rows": 1}

    def is_committed(self, engine: Any, change: Change) -> bool:
        del engine
        return any(name == change.id and how == "made" for _, name, how in self.lines())

    def refuse(self, engine: Any, change: Change) -> None:
        del engine
        self._add(change, "refused")

    def _add(self, change: Change, how: str) -> None:
        if all(int(number) < change.number for number, _, _ in self.lines()):
            with self.path.open("a") as file:
                file.write(f"{change.number} {change.id} {how}\n")


class Overtaken(Lines):
    """The same, but a change that is refused turns out to have been made just before."""

    def refuse(self, engine: Any, change: Change) -> None:
        del engine
        self._add(change, "made")
        raise EngineError("somebody was first", transient=True)


class RefusedMeanwhile(Lines):
    """The same, but the refusal of somebody who died since gets in first."""

    def refuse(self, engine: Any, change: Change) -> None:
        there = len(self.lines())
        super().refuse(engine, change)
        if len(self.lines()) > there:
            raise EngineError("somebody was first", transient=True)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., LakeSession]:
    """Return the function that opens the books; they have a table of texts."""

    def create(table: type[Lines] = Lines) -> LakeSession:
        return LakeSession(LocalStore(str(tmp_path)), HOME, table(tmp_path / "lines"), lambda: None)  # type: ignore[arg-type, return-value]

    with closing(create()) as session:
        session.execute("CREATE TABLE texts (text TEXT)")
    return create


@pytest.mark.slow
@pytest.mark.parametrize(("how", "remaining"), [("die first", ["before"]), ("die then", ["before", "die then"])])
def test_whoever_comes_after_a_dead_owner_follows_the_table(
    opened: Callable[..., LakeSession], how: str, remaining: list[str]
) -> None:
    assert in_a_child(opened, "before") == 0
    assert in_a_child(opened, how) == -signal.SIGKILL
    with closing(opened()) as session:
        session.begin()
        assert texts(session) == remaining
        # In this very transaction: a number that the table refused is nobody's.
        write(session, "after")
        session.commit()
        assert texts(session) == [*remaining, "after"]
        assert left(session) == []


def test_a_change_that_was_made_before_it_could_be_refused_counts(opened: Callable[..., LakeSession]) -> None:
    assert in_a_child(opened, "die first") == -signal.SIGKILL
    with closing(opened(Overtaken)) as session:
        session.begin()
        assert texts(session) == ["die first"]
        session.rollback()


def test_what_changes_the_table_is_the_statement_that_the_plan_marks(
    opened: Callable[..., LakeSession], tmp_path: Path
) -> None:
    with closing(opened()) as session:
        session.begin()
        # No word of the statement itself tells that it is the final one.
        assert session.rows.run(Statement("die neither first nor then", final=True)) == 1
        session.commit()
    assert [how for _, _, how in Lines(tmp_path / "lines").lines()] == ["made"]


def test_a_refusal_that_stumbles_over_another_is_tried_again(opened: Callable[..., LakeSession]) -> None:
    assert in_a_child(opened, "die first") == -signal.SIGKILL
    with closing(opened(RefusedMeanwhile)) as session:
        session.begin()
        write(session, "after")
        session.commit()
        assert texts(session) == ["after"]
        assert left(session) == []


def test_a_change_of_an_engine_that_is_not_heard_is_refused(opened: Callable[..., LakeSession], tmp_path: Path) -> None:
    with closing(opened()) as session:
        session.begin()
        with pytest.raises(EngineError):
            write(session, "unheard")
        session.rollback()
        assert [how for _, _, how in Lines(tmp_path / "lines").lines()] == ["refused"]
        session.begin()
        write(session, "after")
        session.commit()
        assert texts(session) == ["after"]
        assert left(session) == []


def in_a_child(opened: Callable[..., LakeSession], text: str) -> int:
    """Make a change in a process of its own and return the code it ends with."""
    pid = os.fork()
    if not pid:
        session = opened()
        session.begin()
        write(session, text)
        session.commit()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def write(session: LakeSession, text: str) -> None:
    session.connection.execute("INSERT INTO texts VALUES (?)", (text,))
    session.change(text)


def texts(session: LakeSession) -> list[str]:
    return [text for (text,) in session.query("SELECT text FROM texts ORDER BY rowid")]


def left(session: LakeSession) -> list[str]:
    """Return the locks that are left."""
    return [entry.key for entry in session.store.listed(f"{HOME}locks/") if not entry.key.endswith(".dead")]
