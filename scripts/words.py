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
    "ask": "request, query, call",
    "asked": "requested",
    "asking": "requesting",
    "asks": "requests, queries",
    "bend": "coerce",
    "bent": "altered",
    "beside": "metadata columns",
    "book": "store, metadata",
    "bookkeeper": "metadata store",
    "bookkeeping": "metadata",
    "books": "metadata",
    "buried": "expired",
    "bury": "expire",
    "chore": "maintenance task",
    "door": "client, command",
    "elsewhere": "by its name",
    "former": "legacy",
    "found": "result, row, entry, match",
    "fresh": "new",
    "furthest": "max_offset",
    "glance": "inspect",
    "glancing": "read_only",
    "glimpse": "partial inspection",
    "goal": "end_offset",
    "heed": "cancel_check",
    "here": "local, in_process",
    "keeper": "runner, store",
    "kept": "retained, stack",
    "lane": "sink",
    "lanes": "sinks",
    "lies": "location",
    "linger": "may_commit_late",
    "lingers": "may_commit_late",
    "look": "inspect",
    "looked": "inspected",
    "looking": "inspecting",
    "looks": "read_only",
    "made": "created, built",
    "make": "create, build",
    "makes": "creates",
    "making": "creating",
    "mark": "id, watermark",
    "marks": "framework columns",
    "mend": "fix, repair",
    "moment": "timestamp, datetime_format",
    "moments": "timestamps",
    "need": "requirement",
    "needs": "requires",
    "news": "result, update",
    "nobody": "the component by its name",
    "observed": "inspected",
    "observing": "inspecting",
    "offender": "violation",
    "offenders": "violations",
    "onward": "advanced",
    "outbound": "http client",
    "outbox": "background queue",
    "patience": "deadline, policy",
    "patiently": "with_retries",
    "phrases": "dialect functions",
    "piece": "partition, task",
    "pieces": "partitions, tasks",
    "place": "location, table_name, address",
    "places": "locations",
    "reaching": "client",
    "rehearsal": "simulation",
    "rehearse": "simulate",
    "rehearsed": "simulated",
    "rehearses": "simulates",
    "road": "context",
    "roads": "contexts",
    "said": "response, message",
    "say": "report, format",
    "says": "message",
    "seen": "snapshot, inspected",
    "settle": "resolve, commit_offsets",
    "settled": "resolved",
    "settles": "resolves",
    "somebody": "the component by its name",
    "speech": "dialects",
    "standing": "status",
    "stands": "position",
    "stretch": "range, interval",
    "taken": "claimed",
    "tell": "emit, report, format",
    "telling": "reporter, emitting",
    "tells": "reports",
    "tidy": "clean_up",
    "told": "reported, translated",
    "track": "state",
    "tracks": "states",
    "twin": "duplicate",
    "twins": "duplicates",
    "upkeep": "maintenance",
    "wanted": "requested, required, definition",
    "wants": "requires",
    "way": "path, method",
    "ways": "paths",
    "whoever": "the component by its name",
    "wiring": "observers",
    "word": "name, token",
    "words": "names, tokens",
}
"""An old word -> the one to use."""

STAYS = frozenset(
    {
        # Fields of stored plans, of the run log and of dead letters, which keep the names under which they are written.
        *("asked_at", "asked_by", "made_at", "place", "taken_by", "tell", "tells", "wanted"),
        # Names of others.
        *("FOUND_ROWS", "FileNotFoundError", "ModuleNotFoundError", "NOT_FOUND", "NotFound", "PackageNotFoundError"),
        *("ProfileNotFound", "TableNotFoundError", "ZoneInfoNotFoundError", "make_conninfo", "make_context"),
        # Words of the field that only contain one.
        *("_not_found", "_under_way"),
    }
)
"""Names that have an old word for a reason."""

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
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string) and token.string not in STAYS:
            names += [(word, f"{shown}:{token.start[0]}: {token.string!r}") for word in _words(token.string)]
    return [f"{where}: say {INSTEAD[word]!r} instead of {word!r}" for word, where in names if word in INSTEAD]


def _words(name: str) -> list[str]:
    return [part.lower() for part in _PART.findall(name)]


if __name__ == "__main__":
    raise SystemExit(main())
