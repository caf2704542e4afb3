"""Reads date and time formats such as `YYYY-MM-DD HH24:MI:SS`; parses no values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ematix_flow.errors import DeclareError

_TOKEN = re.compile(r'YYYY|HH24|MM|DD|MI|SS|MS|US|OF|TZH:TZM|"[^"]*"|T|[^A-Z0-9]', re.IGNORECASE)
_WIDTHS = {"YYYY": 4, "MM": 2, "DD": 2, "HH24": 2, "MI": 2, "SS": 2}
_REFUSED_LITERALS = frozenset("^[]\\'")


class Part(Enum):
    """Whether a value has a part of variable length."""

    ABSENT = "absent"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of characters at a fixed place: a token such as `MM`, or literal text."""

    text: str
    start: int
    """Counted from 1, as SQL does."""
    is_token: bool

    @property
    def width(self) -> int:
        """Return the number of characters."""
        return _WIDTHS[self.text] if self.is_token else len(self.text)


@dataclass(frozen=True, slots=True)
class MomentFormat:
    """A format: pieces of fixed width, then perhaps a fraction of a second, then perhaps an offset."""

    pieces: tuple[Piece, ...]
    fraction: Part = Part.ABSENT
    """One to six digits after a point."""
    offset: Part = Part.ABSENT
    """`Z`, `+02`, `+0200` or `+02:00`; a value without one is UTC."""
    any_separator: bool = False
    """Whether a `T` between date and time may also be a blank."""

    @property
    def width(self) -> int:
        """Return the characters before the parts of variable length."""
        return sum(p.width for p in self.pieces)

    def start(self, token: str) -> int | None:
        """Return the place of a token, or None when the format does not have it."""
        return next((p.start for p in self.pieces if p.is_token and p.text == token), None)


def read_format(text: object) -> MomentFormat:
    """Return the format that the text spells."""
    if not isinstance(text, str) or not text:
        raise DeclareError(f"a format is text such as 'YYYY-MM-DD', not {text!r}")
    words = _words(text)
    fraction = offset = Part.ABSENT
    if words and words[-1] in {"OF", "TZH:TZM"}:
        words.pop()
        offset = Part.REQUIRED
    if words[-3:] in (["SS", ".", "MS"], ["SS", ".", "US"]):
        del words[-2:]
        fraction = Part.REQUIRED
    pieces: list[Piece] = []
    for word in words:
        start = pieces[-1].start + pieces[-1].width if pieces else 1
        pieces.append(Piece(word.strip('"'), start, word in _WIDTHS))
    found = MomentFormat(tuple(pieces), fraction, offset)
    _check(text, found)
    return found


def _words(text: str) -> list[str]:
    words: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or _REFUSED_LITERALS & set(match.group()):
            raise DeclareError(
                f"the format {text!r} is not understood at {text[at:]!r}",
                hint="known parts: YYYY MM DD HH24 MI SS MS US OF, punctuation, T, and text in double quotes",
            )
        word = match.group()
        words.append(word if word.startswith('"') else word.upper())
        at = match.end()
    return words


def _check(text: str, found: MomentFormat) -> None:
    tokens = [p.text for p in found.pieces if p.is_token]
    if len(tokens) != len(set(tokens)):
        raise DeclareError(f"the format {text!r} names a part twice")
    if any(p.text in {"MS", "US", "OF", "TZH:TZM"} for p in found.pieces):
        raise DeclareError(
            f"the format {text!r} has a fraction or an offset in the middle",
            hint="the fraction follows the seconds as `SS.MS`, the offset stands at the end",
        )
    needed = {"YYYY": (), "DD": ("MM",), "HH24": ("DD",), "MI": ("HH24",), "SS": ("MI",)}
    missing = {n for t in tokens for n in needed.get(t, ()) if n not in tokens}
    if "YYYY" not in tokens or missing:
        raise DeclareError(f"the format {text!r} lacks {', '.join(sorted(missing)) or 'YYYY'}")


_DATE = read_format("YYYY-MM-DD")
_SLASHED = read_format("MM/DD/YYYY")
ISO_DATE = (_DATE,)
ISO_TIMESTAMP = (
    MomentFormat(read_format("YYYY-MM-DDTHH24:MI:SS").pieces, Part.OPTIONAL, Part.OPTIONAL, any_separator=True),
    _DATE,
)
DEFAULT_TIMESTAMPS = (*ISO_TIMESTAMP, _SLASHED)
"""ISO with blank or T, with or without fraction and offset, then the two date formats."""
DEFAULT_DATES = (_DATE, read_format("YYYYMMDD"), _SLASHED)
