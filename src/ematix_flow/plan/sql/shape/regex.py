"""The user's regular expressions in the syntax of each dialect's engine; they are read in `declare.pipeline.regex`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline.regex import POSIX_CLASSES, read_pattern
from ematix_flow.plan.sql.dialects import fill

if TYPE_CHECKING:
    from sqlglot import exp

    from ematix_flow.declare.pipeline.regex import PatternToken

_SHORTHANDS = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \t\n\r\f\v"}
_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_REFERENCE = re.compile(r"\\([0-9&\\])")


def replace_matches(value: exp.Expr, pattern: str, replacement: str, flags: str, dialect: str) -> exp.Expr:
    """Return the value with the first match (or all with flag g) replaced."""
    native = spelled(pattern, dialect)
    match dialect:
        case "sqlite":
            return fill("FLOW_REPLACE(x, p, y, n)", dialect, x=value, p=native, y=replacement, n=flags)
        case "postgres" | "duckdb":
            text = _escaped(replacement, whole="\\&" if dialect == "postgres" else "\\0")
            return fill("REGEXP_REPLACE(x, p, y, n)", dialect, x=value, p=native, y=text, n=flags)
        case "mysql":
            native = ("(?i)" if "i" in flags else "(?-i)") + native
            return fill("REGEXP_REPLACE(x, p, y)", dialect, x=value, p=native, y=replacement)
    return _replace_on_spark(value, native, replacement, flags)


def _replace_on_spark(value: exp.Expr, native: str, replacement: str, flags: str) -> exp.Expr:
    before, shift = "", 0
    if "g" not in flags:
        # Java replaces every match; an anchored match that consumes what precedes it is only the first.
        native, before, shift = f"^([\\s\\S]*?)({native})", "$1", 2
    java = before + _java_replacement(replacement, shift)
    return fill("REGEXP_REPLACE(x, p, y)", "spark", x=value, p=("(?i)" if "i" in flags else "") + native, y=java)


def spelled(pattern: str, dialect: str) -> str:
    """Return the pattern with ASCII classes, and `$` and `.` meaning the same in every engine."""
    return "".join(_spelled_token(token, dialect) for token in read_pattern(pattern))


def _spelled_token(token: PatternToken, dialect: str) -> str:
    match token.kind, token.text:
        case "posix", text:
            return POSIX_CLASSES[text[2:-2]]
        case "escape", text if text[1].lower() in _SHORTHANDS:
            inside = _SHORTHANDS[text[1].lower()]
            negated = "^" if text[1].isupper() else ""
            return inside if token.in_class else f"[{negated}{inside}]"
        case "escape", text if text[1] in _CHARACTERS:
            return _CHARACTERS[text[1]]
        case "escape", "\\b" | "\\B" as text if dialect == "postgres":
            return "\\y" if text == "\\b" else "\\Y"
        case "plain", "$" if not token.in_class:
            return "\\Z" if dialect in {"postgres", "sqlite"} else "\\z"
        case "plain", "." if not token.in_class and dialect == "postgres":
            return "[^\n]"
        case "plain", "[" if token.in_class:
            return "\\["
    return token.text


def _escaped(replacement: str, whole: str) -> str:
    """Return the replacement with every backslash that starts no reference doubled."""
    spellings = {"": "\\\\", "&": whole}
    return re.sub(r"\\([0-9&\\]?)", lambda m: spellings.get(m.group(1), m.group()), replacement)


def _java_replacement(replacement: str, shift: int) -> str:
    parts: list[str] = []
    at = 0
    for match in _REFERENCE.finditer(replacement):
        reference = match.group(1)
        group = f"${int(reference.replace('&', '0')) + shift}" if reference != "\\" else "\\\\"
        parts += [_java_literal(replacement[at : match.start()]), group]
        at = match.end()
    return "".join([*parts, _java_literal(replacement[at:])])


def _java_literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("$", "\\$")
