"""Refuses words in names of the code for which this project has another one: `make lint` runs it; docs/glossary.md has the words."""

from __future__ import annotations

import io
import keyword
import re
import sys
import tokenize
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "ematix_flow"
INSTEAD = {
    "aim": "PlanRequest",
    "announce": "write_intent",
    "announced": "intent",
    "bend": "coerce",
    "bent": "altered",
    "bookkeeper": "metadata store",
    "buried": "expired",
    "bury": "expire",
    "chore": "maintenance task",
    "door": "client, command",
    "former": "legacy",
    "furthest": "max_offset",
    "glance": "inspect",
    "glancing": "read_only",
    "glimpse": "partial inspection",
    "goal": "end_offset",
    "heed": "cancel_check",
    "lane": "sink",
    "lanes": "sinks",
    "linger": "may_commit_late",
    "lingers": "may_commit_late",
    "mend": "fix, repair",
    "offender": "violation",
    "offenders": "violations",
    "onward": "advanced",
    "outbound": "http client",
    "outbox": "background queue",
    "patiently": "with_retries",
    "rehearsal": "simulation",
    "rehearse": "simulate",
    "rehearsed": "simulated",
    "rehearses": "simulates",
    "road": "context",
    "roads": "contexts",
    "speech": "dialects",
    "standing": "status",
    "stretch": "range, interval",
    "telling": "reporter, emitting",
    "tidy": "clean_up",
    "track": "state",
    "tracks": "states",
    "twins": "duplicates",
    "upkeep": "maintenance",
    "whoever": "the component by its name",
    "wiring": "observers",
}
"""An old word -> the one to use."""

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def main() -> int:
    """Print every name with an old word; return 1 if there is one."""
    found = [line for path in sorted(SOURCE.rglob("*.py")) for line in _old_words(path)]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


def _old_words(path: Path) -> list[str]:
    shown = path.relative_to(SOURCE.parent.parent)
    names = [(word, f"{shown}: {path.stem!r}") for word in _words(path.stem)]
    with tokenize.open(path) as file:
        tokens = list(tokenize.generate_tokens(io.StringIO(file.read()).readline))
    for token in tokens:
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            names += [(word, f"{shown}:{token.start[0]}: {token.string!r}") for word in _words(token.string)]
    return [f"{where}: say {INSTEAD[word]!r} instead of {word!r}" for word, where in names if word in INSTEAD]


def _words(name: str) -> list[str]:
    return [part.lower() for part in _PART.findall(name)]


if __name__ == "__main__":
    raise SystemExit(main())
