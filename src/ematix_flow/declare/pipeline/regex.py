r"""Reads regular expressions that mean the same in every database; matches nothing itself.

The common ground: literals, classes, groups, `|`, anchors, quantifiers, `\d \w \s \b` (ASCII), look-around. Refused:
references back into the pattern, named groups and inline flags, which some engine lacks or reads differently.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ematix_flow.errors import DeclareError

_TOKEN = re.compile(
    r"""(?P<posix>\[:[a-z]+:\])
      | (?P<escape>\\.)
      | (?P<group>\(\?(?:<=|<!|.)?)
      | (?P<lazy>[*+?}]\?)
      | (?P<possessive>[*+?}]\+)
      | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!")
_ESCAPES = frozenset("dDwWsSbBntrf")
POSIX_CLASSES = {
    "alpha": "A-Za-z", "digit": "0-9", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z", "xdigit": "0-9A-Fa-f",
    "space": " \t\n\r\f\v", "blank": " \t", "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PatternToken:
    """One element of a pattern and whether it is inside `[...]`."""

    kind: str
    text: str
    in_class: bool


def read_pattern(pattern: str) -> tuple[PatternToken, ...]:
    """Return the elements of a pattern; unknown constructs are refused."""
    tokens: list[PatternToken] = []
    in_class = False
    class_start = 0
    for match in _TOKEN.finditer(pattern):
        kind, text = str(match.lastgroup), match.group()
        if in_class and kind in {"lazy", "possessive", "group"}:
            tokens.extend(PatternToken("plain", char, in_class=True) for char in text)
            continue
        tokens.append(PatternToken(kind, text, in_class))
        _refuse(pattern, tokens[-1])
        if kind == "plain" and text == "[" and not in_class:
            in_class, class_start = True, match.end() + (pattern[match.end() : match.end() + 1] == "^")
        elif kind == "plain" and text == "]" and match.start() > class_start:
            in_class = False
    return tuple(tokens)


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that is wrong or does not mean the same everywhere."""
    read_pattern(pattern)
    try:
        re.compile(_without_posix(pattern))
    except re.error as error:
        raise DeclareError(f"the pattern {pattern!r} is wrong: {error}") from error


def has_lookaround(pattern: str) -> bool:
    """Return whether the pattern looks ahead or behind."""
    return any(t.kind == "group" and t.text != "(?:" for t in read_pattern(pattern))


def has_lazy(pattern: str) -> bool:
    """Return whether a quantifier of the pattern takes as little as possible."""
    return any(t.kind == "lazy" for t in read_pattern(pattern))


def _refuse(pattern: str, token: PatternToken) -> None:
    bad_group = token.kind == "group" and token.text not in _GROUPS
    bad_escape = token.kind == "escape" and token.text[1].isalnum() and token.text[1] not in _ESCAPES
    bad_inside = token.kind == "escape" and token.in_class and token.text[1] in "DWSbB"
    bad_posix = token.kind == "posix" and (not token.in_class or token.text[2:-2] not in POSIX_CLASSES)
    if bad_group or bad_escape or bad_inside or bad_posix or token.kind == "possessive":
        raise DeclareError(
            f"the pattern {pattern!r} uses {token.text!r}, which databases read differently",
            hint="use classes, groups, quantifiers and look-around; flags= holds the options",
        )


def _without_posix(pattern: str) -> str:
    return "".join(POSIX_CLASSES[t.text[2:-2]] if t.kind == "posix" else t.text for t in read_pattern(pattern))
