"""A small project that needs neither Java nor a server, and the two ways to call the command on it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.serve.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

SRC = str(Path(__file__).parents[3] / "src")

FLOWS = """
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk


@ematix.connection
class lite:
    kind = "sqlite"
    path = "lite.db"


@ematix.table(schema="main", name="copies")
class Copies:
    id: Annotated[BigInt, pk()]
    name: Text


@ematix.pipeline(target=Copies, target_connection="lite", mode="append", schedule="*/5 * * * *")
def copy(conn):
    print("printed by the user's function")
    return "SELECT 1 AS id, 'a' AS name UNION ALL SELECT 2, 'b'"


@ematix.pipeline(target=Copies, target_connection="lite", mode="append", depends_on=["copy"])
def broken(conn):
    return {}["nothing"]


@ematix.pipeline(target=Copies, target_connection="lite", mode="append")
def missing_table(conn):
    return "SELECT id, name FROM nowhere"


@ematix.transform(target_connection="lite")
def tidy(conn):
    return {"rows": conn.fetch_scalar_int("SELECT count(*) FROM copies")}
"""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command gave back."""

    code: int
    out: str
    err: str


@pytest.fixture
def project() -> Path:
    """Return a working folder with the module `flows`; it is forgotten afterwards."""
    Path("flows.py").write_text(FLOWS, encoding="utf-8")
    return Path.cwd()


@pytest.fixture
def flow(capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Return the command, called in this process."""

    def call(*arguments: str) -> CommandResult:
        code = main(arguments)
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return call


@pytest.fixture
def flow_process() -> Callable[..., CommandResult]:
    """Return the command, called as a process of its own."""

    def call(*arguments: str, **environ: str) -> CommandResult:
        done = subprocess.run(
            [sys.executable, "-m", "ematix_flow", *arguments],
            env={**os.environ, "PYTHONPATH": SRC, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    return call
