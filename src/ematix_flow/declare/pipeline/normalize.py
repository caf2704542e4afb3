"""Normalisers as values: what shall happen to a column or to the rows, without the SQL that does it."""

from __future__ import annotations

import math
import zoneinfo
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline.datetime_format import DEFAULT_DATES, DEFAULT_TIMESTAMPS, read_format
from ematix_flow.declare.pipeline.regex import check_pattern
from ematix_flow.declare.table.markers import Normalizer
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.datetime_format import DatetimeFormat

Literal = bool | int | float | str | Decimal | datetime | date
"""A value that can be written into SQL."""

FAILURE_POLICIES = ("null", "default", "error")
TRUNC_PRECISIONS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
TRUTHY = ("true", "1", "yes", "y")
FALSY = ("false", "0", "no", "n")


@dataclass(frozen=True, slots=True)
class Trim(Normalizer):
    """Remove blanks at both ends."""


@dataclass(frozen=True, slots=True)
class Lower(Normalizer):
    """Make letters small."""


@dataclass(frozen=True, slots=True)
class Upper(Normalizer):
    """Make letters capital."""


@dataclass(frozen=True, slots=True)
class EmptyToNull(Normalizer):
    """Make '' NULL."""


@dataclass(frozen=True, slots=True)
class WhitespaceToNull(Normalizer):
    """Make text of white space NULL and trim the rest."""


@dataclass(frozen=True, slots=True)
class Replace(Normalizer):
    """Replace every `old` by `new`."""

    old: str
    new: str

    def __post_init__(self) -> None:
        _require_text("replace(old, new)", self.old, self.new)
        if not self.old:
            raise DeclareError("replace() needs a text to look for")


@dataclass(frozen=True, slots=True)
class RegexReplace(Normalizer):
    r"""Replace what matches; `\1` and `\&` in the replacement are groups, flags are g (all) and i (ignore case)."""

    pattern: str
    replacement: str
    flags: str = "g"

    def __post_init__(self) -> None:
        _require_text("regex_replace(pattern, replacement, flags)", self.pattern, self.replacement, self.flags)
        if set(self.flags) - set("gi"):
            raise DeclareError(f"regex_replace() knows the flags g and i, not {self.flags!r}")
        check_pattern(self.pattern)


@dataclass(frozen=True, slots=True)
class Truncate(Normalizer):
    """Keep the first `n` characters."""

    n: int

    def __post_init__(self) -> None:
        _require_whole("truncate", self.n, 0)


@dataclass(frozen=True, slots=True)
class EmailNormalize(Normalizer):
    """Trim and make small."""


@dataclass(frozen=True, slots=True)
class PhoneNormalize(Normalizer):
    """Keep digits and `+`."""


@dataclass(frozen=True, slots=True)
class _Parse(Normalizer):
    def __post_init__(self) -> None:
        on_failure, default = getattr(self, "on_failure"), getattr(self, "default")  # noqa: B009 - fields of the subclasses
        if on_failure not in FAILURE_POLICIES:
            hint = did_you_mean(str(on_failure), FAILURE_POLICIES)
            raise DeclareError(f"on_failure={on_failure!r} is not known", hint=hint)
        if on_failure == "default" and default is None:
            raise DeclareError('on_failure="default" needs default=')
        if default is not None:
            if on_failure != "default":
                raise DeclareError('default= needs on_failure="default"')
            require_literal(default)


@dataclass(frozen=True, slots=True)
class ParseTimestamp(_Parse):
    """Read text as a point in time; text without an offset is UTC."""

    format: str | None = None
    formats: tuple[str, ...] | None = field(default=None, kw_only=True)
    on_failure: str = field(default="null", kw_only=True)
    default: Literal | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Parse.__post_init__(self)
        object.__setattr__(self, "formats", _check_formats(self.format, self.formats, self.on_failure))

    def accepted(self) -> tuple[DatetimeFormat, ...]:
        """Return the formats in the order in which they are tried."""
        return _accepted(self.format, self.formats) or DEFAULT_TIMESTAMPS


@dataclass(frozen=True, slots=True)
class ParseDate(_Parse):
    """Read text as a calendar day."""

    format: str | None = None
    formats: tuple[str, ...] | None = field(default=None, kw_only=True)
    on_failure: str = field(default="null", kw_only=True)
    default: Literal | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Parse.__post_init__(self)
        object.__setattr__(self, "formats", _check_formats(self.format, self.formats, self.on_failure))

    def accepted(self) -> tuple[DatetimeFormat, ...]:
        """Return the formats in the order in which they are tried."""
        return _accepted(self.format, self.formats) or DEFAULT_DATES


@dataclass(frozen=True, slots=True)
class ToTimezone(Normalizer):
    """Give the wall time of a zone; in a TimestampTZ column the instant stays what it is."""

    tz: str

    def __post_init__(self) -> None:
        _require_text("to_timezone(tz)", self.tz)
        try:
            zoneinfo.ZoneInfo(self.tz)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise DeclareError(f"{self.tz!r} is not a time zone", hint="use an IANA name: Europe/Berlin") from error


