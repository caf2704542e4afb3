"""Programs that tests kill, and rows that change meanwhile: what streams from logs of databases are tried with."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import ematix_flow
from ematix_flow.declare.connection.registry import connection_from_fields

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import Connection


def begin_program(module: str, *arguments: str, failpoints: str = "", **variables: str) -> subprocess.Popen[bytes]:
    """Begin a module of the tests as a process of its own, with some variables of the environment."""
    code = Path(ematix_flow.__file__).parents[1]
    paths = f"{code}:{Path(__file__).parents[2]}"
    surroundings = {**os.environ, **variables, "PYTHONPATH": paths, "FLOW_FAILPOINTS": failpoints}
    return subprocess.Popen([sys.executable, "-m", module, *arguments], env=surroundings)


def log_at(url: str, **options: Any) -> Connection:
    """Return the connection to the log of a database."""
    kind = "mysql_cdc" if url.startswith("mysql") else "postgres_cdc"
    return connection_from_fields("log", {"kind": kind, "url": url, **options})


class RowChanges(ABC):
    """Changes rows until it is stopped; some of its transactions are long, and some are rolled back."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.transactions = 0

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection."""

    @abstractmethod
    def statement(self) -> tuple[str, tuple[object, ...]]:
        """Return a change and its parameters."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def reach(self, transactions: int) -> None:
        """Come back when so many transactions are committed."""
        while self.transactions < transactions:
            assert self._thread.is_alive(), "the thread that changes rows has failed"
            time.sleep(0.02)

    def _work(self) -> None:
        with closing(self.connect()) as connection:
            while not self._stop.wait(0.02):
                with connection.cursor() as cursor:
                    for _ in range(self.random.choice((1, 1, 2, 5, 30))):
                        cursor.execute(*self.statement())
                self._stop.wait(0.05 if self.random.random() < 0.1 else 0)
                if self.random.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                    self.transactions += 1
