"""Tells people what is fetched when Spark resolves Java packages, and keeps the rest of its talk for when it fails."""

from __future__ import annotations

import re
import sys
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_RESOLVING = re.compile(
    r"^(?:\s|::|Ivy |The jars for |https?://\S+ added as|\S+#\S+ added as|downloading |:: |confs:|$)|^\t|\[SUCCESSFUL|^WARNINGS?:"
)
_DOWNLOAD = re.compile(r"^downloading \S*/([^/\s]+\.jar)")


def relay_talk(process: subprocess.Popen[bytes], packages: str) -> None:
    """Pass on what Java says, in a thread of its own; the talk of the resolver becomes a line per file that is fetched."""
    assert process.stdout is not None  # noqa: S101 - started with a pipe
    if packages:
        print(f"java packages: {packages.replace(',', ', ')}", file=sys.stderr)  # noqa: T201 - for the person who waits
    threading.Thread(target=_relay, args=(process, process.stdout), name="flow-java-talk", daemon=True).start()


def _relay(process: subprocess.Popen[bytes], talk: IO[bytes]) -> None:
    kept: list[str] = []
    with talk:
        for line in talk:
            text = line.decode(errors="replace")
            fetched = _DOWNLOAD.match(text)
            if fetched:
                print(f"fetching {fetched[1]}", file=sys.stderr)  # noqa: T201 - for the person who waits
            if _RESOLVING.match(text):
                kept.append(text)
            else:
                sys.stderr.write(text)
    if process.wait() and "UNRESOLVED" in "".join(kept):
        sys.stderr.writelines(kept)