@dataclass(frozen=True, slots=True)
class DateTrunc(Normalizer):
    """Cut a point in time to its second, day, week (Monday), year, ... in UTC."""

    precision: str

    def __post_init__(self) -> None:
        _require_text("date_trunc(precision)", self.precision)
        if self.precision.lower() not in TRUNC_PRECISIONS:
            hint = did_you_mean(self.precision, TRUNC_PRECISIONS)
            raise DeclareError(f"date_trunc({self.precision!r}) is not known", hint=hint)
        object.__setattr__(self, "precision", self.precision.lower())


@dataclass(frozen=True, slots=True)
class ParseInt(_Parse):
    """Read text as a 64-bit whole number."""

    on_failure: str = "null"
    default: Literal | None = None


@dataclass(frozen=True, slots=True)
class ParseNumeric(_Parse):
    """Read text as a decimal number, rounded half away from zero; too many digits are a failure."""

    precision: int
    scale: int
    on_failure: str = "null"
    default: Literal | None = None

    def __post_init__(self) -> None:
        _Parse.__post_init__(self)
        _require_whole("parse_numeric", self.precision, 1)
        _require_whole("parse_numeric", self.scale, 0)
        if self.scale > self.precision:
            raise DeclareError(f"parse_numeric({self.precision}, {self.scale}) has more decimals than digits")


@dataclass(frozen=True, slots=True)
class Round(Normalizer):
    """Round half away from zero to `precision` decimals."""

    precision: int

    def __post_init__(self) -> None:
        _require_whole("round", self.precision, 0)


@dataclass(frozen=True, slots=True)
class Clamp(Normalizer):
    """Keep the value between `low` and `high`; NULL stays NULL."""

    low: Literal
    high: Literal

    def __post_init__(self) -> None:
        require_literal(self.low)
        require_literal(self.high)


@dataclass(frozen=True, slots=True)
class ParseBool(Normalizer):
    """Read words as true or false, ignoring case; other words become NULL."""

    truthy: tuple[str, ...] = TRUTHY
    falsy: tuple[str, ...] = FALSY

    def __post_init__(self) -> None:
        for option in ("truthy", "falsy"):
            value = getattr(self, option)
            if isinstance(value, str) or not all(isinstance(w, str) for w in value):
                raise DeclareTypeError(f"parse_bool({option}=) takes a list of words, not {value!r}")
            object.__setattr__(self, option, tuple(w.lower() for w in value))


@dataclass(frozen=True, slots=True)
class Default(Normalizer):
    """Put `value` in place of NULL."""

    value: Literal

    def __post_init__(self) -> None:
        require_literal(self.value)


@dataclass(frozen=True, slots=True)
class NullIf(Normalizer):
    """Put NULL in place of `value`."""

    value: Literal

    def __post_init__(self) -> None:
        require_literal(self.value)


@dataclass(frozen=True, slots=True)
class Sql(Normalizer):
    """Any SQL expression; the word `col` in it is the value so far."""

    expression: str

    def __post_init__(self) -> None:
        _require_text("sql(expression)", self.expression)


@dataclass(frozen=True, slots=True)
class Derive(Normalizer):
    """Any SQL expression over the source columns; it needs no source column of its own name."""

    expression: str

    def __post_init__(self) -> None:
        _require_text("derive(expression)", self.expression)


def check_chain(normalizers: tuple[Normalizer, ...]) -> None:
    """Refuse a chain whose derive() would throw earlier steps away."""
    if any(isinstance(n, Derive) for n in normalizers[1:]):
        raise DeclareError("derive() must be the first normaliser of a column")


def require_literal(value: object) -> None:
    """Refuse a value that has no spelling in SQL."""
    if not isinstance(value, Literal) or (isinstance(value, float | Decimal) and not math.isfinite(value)):
        raise DeclareError(f"{value!r} cannot be written as an SQL value", hint="use text, a number, a bool or a date")


def _check_formats(single: object, several: object, on_failure: str) -> tuple[str, ...] | None:
    if single is not None and several is not None:
        raise DeclareError("format and formats= exclude each other")
    if single is not None:
        read_format(single)
    if several is None:
        return None
    if not isinstance(several, tuple | list) or not several:
        raise DeclareError(f"formats= takes a list of formats, not {several!r}")
    for text in several:
        read_format(text)
    if on_failure == "error" and len(several) > 1:
        raise DeclareError('on_failure="error" takes one format', hint="or none, for the default ones")
    return tuple(several)


def _accepted(single: str | None, several: tuple[str, ...] | None) -> tuple[DatetimeFormat, ...]:
    return tuple(read_format(f) for f in ((single,) if single else several or ()))


def _require_text(what: str, *values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise DeclareTypeError(f"{what} takes text, not {value!r}")


def _require_whole(what: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DeclareTypeError(f"{what}() takes a whole number, not {value!r}")
    if value < least:
        raise DeclareError(f"{what}() takes a number from {least}, not {value}")


trim = Trim
lower = Lower
upper = Upper
empty_to_null = EmptyToNull
whitespace_to_null = WhitespaceToNull
replace = Replace
regex_replace = RegexReplace
truncate = Truncate
email_normalize = EmailNormalize
phone_normalize = PhoneNormalize
parse_timestamp = ParseTimestamp
parse_date = ParseDate
to_timezone = ToTimezone
date_trunc = DateTrunc
parse_int = ParseInt
parse_numeric = ParseNumeric
round = Round  # noqa: A001 - the public name of the marker
clamp = Clamp
parse_bool = ParseBool
default = Default
not_null_or = Default
nullif = NullIf
sql = Sql
derive = Derive
