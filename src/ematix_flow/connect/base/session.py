"""Connections to a system: statements in a transaction, and reads that stay open until their splits are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from ematix_flow.connect.base.cancellation import watch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class Split:
    """One part of a read, small enough to send to a task."""

    sql: str
    snapshot: str = ""
    """Name of an exported snapshot that every split reads from."""


@dataclass(slots=True)
class Opened:
    """A read prepared on the driver: its splits, and what must stay open until they are read."""

    splits: tuple[Split, ...]
    resources: AbstractContextManager[object] | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a plan; `counts` names the field of Counts that its row count adds to."""

    sql: str
    counts: str = ""
    purpose: str = ""
    counted: str = ""
    """Query for the count, run before the statement, where the statement changes something else than rows."""
    when: str = ""
    """Query without whose rows the statement is left out; empty where it is always run."""
    tally: str = ""
    """Query for names of counts and their numbers, run after the statement."""
    final: bool = False
    """True for the one statement that makes the load visible where a change of rows is final at once."""
    cache_as: str = ""
    """Relation of this session that the rows of `sql`, a query, are cached as.

    Empty for a statement that changes something.
    """
    fills_points: bool = False
    """True for the statement that writes the folded events of a load into a folder that the session chooses."""

    @property
    def text(self) -> str:
        """Return the statement as people read it."""
        return f"CACHE TABLE {self.cache_as} AS {self.sql}" if self.cache_as else self.sql


class Session(ABC):
    """One control connection of the driver, with explicit transactions; never used in a task."""

    numbers: Mapping[str, int] = MappingProxyType({})
    """What the last statement did, by the names of `records.Counts`, where the system reports more than one number."""

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Self:
        """Make a session that is interrupted when the work that opened it is to stop."""
        session = super().__new__(cls)
        watch(session)
        return session

    def interrupt(self) -> None:  # noqa: B027 - not every system can
        """End the statement that runs, from another thread, where the driver can; harmless when none does."""

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement and return the rows it changed (0 where the statement has no such count)."""

    def run(self, statement: Statement) -> int:
        """Run a statement of a plan and return the rows it changed; its flags matter where changes are final."""
        return self.execute(statement.sql)

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; for metadata and samples, never for data."""

    def show_all_values(self) -> None:  # noqa: B027 - where every value has a form already
        """Have later queries give values that Python has no type for as text; people want to see them."""

    def free_connections(self) -> int | None:
        """Return how many more connections this user may open now; None where tasks connect to no server."""
        return None

    def export_snapshot(self) -> str:
        """Return a name for the state that this transaction sees, with which others can join it; empty where none can."""
        return ""

    def join_snapshot(self, snapshot: str) -> None:
        """Begin a transaction that sees the state another session has exported."""
        raise NotImplementedError

    @abstractmethod
    def begin(self) -> None:
        """Open a transaction that takes its write lock now, where the database has one lock."""

    @abstractmethod
    def commit(self) -> None:
        """Commit; any error here means that the outcome is unknown."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll back, also when the connection is already broken."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""
