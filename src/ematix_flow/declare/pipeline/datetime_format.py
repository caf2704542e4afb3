"""Reads date and time formats such as `YYYY-MM-DD HH24:MI:SS`; parses no values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ematix_flow.errors import DeclareError

_TOKEN = re.compile(r'YYYY|HH24|MM|DD|MI|SS|MS|US|OF|TZH:TZM|"[^"]*"|T|[^A-Z0-9]', re.IGNORECASE)
_WIDTHS = {"YYYY": 4, "MM": 2, "DD": 2, "HH24": 2, "MI": 2, "SS": 2}
_REFUSED_LITERALS = frozenset("^[]\\'")


class Presence(Enum):
    """Whether a value has a part of variable length."""

    ABSENT = "absent"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class FormatElement:
    """A run of characters at a fixed position: a token such as `MM`, or literal text."""

    text: str
    start: int
    """Counted from 1, as SQL does."""
    is_token: bool

    @property
    def width(self) -> int:
        """Return the number of characters."""
        return _WIDTHS[self.text] if self.is_token else len(self.text)


@dataclass(frozen=True, slots=True)
class DatetimeFormat:
    """A format: parts of fixed width, then perhaps a fraction of a second, then perhaps an offset."""

    elements: tuple[FormatElement, ...]
    fraction: Presence = Presence.ABSENT
    """One to six digits after a point."""
    offset: Presence = Presence.ABSENT
    """`Z`, `+02`, `+0200` or `+02:00`; a value without one is UTC."""
    any_separator: bool = False
    """Whether a `T` between date and time may also be a blank."""

    @property
    def width(self) -> int:
        """Return the characters before the parts of variable length."""
        return sum(p.width for p in self.elements)

    def start(self, token: str) -> int | None:
        """Return the position of a token, or None when the format does not have it."""
        return next((p.start for p in self.elements if p.is_token and p.text == token), None)


def read_format(text: object) -> DatetimeFormat:
    """Return the format that the text spells."""
    if not isinstance(text, str) or not text:
        raise DeclareError(f"a format is text such as 'YYYY-MM-DD', not {text!r}")
    tokens = _tokenize(text)
    fraction = offset = Presence.ABSENT
    if tokens and tokens[-1] in {"OF", "TZH:TZM"}:
        tokens.pop()
        offset = Presence.REQUIRED
    if tokens[-3:] in (["SS", ".", "MS"], ["SS", ".", "US"]):
        del tokens[-2:]
        fraction = Presence.REQUIRED
    elements: list[FormatElement] = []
    for token in tokens:
        start = elements[-1].start + elements[-1].width if elements else 1
        elements.append(FormatElement(token.strip('"'), start, token in _WIDTHS))
    parsed = DatetimeFormat(tuple(elements), fraction, offset)
    _check(text, parsed)
    return parsed


def _tokenize(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or _REFUSED_LITERALS & set(match.group()):
            raise DeclareError(
                f"the format {text!r} is not understood at {text[at:]!r}",
                hint="known parts: YYYY MM DD HH24 MI SS MS US OF, punctuation, T, and text in double quotes",
            )
        token = match.group()
        tokens.append(token if token.startswith('"') else token.upper())
        at = match.end()
    return tokens


def _check(text: str, parsed: DatetimeFormat) -> None:
    tokens = [p.text for p in parsed.elements if p.is_token]
    if len(tokens) != len(set(tokens)):
        raise DeclareError(f"the format {text!r} names a part twice")
    if any(p.text in {"MS", "US", "OF", "TZH:TZM"} for p in parsed.elements):
        raise DeclareError(
            f"the format {text!r} has a fraction or an offset in the middle",
            hint="the fraction follows the seconds as `SS.MS`, the offset stands at the end",
        )
    prerequisites = {"YYYY": (), "DD": ("MM",), "HH24": ("DD",), "MI": ("HH24",), "SS": ("MI",)}
    missing = {n for t in tokens for n in prerequisites.get(t, ()) if n not in tokens}
    if "YYYY" not in tokens or missing:
        raise DeclareError(f"the format {text!r} lacks {', '.join(sorted(missing)) or 'YYYY'}")


_DATE = read_format("YYYY-MM-DD")
_SLASHED = read_format("MM/DD/YYYY")
ISO_DATE = (_DATE,)
ISO_TIMESTAMP = (
    DatetimeFormat(
        read_format("YYYY-MM-DDTHH24:MI:SS").elements, Presence.OPTIONAL, Presence.OPTIONAL, any_separator=True
    ),
    _DATE,
)
DEFAULT_TIMESTAMPS = (*ISO_TIMESTAMP, _SLASHED)
"""ISO with blank or T, with or without fraction and offset, then the two date formats."""
DEFAULT_DATES = (_DATE, read_format("YYYYMMDD"), _SLASHED)
