"""Text to points in time: one regular expression per format holds the whole calendar, so no cast can fail.

A text that matches is cut into parts of fixed width, put together in ISO order and cast; an offset is subtracted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.declare.pipeline.datetime_format import Presence
from ematix_flow.plan.sql.dialects import case, number, sql_func

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.datetime_format import DatetimeFormat

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
_FRACTION = {Presence.ABSENT: "", Presence.OPTIONAL: "([.][0-9]{1,6})?", Presence.REQUIRED: "[.][0-9]{1,6}"}
_ZONE = "(Z|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)"
_OFFSET = {Presence.ABSENT: "", Presence.OPTIONAL: f"{_ZONE}?", Presence.REQUIRED: _ZONE}

_ZEROS = {6: "00:00", 5: "0000", 3: "00"}
"""An offset of nothing, by the width that it has with its sign."""

_ISO_TOKENS = [["YYYY", "-", "MM", "-", "DD", between, "HH24", ":", "MI", ":", "SS"] for between in ("T", " ")]


def pattern_of(accepted: DatetimeFormat) -> str:
    """Return the regular expression of exactly the valid values of a format."""
    tokens = [i for i, p in enumerate(accepted.elements) if p.is_token and p.text in _CALENDAR[0]]
    first, last = tokens[0], tokens[-1]
    calendars = _CALENDAR if accepted.start("DD") else (_MONTHS,)
    days = [[_token_pattern(accepted, i, calendar) for i in range(first, last + 1)] for calendar in calendars]
    before = "".join(_token_pattern(accepted, i, {}) for i in range(first))
    after = "".join(_token_pattern(accepted, i, {}) for i in range(last + 1, len(accepted.elements)))
    dates = "|".join([_shared(days[:3]), *("".join(leap) for leap in days[3:])])
    return f"^{before}({dates}){after}{_FRACTION[accepted.fraction]}{_OFFSET[accepted.offset]}$"


def _shared(alternatives: list[list[str]]) -> str:
    """Return the alternatives as one expression, with what they begin and end with written once."""
    same = [len(set(segments)) == 1 for segments in zip(*alternatives, strict=True)]
    if all(same):
        return "".join(alternatives[0])
    start, stop = same.index(False), len(same) - same[::-1].index(False)
    middle = "|".join("".join(segments[start:stop]) for segments in alternatives)
    return f"{''.join(alternatives[0][:start])}({middle}){''.join(alternatives[0][stop:])}"


def parse_timestamp(text: exp.Expr, formats: tuple[DatetimeFormat, ...], dialect: str) -> exp.Expr:
    """Return the UTC time without zone that the text means in the first format that fits, else NULL."""
    return case(*((_fits(text, f, dialect), _time(text, f, dialect)) for f in formats))


def day(text: exp.Expr, formats: tuple[DatetimeFormat, ...], dialect: str) -> exp.Expr:
    """Return the calendar day as written, in the first format that fits, else NULL."""
    branches = ((_fits(text, f, dialect), sql_func("day", dialect, x=_date_text(text, f, dialect))) for f in formats)
    return case(*branches)


def _fits(text: exp.Expr, accepted: DatetimeFormat, dialect: str) -> exp.Expr:
    return matches(text, pattern_of(accepted), dialect)


def matches(text: exp.Expr, pattern: str, dialect: str) -> exp.Expr:
    """Return the condition that one of our own patterns matches, case-sensitive."""
    if dialect == "mysql":
        pattern = f"(?-i){pattern}"
    if pattern.endswith("$"):
        # `$` also matches before a newline at the end in most engines.
        pattern = pattern[:-1] + ("\\Z" if dialect in {"postgres", "sqlite"} else "\\z")
    return sql_func("matches", dialect, x=text, p=pattern)


def _token_pattern(accepted: DatetimeFormat, index: int, calendar: dict[str, str]) -> str:
    token = accepted.elements[index]
    if token.is_token:
        return {**_CLOCK, **calendar}[token.text]
    if token.text == "T" and accepted.any_separator:
        return "[T ]"
    return "".join(c if c.isalnum() else f"[{c}]" for c in token.text)


def _time(text: exp.Expr, accepted: DatetimeFormat, dialect: str) -> exp.Expr:
    if accepted.offset is Presence.ABSENT:
        return _unshifted(text, accepted, 0, dialect)
    zoned = [(_sign(text, at, dialect), _shifted(text, accepted, at, dialect)) for at in (6, 5, 3)]
    zulu = exp.EQ(this=_tail(text, 1, 1, dialect), expression=exp.Literal.string("Z"))
    return case(
        (zulu, _unshifted(text, accepted, 1, dialect)),
        *((exp.In(this=sign, expressions=_signs()), value) for sign, value in zoned),
        otherwise=_unshifted(text, accepted, 0, dialect),
    )


def _unshifted(text: exp.Expr, accepted: DatetimeFormat, tail: int, dialect: str) -> exp.Expr:
    """Return the time of a text in UTC; DuckDB reads ISO as it is, other dialects get it without its T and Z."""
    whole = dialect == "duckdb" and [p.text for p in accepted.elements] in _ISO_TOKENS
    return sql_func("naive", dialect, x=text if whole else _main(text, accepted, tail, dialect))


def _shifted(text: exp.Expr, accepted: DatetimeFormat, width: int, dialect: str) -> exp.Expr:
    """Return the time of a text whose offset has `width` characters; the calendar's two ends are shifted by nothing only."""
    hours = sql_func("small", dialect, x=_tail(text, width - 1, 2, dialect))
    minutes = number(0) if width == 3 else sql_func("small", dialect, x=_tail(text, 2, 2, dialect))  # noqa: PLR2004 - `+02`
    east = exp.Add(this=exp.Mul(this=hours, expression=number(60)), expression=minutes)
    west = exp.EQ(this=_sign(text, width, dialect), expression=exp.Literal.string("-"))
    signed = case((west, exp.Neg(this=exp.paren(east.copy()))), otherwise=east)
    time = sql_func("naive", dialect, x=_main(text, accepted, width, dialect))
    edges = [exp.Literal.string(edge) for edge in ("0001-01-01", "9999-12-31")]
    inside = exp.Not(this=exp.In(this=_date_text(text, accepted, dialect), expressions=edges))
    zero = exp.EQ(this=_tail(text, width - 1, width - 1, dialect), expression=exp.Literal.string(_ZEROS[width]))
    return case((exp.or_(inside, zero), sql_func("earlier", dialect, x=time, n=signed)))


