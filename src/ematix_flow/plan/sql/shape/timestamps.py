"""Text to points in time: one regular expression per format holds the whole calendar, so no cast can fail.

A text that matches is cut into pieces of fixed width, put together in ISO order and cast; an offset is subtracted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.declare.pipeline.datetime_format import Part
from ematix_flow.plan.sql.dialects import case, number, say

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.datetime_format import MomentFormat

_LEAP_TENS = "(0[48]|[2468][048]|[13579][26])"
_YEAR = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9][0-9]|[1-9][0-9][0-9][0-9])"
_LEAP_YEAR = f"([0-9][0-9]{_LEAP_TENS}|{_LEAP_TENS}00)"
_CALENDAR = (
    {"YYYY": _YEAR, "MM": "(0[13578]|1[02])", "DD": "(0[1-9]|[12][0-9]|3[01])"},
    {"YYYY": _YEAR, "MM": "(0[469]|11)", "DD": "(0[1-9]|[12][0-9]|30)"},
    {"YYYY": _YEAR, "MM": "02", "DD": "(0[1-9]|1[0-9]|2[0-8])"},
    {"YYYY": _LEAP_YEAR, "MM": "02", "DD": "29"},
)
_MONTHS = {"YYYY": _YEAR, "MM": "(0[1-9]|1[0-2])"}
_CLOCK = {"HH24": "([01][0-9]|2[0-3])", "MI": "[0-5][0-9]", "SS": "[0-5][0-9]"}
_FRACTION = {Part.ABSENT: "", Part.OPTIONAL: "([.][0-9]{1,6})?", Part.REQUIRED: "[.][0-9]{1,6}"}
_ZONE = "(Z|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)"
_OFFSET = {Part.ABSENT: "", Part.OPTIONAL: f"{_ZONE}?", Part.REQUIRED: _ZONE}

_ZEROS = {6: "00:00", 5: "0000", 3: "00"}
"""An offset of nothing, by the width that it has with its sign."""

_ISO_PIECES = [["YYYY", "-", "MM", "-", "DD", between, "HH24", ":", "MI", ":", "SS"] for between in ("T", " ")]


def pattern_of(accepted: MomentFormat) -> str:
    """Return the regular expression of exactly the valid values of a format."""
    tokens = [i for i, p in enumerate(accepted.pieces) if p.is_token and p.text in _CALENDAR[0]]
    first, last = tokens[0], tokens[-1]
    calendars = _CALENDAR if accepted.start("DD") else (_MONTHS,)
    days = [[_piece(accepted, i, calendar) for i in range(first, last + 1)] for calendar in calendars]
    before = "".join(_piece(accepted, i, {}) for i in range(first))
    after = "".join(_piece(accepted, i, {}) for i in range(last + 1, len(accepted.pieces)))
    dates = "|".join([_shared(days[:3]), *("".join(leap) for leap in days[3:])])
    return f"^{before}({dates}){after}{_FRACTION[accepted.fraction]}{_OFFSET[accepted.offset]}$"


def _shared(alternatives: list[list[str]]) -> str:
    """Return the alternatives as one expression, with what they begin and end with written once."""
    same = [len(set(pieces)) == 1 for pieces in zip(*alternatives, strict=True)]
    if all(same):
        return "".join(alternatives[0])
    start, stop = same.index(False), len(same) - same[::-1].index(False)
    middle = "|".join("".join(pieces[start:stop]) for pieces in alternatives)
    return f"{''.join(alternatives[0][:start])}({middle}){''.join(alternatives[0][stop:])}"


def moment(text: exp.Expr, formats: tuple[MomentFormat, ...], dialect: str) -> exp.Expr:
    """Return the UTC time without zone that the text means in the first format that fits, else NULL."""
    return case(*((_fits(text, f, dialect), _time(text, f, dialect)) for f in formats))


def day(text: exp.Expr, formats: tuple[MomentFormat, ...], dialect: str) -> exp.Expr:
    """Return the calendar day as written, in the first format that fits, else NULL."""
    branches = ((_fits(text, f, dialect), say("day", dialect, x=_date_text(text, f, dialect))) for f in formats)
    return case(*branches)


def _fits(text: exp.Expr, accepted: MomentFormat, dialect: str) -> exp.Expr:
    return matches(text, pattern_of(accepted), dialect)


def matches(text: exp.Expr, pattern: str, dialect: str) -> exp.Expr:
    """Return the condition that one of our own patterns is found, with case."""
    if dialect == "mysql":
        pattern = f"(?-i){pattern}"
    if pattern.endswith("$"):
        # `$` also matches before a newline at the end in most engines.
        pattern = pattern[:-1] + ("\\Z" if dialect in {"postgres", "sqlite"} else "\\z")
    return say("matches", dialect, x=text, p=pattern)


def _piece(accepted: MomentFormat, index: int, calendar: dict[str, str]) -> str:
    piece = accepted.pieces[index]
    if piece.is_token:
        return {**_CLOCK, **calendar}[piece.text]
    if piece.text == "T" and accepted.any_separator:
        return "[T ]"
    return "".join(c if c.isalnum() else f"[{c}]" for c in piece.text)


def _time(text: exp.Expr, accepted: MomentFormat, dialect: str) -> exp.Expr:
    if accepted.offset is Part.ABSENT:
        return _unshifted(text, accepted, 0, dialect)
    zoned = [(_sign(text, at, dialect), _shifted(text, accepted, at, dialect)) for at in (6, 5, 3)]
    zulu = exp.EQ(this=_tail(text, 1, 1, dialect), expression=exp.Literal.string("Z"))
    return case(
        (zulu, _unshifted(text, accepted, 1, dialect)),
        *((exp.In(this=sign, expressions=_signs()), value) for sign, value in zoned),
        otherwise=_unshifted(text, accepted, 0, dialect),
    )


def _unshifted(text: exp.Expr, accepted: MomentFormat, tail: int, dialect: str) -> exp.Expr:
    """Return the time of a text in UTC; DuckDB reads ISO as it is, other dialects get it without its T and Z."""
    whole = dialect == "duckdb" and [p.text for p in accepted.pieces] in _ISO_PIECES
    return say("naive", dialect, x=text if whole else _main(text, accepted, tail, dialect))


def _shifted(text: exp.Expr, accepted: MomentFormat, width: int, dialect: str) -> exp.Expr:
    """Return the time of a text whose offset has `width` characters; the calendar's two ends are shifted by nothing only."""
    hours = say("small", dialect, x=_tail(text, width - 1, 2, dialect))
    minutes = number(0) if width == 3 else say("small", dialect, x=_tail(text, 2, 2, dialect))  # noqa: PLR2004 - `+02`
    east = exp.Add(this=exp.Mul(this=hours, expression=number(60)), expression=minutes)
    west = exp.EQ(this=_sign(text, width, dialect), expression=exp.Literal.string("-"))
    signed = case((west, exp.Neg(this=exp.paren(east.copy()))), otherwise=east)
    time = say("naive", dialect, x=_main(text, accepted, width, dialect))
    edges = [exp.Literal.string(edge) for edge in ("0001-01-01", "9999-12-31")]
    inside = exp.Not(this=exp.In(this=_date_text(text, accepted, dialect), expressions=edges))
    zero = exp.EQ(this=_tail(text, width - 1, width - 1, dialect), expression=exp.Literal.string(_ZEROS[width]))
    return case((exp.or_(inside, zero), say("earlier", dialect, x=time, n=signed)))


