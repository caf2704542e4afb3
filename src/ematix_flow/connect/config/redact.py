"""Takes secrets out of text before it leaves the process; it changes nothing but what is shown."""

from __future__ import annotations

import base64
import json
import math
import re
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from ematix_flow.connect.config.secrets import known_secrets
from ematix_flow.declare.masking import REDACTED, mask_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PERCENT = re.compile(r"%[0-9A-F]{2}")


def redact(text: str, replacement: str = REDACTED) -> str:
    """Return the text without known secrets in any common encoding, URL passwords and `password=` pairs."""
    return _redact(text, known_secrets(), replacement)


def _redact(text: str, known: frozenset[str], replacement: str) -> str:
    if known:
        text = _pattern(known).sub(lambda _: replacement, text)
    return mask_text(text, replacement)


def _cleaner(replacement: str) -> Callable[[str], str]:
    """Return what redacts texts of one answer, most of which occur in it again and again."""
    known = known_secrets()
    return cache(lambda text: _redact(text, known, replacement))


def safe_text(error: BaseException) -> str:
    """Return the message of an exception, with its notes and hints, fit to be shown, stored and sent."""
    message = str(error) or type(error).__name__
    return redact("\n".join([message, *getattr(error, "__notes__", [])]))


def redacted(value: Any, replacement: str = REDACTED) -> Any:
    """Return plain data with every text in it redacted."""
    return _redacted(value, _cleaner(replacement))


def _redacted(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {
            _redacted(key, clean) if isinstance(key, str) else key: _redacted(one, clean) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(item, clean) for item in value]
    return value


def redacted_json(value: Any, replacement: str = REDACTED, indent: int | None = None) -> str:
    """Return plain data as JSON that every program reads, with every text in it redacted; numbers that JSON lacks are texts."""
    ready = _json_ready(value, _cleaner(replacement))
    if indent is None:
        # What it does not take, such as whole numbers of more than 64 bits, Python's own writer does.
        with suppress(TypeError):
            return _compact(ready)
    separators = (",", ":") if indent is None else None
    return json.dumps(ready, indent=indent, ensure_ascii=False, allow_nan=False, separators=separators)


def _compact(ready: Any) -> str:
    import orjson  # not needed by a command that only shows help

    return orjson.dumps(ready, option=orjson.OPT_NON_STR_KEYS).decode()


def _json_ready(value: Any, clean: Callable[[str], str]) -> Any:
    """Return data redacted and as JSON has it: what JSON lacks, such as NaN and infinite numbers, is its text."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {
            key if key is None or isinstance(key, int) else clean(str(key)): _json_ready(one, clean)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_json_ready(one, clean) for one in value]
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return clean(str(value))


@lru_cache(maxsize=8)
def _pattern(known: frozenset[str]) -> re.Pattern[str]:
    forms = {form for value in known for form in _forms(value)}
    # Longest first: a secret that contains another must not leave its rest behind.
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form))))


def _forms(value: str) -> Iterator[str]:
    yield value
    yield repr(value)[1:-1]
    yield json.dumps(value)[1:-1]
    # surrogatepass: an environment variable may hold bytes that are no text.
    raw = value.encode(errors="surrogatepass")
    for encoded in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield encoded
        yield _PERCENT.sub(lambda match: match.group().lower(), encoded)
    yield from _base64_forms(raw)


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Return what base64 makes of the bytes at each of the three offsets at which they may begin in a longer text."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        shared_start = (before * 8 + 5) // 6
        shared_end = 1 if (before + len(raw)) % 3 else 0
        core = encoded[shared_start : len(encoded) - shared_end]
        yield core
        yield core.replace("+", "-").replace("/", "_")
