"""Connections to the database of a run log: kept for servers, closed for files; what goes wrong is one kind of error."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.cancellation import unwatched
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import RunError, RunLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ematix_flow.connect.base.session import Session

LIVENESS_SECONDS = 1.0
"""How long a connection may have been idle to be used without a check that it still works."""

_alone = threading.RLock()
"""Threads of a process change a DuckDB file one after the other: two at once are a conflict there."""


def _forget_the_parent() -> None:
    global _alone  # noqa: PLW0603 - a thread of the process that this one was forked from may have held it
    _alone = threading.RLock()


os.register_at_fork(after_in_child=_forget_the_parent)


@dataclass(frozen=True, slots=True)
class SqlConnector:
    """How to connect to a database."""

    display_address: str
    open: Callable[[], Session]
    errors: tuple[type[BaseException], ...]
    is_duplicate_key: Callable[[BaseException], bool]
    path: Path | None = None
    is_server: bool = False
    """A connection to a server is kept between calls; one to a file is closed, so that other processes can have it."""
    one_by_one: bool = False
    """True where two threads that write are a conflict."""


class SessionPool:
    """The connections of one run log, from any thread."""

    def __init__(self, connector: SqlConnector) -> None:
        self._connector = connector
        self._failures: tuple[type[BaseException], ...] = (*connector.errors, OSError, RunError)
        self._idle: deque[tuple[int, float, Session]] = deque()
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def one(self) -> Iterator[Session]:
        """Return a connection for one unit of work; after an error it is not used again."""
        try:
            with _alone if self._connector.one_by_one else nullcontext():
                session = self._idle_session() or self._open_session()
                try:
                    yield session
                except BaseException:
                    session.close()
                    raise
                self._give_back(session)
        except self._failures as error:
            raise RunLogError(
                f"the run log {self._connector.display_address} does not answer: {safe_text(error)}"
            ) from None

    def close(self) -> None:
        """Close the connections that are idle."""
        _close_all(self._idle)

    def _open_session(self) -> Session:
        with unwatched():
            return self._connector.open()

    def _idle_session(self) -> Session | None:
        while self._idle:
            try:
                process, since, session = self._idle.pop()
            except IndexError:  # another thread was quicker
                return None
            if process == os.getpid() and self._works(session, since):
                return session
        return None

    def _works(self, session: Session, since: float) -> bool:
        try:
            if time.monotonic() - since > LIVENESS_SECONDS:
                session.query("SELECT 1")
        except self._failures:
            session.close()
            return False
        return True

    def _give_back(self, session: Session) -> None:
        if self._connector.is_server:
            self._idle.append((os.getpid(), time.monotonic(), session))
        else:
            session.close()


def _close_all(idle: deque[tuple[int, float, Session]]) -> None:
    while idle:
        process, _, session = idle.pop()
        if process == os.getpid():  # those of the process that this one was forked from are still in use there
            session.close()