def _main(text: exp.Expr, accepted: MomentFormat, tail: int, dialect: str) -> exp.Expr:
    """Return `YYYY-MM-DD HH:MM:SS` with the fraction, as the text has it before an offset of `tail` characters."""
    whole = say(
        "join",
        dialect,
        x=say("join", dialect, x=_date_text(text, accepted, dialect), y=" "),
        y=_clock_text(text, accepted, dialect),
    )
    if accepted.fraction is Part.ABSENT:
        return whole
    rest = exp.Sub(this=say("length", dialect, x=text), expression=number(accepted.width + tail))
    return say("join", dialect, x=whole, y=say("part", dialect, x=text, n=accepted.width + 1, y=rest))


def _date_text(text: exp.Expr, accepted: MomentFormat, dialect: str) -> exp.Expr:
    year, month, date = (accepted.start(t) for t in ("YYYY", "MM", "DD"))
    words = [p.text for p in accepted.pieces]
    if words[:5] == ["YYYY", "-", "MM", "-", "DD"]:
        return say("part", dialect, x=text, n=1, y=10)
    joined = _cut(text, year, 4, "0001", dialect)
    for at in (month, date):
        joined = say("join", dialect, x=say("join", dialect, x=joined, y="-"), y=_cut(text, at, 2, "01", dialect))
    return joined


def _clock_text(text: exp.Expr, accepted: MomentFormat, dialect: str) -> exp.Expr:
    hour, minute, second = (accepted.start(t) for t in ("HH24", "MI", "SS"))
    if hour is None:
        return exp.Literal.string("00:00:00")
    words = "".join(p.text for p in accepted.pieces)
    if "HH24:MI:SS" in words:
        return say("part", dialect, x=text, n=hour, y=8)
    joined = _cut(text, hour, 2, "00", dialect)
    for at in (minute, second):
        joined = say("join", dialect, x=say("join", dialect, x=joined, y=":"), y=_cut(text, at, 2, "00", dialect))
    return joined


def _cut(text: exp.Expr, at: int | None, width: int, missing: str, dialect: str) -> exp.Expr:
    return exp.Literal.string(missing) if at is None else say("part", dialect, x=text, n=at, y=width)


def _tail(text: exp.Expr, from_end: int, width: int, dialect: str) -> exp.Expr:
    """Return `width` characters that begin `from_end` characters before the end."""
    start = exp.Sub(this=say("length", dialect, x=text), expression=number(from_end - 1))
    return say("part", dialect, x=text, n=start, y=width)


def _sign(text: exp.Expr, width: int, dialect: str) -> exp.Expr:
    return _tail(text, width, 1, dialect)


def _signs() -> list[exp.Expr]:
    return [exp.Literal.string("+"), exp.Literal.string("-")]
