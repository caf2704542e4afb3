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
_PLAIN = re.compile(r"[^\w%\[\]{}#'\"]|\d")
"""What stands for itself in the formats of every system."""


def translate_format(node: exp.Func, dialect: str, where: str) -> None:
    """Replace a function that writes or reads a time in a format, whose format was read as it was written."""
    names = {exp.TimeToStr: "DATE_FORMAT", exp.StrToDate: "TO_DATE", exp.StrToTime: "TO_TIMESTAMP"}
    name = "FROM_UNIXTIME" if isinstance(node, exp.UnixToTime) else names[type(node)]
    written = node.args.get("format")
    if not isinstance(written, exp.Literal):
        reason = "the format of a time that is computed cannot be read here"
        raise refusal(dialect, where, reason, "write the format out, or use dialect='spark'.")
    java = exp.Literal.string(_java(written.name, dialect, where, reads=name.startswith("TO_")))
    # Types are put into the query as text, which is read once more.
    sample = exp.Anonymous(this="DATE_FORMAT", expressions=[exp.column("v"), java]).sql(dialect="spark")
    if parse_one(sample, dialect="spark").sql(dialect="spark") != sample:
        raise _unknown(written.name, dialect, where)
    node.replace(exp.Anonymous(this=name, expressions=[node.this.copy(), java]))


def _java(written: str, dialect: str, where: str, *, reads: bool) -> str:
    """Return a format as Java's."""
    parts, java = _PARTS[dialect], ""
    for part in _SPLIT.get(dialect, _SPLIT[""]).findall(written):
        if part in parts and not (reads and parts[part] in _ONLY_WRITTEN):
            java += parts[part]
        elif _PLAIN.fullmatch(part):
            java += part
        elif (text := _text(part, dialect)) is not None:
            quoted = "'" + text.replace("'", "''") + "'"
            java = java[:-1] + quoted[1:] if java.endswith("'") else java + quoted
        else:
            raise _unknown(part, dialect, where)
    return java


def _text(part: str, dialect: str) -> str | None:
    """Return the text that a part of a format stands for; letters of PostgreSQL's mean something unless they are quoted."""
    if dialect == "postgres":
        return part[1:-1] if part.startswith('"') and len(part) > 2 else None  # noqa: PLR2004
    return "%" if part == "%%" else None if part.startswith("%") else part


def _unknown(part: str, dialect: str, where: str) -> Exception:
    reason = f"{part!r} in the format of a time has no equal in Java's formats"
    return refusal(dialect, where, reason, "use date_format or to_timestamp with dialect='spark'.")
