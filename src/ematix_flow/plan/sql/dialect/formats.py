"""Formats of times as Java's, which Spark uses; a part that is not surely the same is refused."""

from __future__ import annotations

import re

from sqlglot import exp, parse_one

from ematix_flow.plan.sql.dialect.refusal import refusal

_STRFTIME = {
    "%Y": "yyyy", "%y": "yy", "%m": "MM", "%-m": "M", "%d": "dd", "%-d": "d", "%j": "DDD", "%-j": "D",
    "%H": "HH", "%-H": "H", "%I": "hh", "%-I": "h", "%M": "mm", "%-M": "m", "%S": "ss", "%-S": "s", "%f": "SSSSSS",
    "%p": "a", "%B": "MMMM", "%b": "MMM", "%A": "EEEE", "%a": "EEE",
}  # fmt: skip
_OF_DATAFUSION = {
    **_STRFTIME, "%F": "yyyy-MM-dd", "%T": "HH:mm:ss", "%3f": "SSS", "%6f": "SSSSSS", "%.3f": ".SSS", "%.6f": ".SSSSSS",
}  # fmt: skip
del _OF_DATAFUSION["%f"]  # nanoseconds
_TO_CHAR = {
    "YYYY": "yyyy", "YY": "yy", "MM": "MM", "FMMM": "M", "DD": "dd", "FMDD": "d", "DDD": "DDD", "FMDDD": "D",
    "HH24": "HH", "FMHH24": "H", "HH12": "hh", "HH": "hh", "FMHH12": "h", "MI": "mm", "FMMI": "m", "SS": "ss",
    "FMSS": "s", "MS": "SSS", "US": "SSSSSS", "Q": "Q", "AM": "a", "PM": "a", "Mon": "MMM", "FMMonth": "MMMM",
    "Dy": "EEE", "FMDay": "EEEE", "yyyy": "yyyy", "yy": "yy", "mm": "MM", "dd": "dd", "ddd": "DDD", "hh24": "HH",
    "hh12": "hh", "hh": "hh", "mi": "mm", "ss": "ss", "ms": "SSS", "us": "SSSSSS",
}  # fmt: skip
_PARTS = {"postgres": _TO_CHAR, "datafusion": _OF_DATAFUSION, "duckdb": _STRFTIME, "mysql": _STRFTIME}
_ONLY_WRITTEN = ("yy", "Q", "EEEE", "EEE")
"""What is written alike and not read alike: systems disagree about the century of a year of two digits."""
_SPLIT = {
    # SSSS would be the seconds of the day, not the seconds twice.
    "postgres": re.compile(
        r'"[^"]*"|S{3,}|s{3,}|' + "|".join(sorted(_TO_CHAR, key=len, reverse=True)) + r"|.", re.DOTALL
    ),
    "": re.compile(r"%[-.0-9]*.|.", re.DOTALL),
}
_PLAIN = re.compile(r"[^A-Za-z%\[\]{}#'\"]")
"""What stands for itself in the formats of every system."""
_LETTERS = re.compile(r"([A-Za-z])\1*|.")
_TWO_DIGITS = ("MM", "dd", "HH", "hh", "mm", "ss", "DDD")
"""What is written with all of these digits, and read with fewer, too."""
_DIGITS = re.compile(r"[yDdHhmsS]+|MM?|\d|'\d.*|'.*\d'", re.DOTALL)
_OFFSET = "%z"
_COLON_IN_OFFSET = "([+-][0-9]{2}):([0-9]{2})$"


def translate_format(node: exp.Func, dialect: str, where: str) -> None:
    """Replace a function that writes or reads a time in a format, whose format was read as it was written."""
    names = {exp.TimeToStr: "DATE_FORMAT", exp.StrToDate: "TO_DATE", exp.StrToTime: "TO_TIMESTAMP"}
    name = "FROM_UNIXTIME" if isinstance(node, exp.UnixToTime) else names[type(node)]
    written, value = node.args.get("format"), node.this.copy()
    if written is None:
        return
    if not isinstance(written, exp.Literal):
        reason = "the format of a time that is computed cannot be read here"
        raise refusal(dialect, where, reason, "write the format out, or use dialect='spark'.")
    reads, text = name.startswith("TO_"), written.name
    has_offset = dialect == "duckdb" and reads and text.endswith(_OFFSET) and not text.endswith("%" + _OFFSET)
    pattern = _java(text.removesuffix(_OFFSET) if has_offset else text, dialect, where, reads=reads)
    if has_offset:  # +02, +0200 or +02:00, of which Java's x reads two
        parts = [exp.Literal.string(one) for one in (_COLON_IN_OFFSET, "$1$2")]
        pattern, value = pattern + "x", exp.Anonymous(this="REGEXP_REPLACE", expressions=[value, *parts])
    java = exp.Literal.string(pattern)
    # Types are put into the query as text, which is read once more.
    sample = exp.Anonymous(this="DATE_FORMAT", expressions=[exp.column("v"), java]).sql(dialect="spark")
    if parse_one(sample, dialect="spark").sql(dialect="spark") != sample:
        raise _unknown(written.name, dialect, where)
    node.replace(exp.Anonymous(this=name, expressions=[value, java]))


def _java(written: str, dialect: str, where: str, *, reads: bool) -> str:
    """Return a format as Java's."""
    parts = _PARTS[dialect]
    letters: list[str] = []
    for part in _SPLIT.get(dialect, _SPLIT[""]).findall(written):
        if part in parts and not (reads and parts[part] in _ONLY_WRITTEN):
            letters += [run.group() for run in _LETTERS.finditer(parts[part])]
        elif _PLAIN.fullmatch(part):
            letters.append(part)
        elif (text := _text(part, dialect)) is not None:
            letters.append("'" + text.replace("'", "''") + "'")
        else:
            raise _unknown(part, dialect, where)
    java = ""
    for one in _with_fewer_digits(letters) if reads else letters:
        java = java[:-1] + one[1:] if java.endswith("'") and one.startswith("'") else java + one
    return java


def _with_fewer_digits(letters: list[str]) -> list[str]:
    """Return the parts of a format with one letter for a number that may have fewer digits; not where another one is next to it."""
    read = []
    for before, one, after in zip(["", *letters], letters, [*letters[1:], ""], strict=False):
        is_alone = not (_DIGITS.fullmatch(before) or _DIGITS.fullmatch(after))
        read.append(one[0] if one in _TWO_DIGITS and is_alone else one)
    return read


def _text(part: str, dialect: str) -> str | None:
    """Return the text that a part of a format stands for; letters of PostgreSQL's mean something unless they are quoted."""
    if dialect == "postgres":
        return part[1:-1] if part.startswith('"') and len(part) > 2 else None  # noqa: PLR2004
    return "%" if part == "%%" else None if part.startswith("%") else part


def _unknown(part: str, dialect: str, where: str) -> Exception:
    reason = f"{part!r} in the format of a time has no equal in Java's formats"
    return refusal(dialect, where, reason, "use date_format or to_timestamp with dialect='spark'.")
