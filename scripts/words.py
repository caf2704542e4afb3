"""Refuses words in names of the code and its tests for which this project has another one: `make lint` runs it; docs/glossary.md has the words."""

from __future__ import annotations

import ast
import io
import keyword
import re
import sys
import tokenize
from pathlib import Path

THIS = Path(__file__).resolve()
ROOT = THIS.parent.parent
SOURCES = ("src/ematix_flow", "tests", "scripts", "bench")
DOCUMENTED = ROOT / "tests" / "examples" / "readme"
"""Examples keep the spelling of the documents."""
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

OUTSIDE = frozenset({"mark", "marks", "MarkDecorator", "moments", "places"})
"""Names outside the product that stay: those of pytest and Hypothesis, and a key in the results of the bench."""

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def main() -> int:
    """Print every name with an old word; return 1 if there is one."""
    paths = [path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py"))]
    complaints = [line for path in paths if not path.is_relative_to(DOCUMENTED) for line in _complaints(path)]
    sys.stdout.writelines(f"{line}\n" for line in complaints)
    return 1 if complaints else 0


def _complaints(path: Path) -> list[str]:
    shown, text = path.relative_to(ROOT), path.read_text(encoding="utf-8")
    columns = set() if shown.parts[0] == "src" else _columns(text)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    used = [token for token in tokens if token.type == tokenize.NAME and token.start not in columns]
    names = [
        (one.string, f"{shown}:{one.start[0]}: {one.string!r}") for one in used if not _may_stay(one.string, shown)
    ]
    if path != THIS:  # which is named after what it is about
        names.append((path.stem, f"{shown}: {path.stem!r}"))
    parts = [(part, where) for name, where in names for part in _parts(name) if part in INSTEAD]
    return [f"{where}: say {INSTEAD[part]!r} instead of {part!r}" for part, where in parts]


def _may_stay(name: str, shown: Path) -> bool:
    if keyword.iskeyword(name) or name in STAYS:
        return True
    # The name of a test is its sentence; the name of its file is checked like any other.
    return shown.parts[0] != "src" and (name in OUTSIDE or name.startswith("test_"))


def _columns(text: str) -> set[tuple[int, int]]:
    """Return where columns of declared tables are named: in classes that are no dataclasses; data keeps its names."""
    declared = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and not any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    ]
    fields = [field.target for node in declared for field in node.body if isinstance(field, ast.AnnAssign)]
    return {(field.lineno, field.col_offset) for field in fields}


def _parts(name: str) -> list[str]:
    return [part.lower() for part in _PART.findall(name)]


if __name__ == "__main__":
    raise SystemExit(main())