def _main(text: exp.Expr, accepted: DatetimeFormat, tail: int, dialect: str) -> exp.Expr:
    """Return `YYYY-MM-DD HH:MM:SS` with the fraction, as the text has it before an offset of `tail` characters."""
    whole = sql_func(
        "join",
        dialect,
        x=sql_func("join", dialect, x=_date_text(text, accepted, dialect), y=" "),
        y=_clock_text(text, accepted, dialect),
    )
    if accepted.fraction is Presence.ABSENT:
        return whole
    remaining = exp.Sub(this=sql_func("length", dialect, x=text), expression=number(accepted.width + tail))
    return sql_func("join", dialect, x=whole, y=sql_func("part", dialect, x=text, n=accepted.width + 1, y=remaining))


def _date_text(text: exp.Expr, accepted: DatetimeFormat, dialect: str) -> exp.Expr:
    year, month, date = (accepted.start(t) for t in ("YYYY", "MM", "DD"))
    tokens = [p.text for p in accepted.elements]
    if tokens[:5] == ["YYYY", "-", "MM", "-", "DD"]:
        return sql_func("part", dialect, x=text, n=1, y=10)
    joined = _cut(text, year, 4, "0001", dialect)
    for at in (month, date):
        joined = sql_func(
            "join", dialect, x=sql_func("join", dialect, x=joined, y="-"), y=_cut(text, at, 2, "01", dialect)
        )
    return joined


def _clock_text(text: exp.Expr, accepted: DatetimeFormat, dialect: str) -> exp.Expr:
    hour, minute, second = (accepted.start(t) for t in ("HH24", "MI", "SS"))
    if hour is None:
        return exp.Literal.string("00:00:00")
    tokens = "".join(p.text for p in accepted.elements)
    if "HH24:MI:SS" in tokens:
        return sql_func("part", dialect, x=text, n=hour, y=8)
    joined = _cut(text, hour, 2, "00", dialect)
    for at in (minute, second):
        joined = sql_func(
            "join", dialect, x=sql_func("join", dialect, x=joined, y=":"), y=_cut(text, at, 2, "00", dialect)
        )
    return joined


def _cut(text: exp.Expr, at: int | None, width: int, missing: str, dialect: str) -> exp.Expr:
    return exp.Literal.string(missing) if at is None else sql_func("part", dialect, x=text, n=at, y=width)


def _tail(text: exp.Expr, from_end: int, width: int, dialect: str) -> exp.Expr:
    """Return `width` characters that begin `from_end` characters before the end."""
    start = exp.Sub(this=sql_func("length", dialect, x=text), expression=number(from_end - 1))
    return sql_func("part", dialect, x=text, n=start, y=width)


def _sign(text: exp.Expr, width: int, dialect: str) -> exp.Expr:
    return _tail(text, width, 1, dialect)


def _signs() -> list[exp.Expr]:
    return [exp.Literal.string("+"), exp.Literal.string("-")]
