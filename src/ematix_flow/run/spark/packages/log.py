"""Prints messages of Java that are for people and what is fetched.

Output of the resolver and logs of Java are stored for when something fails.
"""

from __future__ import annotations

import re
import sys
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from ematix_flow.details import keep_detail
from ematix_flow.run.spark.log_conf import DETAIL_PREFIX

if TYPE_CHECKING:
    import subprocess

_RESOLVING = re.compile(
    r"^(?:\s|::|Ivy |The jars for |https?://\S+ added as|\S+#\S+ added as|downloading |:: |confs:|$)|^\t|\[SUCCESSFUL|^WARNINGS?:"
)
_DOWNLOAD = re.compile(r"^downloading \S*/([^/\s]+\.jar)")
_COUNTED = re.compile(r"^(?:Deleted \d+ files and|Found \d+ files .*and) directories in a total of \d+")
"""What Delta prints about each clean-up, which is of no use to people."""


def relay_talk(process: subprocess.Popen[bytes], packages: str) -> threading.Thread:
    """Pass on what Java prints, in a thread of its own; the resolver's output becomes a line per fetched file."""
    assert process.stdout is not None  # noqa: S101 - started with a pipe
    if packages:
        print(f"java packages: {packages.replace(',', ', ')}", file=sys.stderr)  # noqa: T201 - for the person who waits
    thread = threading.Thread(
        target=_relay, args=(process, process.stdout, packages), name="flow-java-talk", daemon=True
    )
    thread.start()
    return thread


def _relay(process: subprocess.Popen[bytes], talk: IO[bytes], packages: str) -> None:
    buffered: list[str] = []
    with talk:
        for line in talk:
            text = line.decode(errors="replace")
            fetched = _DOWNLOAD.match(text)
            if fetched:
                print(f"fetching {fetched[1]}", file=sys.stderr)  # noqa: T201 - for the person who waits
            if text.startswith(DETAIL_PREFIX) or _COUNTED.match(text):
                keep_detail(text.lstrip(DETAIL_PREFIX))
            elif packages and _RESOLVING.match(text):
                buffered.append(text)
            else:
                with suppress(ValueError):  # a stderr that was closed
                    sys.stderr.write(text)
    if process.wait() and "UNRESOLVED" in "".join(buffered):
        sys.stderr.writelines(buffered)
